"""The page's first lines: whether the training survived, and its cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everstep.catalog.plurals import amount
from everstep.cli.durations import clock
from everstep.cli.report.incidents import Incident, losses
from everstep.cli.report.money import Money, usd
from everstep.cli.report.page.model import ReportPage
from everstep.cli.report.page.words import seconds_text
from everstep.cli.report.status import Status


@dataclass(frozen=True)
class ReportSummary:
    """A headline and the sentences below it."""

    headline: str
    sentences: tuple[str, ...]


def verdict(page: ReportPage) -> ReportSummary:
    """Return the headline, which states whether the training survived, and sentences about its progress and cost."""
    if page.status is Status.NOT_STARTED:
        return ReportSummary(
            "No training yet", ("No worker has started, so there is nothing to report.",)
        )
    loss_incidents = list(losses(page.incidents))
    recovered_count = sum(bool(incident.recovered) for incident in loss_incidents)
    sentences = [*_progress(page), *_cost_of_losses(page, loss_incidents), *_money(page.money)]
    return ReportSummary(_headline(page, len(loss_incidents), recovered_count), tuple(sentences))


def _headline(page: ReportPage, loss_count: int, recovered_count: int) -> str:
    report = page.report
    match page.status:
        case Status.STOPPED:
            if not report.steps:
                return "Training stopped at its start"
            total_steps = f" of {report.total_steps:,}" if report.total_steps else ""
            return f"Training stopped at step {report.steps:,}{total_steps}"
        case Status.FINISHED if not loss_count:
            return "Training finished without a loss of capacity"
        case Status.FINISHED:
            return f"Training survived {_losses(loss_count)}"
    if loss_count == 0:
        return "Training has not been disrupted so far"
    if recovered_count < loss_count:
        return f"Training has survived {recovered_count} of {amount(loss_count, 'loss', 'losses')} so far"
    return f"Training has survived {_losses(loss_count)} so far"


def _losses(count: int) -> str:
    if count == 1:
        return "the loss of a worker"
    return f"{'both' if count == 2 else f'all {count:,}'} losses of workers"


def _progress(page: ReportPage) -> Iterator[str]:
    report = page.report
    steps = (
        f"{report.steps:,} of {report.total_steps:,} steps"
        if report.total_steps
        else (amount(report.steps, "step", "steps"))
    )
    duration = clock(report.duration_seconds)
    match page.status:
        case Status.FINISHED:
            end = "" if report.accuracy is None else f", accuracy {report.accuracy:.2%}"
            yield f"It completed {steps} in {duration}{end}."
        case Status.STOPPED:
            yield f"It completed {steps} in {duration} and did not finish."
            yield f"The last journal entry is {clock(page.now - (page.last_entry or page.now))} old."
        case _:
            yield f"It has completed {steps} in {duration}."
            if page.status is Status.REGROUPING:
                yield "The workers are forming a new group."


def _cost_of_losses(page: ReportPage, loss_incidents: Sequence[Incident]) -> Iterator[str]:
    waits = [
        loss.seconds_to_next_step
        for loss in loss_incidents
        if loss.seconds_to_next_step is not None
    ]
    if not waits:
        return
    repeated = sum(loss.steps_lost or 0 for loss in loss_incidents)
    repetition = (
        f"{amount(repeated, 'step was', 'steps were')} repeated"
        if repeated
        else "no step was repeated"
    )
    delay = (
        f"{seconds_text(waits[0])} after the loss"
        if len(waits) == 1
        else f"at most {seconds_text(max(waits))} after a loss"
    )
    yield f"The next step came {delay}, and {repetition}."
    estimate = page.report.restart_estimate
    if estimate and page.report.goodput and estimate.lost_seconds > estimate.live_lost_seconds:
        yield (
            f"Changes of the group cost {seconds_text(estimate.live_lost_seconds)}; restarting every worker, as "
            f"torchrun does, would have cost an estimated {seconds_text(estimate.lost_seconds)}."
        )


def _money(cost: Money | None) -> Iterator[str]:
    if cost is None:
        return
    if not cost.billed:
        yield f"Nothing was billed: {cost.reason}."
        if cost.spent_usd and cost.on_demand_usd:
            yield (
                f"In the cloud it would have cost {usd(cost.spent_usd)}, on demand {usd(cost.on_demand_usd)}."
            )
    elif cost.spent_usd is None:
        yield f"Its cost is unknown: no price is known for {', '.join(cost.unknown) or 'its machines'}."
    elif cost.saved_usd is not None and cost.saved_usd > 0 and cost.on_demand_usd:
        share = cost.saved_usd / cost.on_demand_usd
        yield f"It cost about {usd(cost.spent_usd)}, {share:.0%} less than on demand."
    else:
        yield f"It cost about {usd(cost.spent_usd)}."
