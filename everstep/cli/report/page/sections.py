"""The page's sections other than the timeline: figures, events, goodput, money, workers' time."""

from collections.abc import Iterator, Sequence

from everstep.catalog.plurals import amount
from everstep.cli.durations import clock
from everstep.cli.report.goodput import Goodput, RestartEstimate, WorkerSeconds, total
from everstep.cli.report.goodput_screen import ACTIVITY_LABELS, PARTS
from everstep.cli.report.incidents import Incident, losses
from everstep.cli.report.money import Money, PoolSpending, as_sentence, traffic_sentence, usd
from everstep.cli.report.page.markup import Html, element
from everstep.cli.report.page.model import ReportPage
from everstep.cli.report.page.words import UNKNOWN, percent, seconds_text

EVENTS_PER_TABLE = 250
PART_CLASSES = ("steps", "overhead", "change", "before")
"""CSS class of each of `goodput_screen.PARTS`: steps, evaluation and saving, changes of the group, before joining."""


def section(identifier: str, title: str, *children: Html | str | None) -> Html:
    """Return a section with a heading."""
    title_id = f"{identifier}-title"
    heading = element("h2", title, id=title_id)
    return element("section", heading, *children, id=identifier, aria_labelledby=title_id)


# --- figures ------------------------------------------------------------------------------------


def figures(page: ReportPage) -> Html:
    """Return the most important values."""
    report = page.report
    estimate = report.restart_estimate
    loss_incidents = list(losses(page.incidents))
    waits = [
        loss.seconds_to_next_step
        for loss in loss_incidents
        if loss.seconds_to_next_step is not None
    ]
    repeated = sum(loss.steps_lost or 0 for loss in loss_incidents)
    comparison = f"restarting: {estimate.goodput:.0%}, estimated" if estimate else ""
    steps = f"of {report.total_steps:,}" if report.total_steps else ""
    rate = "" if report.images_per_second is None else f"{report.images_per_second:,.0f}"
    entries = [
        ("Goodput", percent(report.goodput.share) if report.goodput else UNKNOWN, comparison),
        ("Longest wait", seconds_text(max(waits, default=None)), _losses_text(len(loss_incidents))),
        ("Steps", f"{report.steps:,}", ", ".join(filter(None, (steps, f"{repeated:,} repeated")))),
        ("Throughput", rate or UNKNOWN, "samples/s, median step"),
        ("Accuracy", percent(report.accuracy), ""),
        _cost_figure(page.money),
    ]
    return element("dl", *(_figure(*figure) for figure in entries), class_="figures")


def _losses_text(count: int) -> str:
    return f"after {amount(count, 'loss of workers', 'losses of workers')}"


def _cost_figure(money: Money | None) -> tuple[str, str, str]:
    if money is None:
        return "Spent", UNKNOWN, "unknown without a stack"
    if money.billed and money.spent_usd is None:
        return "Spent", UNKNOWN, "no price is known"
    if not money.billed:
        return "Spent", usd(0.0), "nothing was billed"
    saved = f"{usd(money.saved_usd)} saved" if money.saved_usd and money.saved_usd > 0 else ""
    return "Spent", usd(money.spent_usd or 0.0), saved


def _figure(name: str, value: str, note: str) -> Html:
    return element(
        "div",
        element("dt", name),
        element("dd", value, class_="value"),
        element("dd", note, class_="note") if note else None,
    )


# --- events -------------------------------------------------------------------------------------


def events(page: ReportPage) -> Html:
    """Return all incidents as tables; a long list is divided into parts that open on demand."""
    page_incidents = page.incidents
    if not page_incidents:
        return section("events", "What happened", element("p", "Nothing disrupted the training."))
    parts = [
        (first, page_incidents[first : first + EVENTS_PER_TABLE])
        for first in range(0, len(page_incidents), EVENTS_PER_TABLE)
    ]
    if len(parts) == 1:
        return section("events", "What happened", _events_table(page, page_incidents, 1))
    return section("events", "What happened", *(_part(page, part, first) for first, part in parts))


def _part(page: ReportPage, part: Sequence[Incident], first: int) -> Html:
    times = f"{clock(part[0].at - page.start)} to {clock(part[-1].at - page.start)}"
    summary = element("summary", f"Events {first + 1:,} to {first + len(part):,}: {times}")
    return element("details", summary, _events_table(page, part, first + 1), open=first == 0)


def _events_table(page: ReportPage, part: Sequence[Incident], first: int) -> Html:
    names = ("At", "Event", "Cause", "Next step after", "Steps repeated", "Joined after")
    header = element("tr", *(element("th", name, scope="col") for name in names))
    rows = (_event_row(page, incident, number) for number, incident in enumerate(part, first))
    return element(
        "table",
        element("caption", "Events with their causes and costs", class_="hidden"),
        element("thead", header),
        element("tbody", *rows),
        class_="events",
    )


