"""`everstep plan`: expected duration, cost and goodput of a job, before anything is bought."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from everstep.capacity import plan as planning
from everstep.capacity.history import HOUR_SECONDS, CapacityHistory
from everstep.capacity.job import JobModel
from everstep.capacity.on_demand import OnDemand
from everstep.capacity.picture import draw
from everstep.capacity.traces import read_traces
from everstep.cli import plan_inputs, plan_limits, plan_table
from everstep.cli.commands.options import DEFAULT_STACK, AsJson, Stack
from everstep.cli.console import progress, results, say
from everstep.cli.engine.context import open_stack
from everstep.cli.live_prices import live_prices
from everstep.errors import EverstepError
from everstep.files import write_atomically
from everstep.progress import Step


def plan(
    *,
    stack: Stack = DEFAULT_STACK,
    deadline: Annotated[
        str,
        typer.Option(
            help="Time by which the job has to be complete, such as 24h. By default job.deadline."
        ),
    ] = "",
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="USD", help="Suspend the job before it costs more. By default job.budgetUsd."
        ),
    ] = None,
    work: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS",
            help="Training of the whole job in machine-hours. By default, 12 hours of all machines.",
        ),
    ] = None,
    trace: Annotated[
        list[Path],
        typer.Option(
            help="Replay this capacity trace instead of generated ones; repeat it for each zone."
        ),
    ] = [],  # noqa: B006  typer copies it
    histories: Annotated[int, typer.Option(min=1, max=1000, help="Histories to replay.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same plan.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a picture of the first history, all zones with fallback, as SVG."),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Use the current prices of the cloud: on AWS, the account's."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate duration, cost and goodput for each choice of zones and on-demand machines; buy nothing.

    Replays capacity histories whose outages follow published spot traces, or traces of your own.
    """
    config = open_stack(stack).config
    current_prices = live_prices(config) if live else None
    zones = plan_inputs.zones(config)
    if current_prices:
        zones = tuple(
            plan_inputs.zone_with_prices(current_prices.config(config, zone.name), zone)
            for zone in zones
        )
        config = current_prices.config(config)
    job = plan_inputs.job_model(config, stack, work)
    limits = plan_limits.limits_of(config.job, deadline, budget)
    planning.check(job, limits)
    source = plan_table.Source(
        tuple(map(str, trace)), histories, seed, planning.horizon_seconds(job, limits)
    )
    trace_history = read_traces(trace) if trace else None
    with progress().step(f"Replaying {histories} capacity histories") as step:
        sample = _histories(trace_history, zones, job.machines, source)
        prices = plan_inputs.prices_in(job.prices, zones, sample[0].zones)
        job = replace(job, prices=prices)
        rows = _rows(sample, job, limits, step)
    if plot:
        _plot(plot, sample[0], job, limits)
    plan_to_show = plan_table.Plan(
        stack,
        job,
        limits,
        sample[0].zones,
        source,
        tuple(rows),
        price_source=current_prices.source if current_prices else "",
        foreign_zones=plan_inputs.foreign_zones(zones, sample[0].zones),
    )
    if as_json:
        results.print(json.dumps(plan_table.as_json(plan_to_show), indent=2), markup=False)
    else:
        plan_table.show(plan_to_show)


def _histories(
    trace_history: CapacityHistory | None,
    zones: Sequence[plan_inputs.PlannedZone],
    machines: int,
    source: plan_table.Source,
) -> list[CapacityHistory]:
    """Return the histories, with no more machines than the stack's pools may have in each zone."""
    if trace_history:
        histories = planning.histories_of(
            trace_history, source.histories, source.horizon_seconds, machines
        )
    else:
        hours, names = source.horizon_seconds / HOUR_SECONDS, [zone.name for zone in zones]
        histories = planning.generated_histories(
            source.histories, source.seed, hours, machines, names
        )
    return [
        history.limited_by_zone(plan_inputs.machines_in(zones, history.zones, machines))
        for history in histories
    ]


def _rows(
    sample: list[CapacityHistory],
    job: JobModel,
    limits: planning.Limits,
    step: Step,
) -> list[planning.PlanRow]:
    rows = []
    options = list(planning.choices(len(sample[0].zones)))
    for number, choice in enumerate(options, start=1):
        step.note(f"choice {number} of {len(options)}")
        outcomes = [planning.replay(history, choice, job, limits) for history in sample]
        rows.append(planning.summary(choice, outcomes, limits))
    return rows


def _plot(path: Path, history: CapacityHistory, job: JobModel, limits: planning.Limits) -> None:
    choice = planning.Choice(len(history.zones), OnDemand.FALLBACK)
    outcome = planning.replay(history, choice, job, limits, record=True)
    try:
        write_atomically(path, draw(history, outcome.ticks, job.machines))
    except OSError as error:
        raise EverstepError(
            f"--plot {path} cannot be written: {error.strerror}",
            "Name a file in a folder that you may write to.",
        ) from None
    say(f"The picture is in {path}.")
