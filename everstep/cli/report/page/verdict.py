"""The page's first lines: did the training survive, and what did it cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everstep.cli.durations import clock
from everstep.cli.report.money import Money, usd
from everstep.cli.report.page.incidents import Incident, losses
from everstep.cli.report.page.model import Page, Status
from everstep.cli.report.page.words import seconds


@dataclass(frozen=True)
class Verdict:
    """A headline and the sentences below it."""

    headline: str
    sentences: tuple[str, ...]


def verdict(page: Page) -> Verdict:
    """Return the answer to whether the training survived, and its cost."""
    if page.status is Status.NOT_STARTED:
        return Verdict(
            "No training yet", ("No worker has started, so there is nothing to report.",)
        )
    lost = list(losses(page.incidents))
    survived = [incident for incident in lost if incident.recovered]
    sentences = [*_progress(page), *_price_of_losses(page, lost), *_money(page.money)]
    return Verdict(_headline(page, len(lost), len(survived)), tuple(sentences))


def _headline(page: Page, lost: int, survived: int) -> str:
    report = page.report
    match page.status:
        case Status.STOPPED:
            place = (
                f"step {report.steps:,} of {report.total_steps:,}" if report.steps else "its start"
            )
            return f"Training stopped at {place}"
        case Status.FINISHED if not lost:
            return "Training finished without a loss of capacity"
        case Status.FINISHED:
            return f"Training survived {_losses(lost)}"
    if lost == 0:
        return "Training is undisturbed so far"
    if survived < lost:
        return f"Training has survived {survived} of {_count(lost, 'loss', 'losses')} so far"
    return f"Training has survived {_losses(lost)} so far"


def _losses(lost: int) -> str:
    return "the loss of a worker" if lost == 1 else f"all {lost:,} losses of workers"


def _progress(page: Page) -> Iterator[str]:
    report = page.report
    steps = (
        f"{report.steps:,} of {report.total_steps:,} steps"
        if report.total_steps
        else (_count(report.steps, "step", "steps"))
    )
    duration = clock(report.duration_seconds)
    match page.status:
        case Status.FINISHED:
            end = "" if report.accuracy is None else f", accuracy {report.accuracy:.2%}"
            yield f"It completed {steps} in {duration}{end}."
        case Status.STOPPED:
            yield f"It completed {steps} in {duration} and has no end."
            yield f"The last journal entry is {clock(page.now - (page.last_entry or page.now))} old."
        case _:
            yield f"It has completed {steps} in {duration}."
            if page.status is Status.REGROUPING:
                yield "The workers are forming a new group."


def _price_of_losses(page: Page, lost: Sequence[Incident]) -> Iterator[str]:
    waits = [loss.seconds_to_next_step for loss in lost if loss.seconds_to_next_step is not None]
    if not waits:
        return
    repeated = sum(loss.steps_lost or 0 for loss in lost)
    redone = (
        f"{_count(repeated, 'step was', 'steps were')} repeated"
        if repeated
        else "no step was repeated"
    )
    when = (
        f"{seconds(waits[0])} after the loss"
        if len(waits) == 1
        else f"at most {seconds(max(waits))} after a loss"
    )
    yield f"The next step came {when}, and {redone}."
    estimate = page.report.restart_estimate
    if estimate and page.report.goodput and estimate.lost_seconds > estimate.live_lost_seconds:
        yield (
            f"Changes of the group cost {seconds(estimate.live_lost_seconds)}; restarting every worker, as torchrun "
            f"does, would have cost an estimated {seconds(estimate.lost_seconds)}."
        )


def _money(spent: Money | None) -> Iterator[str]:
    if spent is None:
        return
    if not spent.billed:
        yield f"Nothing was billed: {spent.reason}."
        if spent.spent_usd and spent.on_demand_usd:
            yield (
                f"In the cloud it would have cost {usd(spent.spent_usd)}, on demand {usd(spent.on_demand_usd)}."
            )
    elif spent.spent_usd is None:
        yield f"Its cost is unknown: no price is known for {', '.join(spent.unknown) or 'its machines'}."
    elif spent.saved_usd is not None and spent.saved_usd > 0 and spent.on_demand_usd:
        share = spent.saved_usd / spent.on_demand_usd
        yield f"It cost about {usd(spent.spent_usd)}, {share:.0%} less than on demand."
    else:
        yield f"It cost about {usd(spent.spent_usd)}."


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"