def _event_row(page: ReportPage, incident: Incident, number: int) -> Html:
    """Return a row with only the necessary attributes, because there may be ten thousand rows."""
    evidence = element("small", incident.evidence) if incident.evidence else None
    wait = (
        "no step since" if incident.recovered is False else _optional(incident.seconds_to_next_step)
    )
    steps_lost = "" if incident.steps_lost is None else str(incident.steps_lost)
    cells: list[Html] = [
        element("td", clock(incident.at - page.start)),
        element("td", element("b", incident.kind), " ", incident.subject),
        element("td", incident.cause, evidence),
        *(element("td", text) for text in (wait, steps_lost, _optional(incident.seconds_to_join))),
    ]
    return element("tr", *cells, id=f"event-{number}", class_=incident.effect.value)


def _optional(value: float | None) -> str:
    return "" if value is None else seconds_text(value)


# --- goodput ------------------------------------------------------------------------------------


def goodput(page: ReportPage) -> Html | None:
    """Return the section about goodput, with the estimate for workers that restart; None without a step."""
    report = page.report
    if report.goodput is None:
        return None
    rows = list(_goodput_rows(report.goodput, report.restart_estimate))
    text = (
        "Goodput is the time of steps that counted, as a share of all time with a machine: pauses, repeated "
        "steps, start-up, saving and evaluation are not productive."
    )
    legend = element(
        "ul",
        _key("steps", "steps that counted"),
        _key("change", "lost to changes of the group"),
        _key("before", "start-up, saving, evaluation"),
        class_="legend",
    )
    children = [element("p", text, class_="lead"), *rows, legend]
    if report.restart_estimate:
        children.append(_estimate(report.restart_estimate, page.start))
    heading = "Goodput, compared with torchrun's design" if report.restart_estimate else "Goodput"
    return section("goodput", heading, *children)


def _goodput_rows(run_goodput: Goodput, estimate: RestartEstimate | None) -> Iterator[Html]:
    elapsed = run_goodput.elapsed_seconds or 1.0
    lost_seconds = estimate.live_lost_seconds if estimate else run_goodput.redone_seconds
    lost_share = min(lost_seconds / elapsed, 1.0 - run_goodput.share)
    yield _stack(
        "This run", percent(run_goodput.share), [("steps", run_goodput.share), ("change", lost_share),
        ("before", 1.0 - run_goodput.share - lost_share)], "own",
    )  # fmt: skip
    if estimate:
        change = min(estimate.lost_seconds / elapsed, 1.0 - estimate.goodput)
        other = 1.0 - estimate.goodput - change
        yield _stack(
            "Restarting all workers", percent(estimate.goodput),
            [("steps", estimate.goodput), ("change", change), ("before", other)], "other",
        )  # fmt: skip


def _estimate(estimate: RestartEstimate, start: float) -> Html:
    end_note = (
        f" At {clock(estimate.ended_at - start)} a worker was drained, which ends a torchrun job permanently."
        if estimate.ended_at is not None
        else ""
    )
    text = (
        f"The second bar is a model, not a measurement: it replays the {estimate.changes} changes of this run for "
        f"workers that restart from the last checkpoint, with the measured costs of torchrun's etcd "
        f"backend: {seconds_text(estimate.lost_seconds)} lost, against {seconds_text(estimate.live_lost_seconds)} "
        f"here.{end_note}"
    )
    assumptions = element("ul", *(element("li", line) for line in estimate.assumptions))
    details = element("details", element("summary", "Assumptions of the model"), assumptions)
    return element("div", element("p", text), details)


def _stack(name: str, value: str, parts: Sequence[tuple[str, float]], kind: str) -> Html:
    """Return a bar of several parts; the parts are shares of its width."""
    position, shapes = 0.0, []
    for part, share in parts:
        width = max(share, 0.0)
        shapes.append(
            element(
                "rect", class_=part, x=f"{100 * position:.2f}%", y=BAR_TOPS[part],
                width=f"{100 * width:.2f}%", height=BAR_HEIGHT - 2 * BAR_TOPS[part],
            )
        )  # fmt: skip
        position += width
    bar = element("svg", *shapes, width="100%", height=BAR_HEIGHT, aria_hidden="true")
    return element(
        "div",
        element("div", name, class_="row-name"),
        element("div", bar, class_="row-plot"),
        element("div", value, class_="row-note"),
        class_=f"row stack {kind}",
    )


BAR_HEIGHT = 24
BAR_TOPS = {"steps": 0, "overhead": 3, "change": 6, "before": 9}
"""Pixels between the top of a bar and the top of each part, so that parts differ without color."""


def _key(part: str, text: str) -> Html:
    top = BAR_TOPS[part]
    swatch = element("rect", class_=part, x=0, y=top, width=22, height=BAR_HEIGHT - 2 * top)
    picture = element("svg", swatch, width=22, height=BAR_HEIGHT, aria_hidden="true")
    return element("li", picture, text)


# --- money --------------------------------------------------------------------------------------


def money(page: ReportPage) -> Html | None:
    """Return the section about the cost of the run; None if nothing is known about it."""
    cost = page.money
    if cost is None:
        return None
    hours = element("p", f"{cost.machine_hours:,.2f} machine-hours of training machines.")
    if cost.spent_usd is None or (not cost.billed and cost.on_demand_usd is None):
        explanation = f"Nothing was billed: {cost.reason}." if not cost.billed else _unknown(cost)
        return section("money", "Money", element("p", explanation, class_="lead"), hours)
    billing_note = (
        None if cost.billed else element("p", f"Nothing was billed: {cost.reason}.", class_="lead")
    )
    entries = [
        ("Spent" if cost.billed else "In the cloud", usd(cost.spent_usd), "as bought"),
        ("On demand", _usd(cost.on_demand_usd), "the same hours"),
        ("Saved", _saved(cost), _saved_share(cost)),
        ("Machine-hours", f"{cost.machine_hours:,.2f}", "of training machines"),
    ]
    table = element("dl", *(_figure(*figure) for figure in entries), class_="figures")
    notes = [*cost.notes, *([_unknown(cost)] if cost.unknown else [])]
    basis = (
        f"An estimate: hours from the first worker's start to the end of the training, at list prices of "
        f"{cost.prices_as_of} or later. {' '.join(as_sentence(note) for note in notes)}"
    )
    pools = _pools_table(cost.pools) if len(cost.pools) > 1 else None
    traffic_text = traffic_sentence(cost.between_zones)
    between_zones = element("p", traffic_text) if traffic_text else None
    basis_note = element("p", basis, class_="fine")
    return section("money", "Money", billing_note, table, pools, between_zones, basis_note)


def _pools_table(pools: Sequence[PoolSpending]) -> Html:
    """Return the hours and the cost of each pool's machines."""
    header = element(
        "tr",
        *(
            element("th", name, scope="col")
            for name in ("Pool", "Machine-hours", "As bought", "On demand")
        ),
    )
    rows = (
        element(
            "tr",
            element("th", pool.pool, scope="row"),
            element("td", f"{pool.machine_hours:,.2f}"),
            element("td", _usd(pool.spent_usd)),
            element("td", _usd(pool.on_demand_usd)),
        )
        for pool in pools
    )
    return element(
        "table",
        element("caption", "Training machines by pool", class_="hidden"),
        element("thead", header),
        element("tbody", *rows),
    )


def _usd(amount: float | None) -> str:
    return UNKNOWN if amount is None else usd(amount)


def _saved(cost: Money) -> str:
    """Return the saving; a spot price may be above the on-demand price."""
    return "nothing" if cost.saved_usd is not None and cost.saved_usd <= 0 else _usd(cost.saved_usd)


def _saved_share(cost: Money) -> str:
    if cost.saved_usd is None or cost.saved_usd <= 0 or not cost.on_demand_usd:
        return ""
    return f"{cost.saved_usd / cost.on_demand_usd:.0%} of the on-demand price"


def _unknown(cost: Money) -> str:
    items = ", ".join(cost.unknown) or "the machines"
    return f"No price is known for {items}: set everstep:cost.prices to include it."


# --- workers ------------------------------------------------------------------------------------


def workers(page: ReportPage) -> Html | None:
    """Return each worker's time by activity; None if the journals do not record it."""
    worker_seconds = page.report.seconds
    if not worker_seconds:
        return None
    longest = max(sum(worker.seconds.values()) for worker in worker_seconds) or 1.0
    rows = [_worker(worker, longest) for worker in worker_seconds]
    keys = (_key(kind, words) for kind, (_, _, words) in zip(PART_CLASSES, PARTS, strict=True))
    legend = element("ul", *keys, class_="legend")
    details = element(
        "details", element("summary", "Seconds by activity"), _activities(worker_seconds)
    )
    return section("workers", "Where each worker's time went", *rows, legend, details)


def _worker(worker: WorkerSeconds, longest: float) -> Html:
    total_seconds = sum(worker.seconds.values())
    parts = [
        (
            kind,
            sum(
                worker.seconds.get(name, 0.0)
                for name, (_, parent) in ACTIVITY_LABELS.items()
                if parent is part
            )
            / longest,
        )
        for kind, part in zip(PART_CLASSES, PARTS, strict=True)
    ]
    share = parts[0][1] * longest / total_seconds if total_seconds else None
    return _stack(worker.worker, percent(share), parts, "worker")


def _activities(worker_seconds: Sequence[WorkerSeconds]) -> Html:
    sums = total(worker_seconds)
    total_seconds = sum(sums.values()) or 1.0
    header = element(
        "tr", *(element("th", name, scope="col") for name in ("Activity", "Seconds", "Share"))
    )
    rows = (
        element(
            "tr",
            element("th", words, scope="row"),
            element("td", f"{sums[name]:,.1f}", class_="number"),
            element("td", percent(sums[name] / total_seconds), class_="number"),
        )
        for name, (words, _) in ACTIVITY_LABELS.items()
        if sums.get(name)
    )
    return element("table", element("thead", header), element("tbody", *rows), class_="plain")
