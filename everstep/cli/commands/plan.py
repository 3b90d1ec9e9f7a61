"""`everstep plan`: expected duration, cost and goodput of a job, before anything is bought."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everstep.capacity import plan as planning
from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import JobModel
from everstep.capacity.on_demand import OnDemand
from everstep.capacity.picture import draw
from everstep.capacity.traces import read_traces
from everstep.catalog.units import HOUR_SECONDS
from everstep.cli import plan_inputs, plan_limits, plan_speeds, plan_table
from everstep.cli.commands.options import DEFAULT_STACK, AsJson, Stack, check_plot, write_output
from everstep.cli.console import progress, results, say, warn
from everstep.cli.engine.context import open_stack
from everstep.cli.live_prices import LivePrices, live_prices
from everstep.progress import Step

if TYPE_CHECKING:
    from components.config import StackConfig


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
            help="Training of the whole job in machine-hours. By default, 12 hours of all machines, whatever the job.",
        ),
    ] = None,
    images_per_second: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Measured rate of one machine, from which the work follows: epochs times samples.",
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Training samples of an epoch, if the data set is your own."),
    ] = None,
    speed: Annotated[
        list[str],
        typer.Option(
            metavar="TYPE=FACTOR",
            help="Speed of a machine type relative to the machine of --work; 1 by default. Repeat it for each type.",
        ),
    ] = [],  # noqa: B006  typer copies it
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
    show_all: Annotated[
        bool, typer.Option("--all", help="Show each combination of zones, type and policy.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate duration, cost and goodput for each choice of zones, types and on-demand machines; buy nothing.

    Replays capacity histories whose outages follow published spot traces, or traces of your own.
    """
    check_plot(plot)
    config = open_stack(stack).config
    current_prices = live_prices(config) if live else None
    stack_work = plan_inputs.work_of(config, work, images_per_second, samples)
    inputs = _Inputs(config, stack, stack_work.machine_hours, current_prices)
    speeds = plan_speeds.read(speed, plan_inputs.machine_types(config))
    zones = inputs.zones()
    jobs = {"": inputs.job()} | {name: inputs.job(name, factor) for name, factor in speeds.items()}
    job = jobs[""]
    limits = plan_limits.limits_of(config.job, deadline, budget)
    warnings = plan_inputs.ceiling_warnings(inputs.priced_config)
    for warning in warnings:
        warn(f"{warning}.")
    planning.check({name: jobs[name] for name in planning.compared(tuple(speeds))}, limits)
    source = plan_table.HistorySource(
        tuple(map(str, trace)), histories, seed, planning.horizon_seconds(job, limits)
    )
    trace_history = read_traces(trace) if trace else None
    with progress().step(f"Replaying {histories} capacity histories") as step:
        market = _histories(trace_history, zones, job.machines, source)
        names = market[0].zones
        variants = {
            name: _variant(typed_job, inputs.zones(name), market)
            for name, typed_job in jobs.items()
        }
        options = [
            list(planning.choices(len(names), tuple(speeds),
                                  has_deadline=limits.deadline_seconds is not None, everything=everything))
            for everything in (show_all or as_json, True)
        ]  # fmt: skip
        rows = _rows(options[0], variants, limits, step)
    if plot:
        _plot(plot, variants[""], limits)
    job = variants[""].job
    plan_to_show = plan_table.PlanTable(
        stack,
        job,
        limits,
        names,
        source,
        tuple(rows),
        kinds=tuple(plan_inputs.kinds_in(zones, names)),
        work_origin=stack_work.origin,
        price_source=current_prices.source if current_prices else "",
        foreign_zones=plan_inputs.foreign_zones(zones, names),
        unplanned_zones=plan_inputs.unplanned_zones(zones, names),
        warnings=warnings,
        types=tuple(
            plan_table.MachineType(
                name,
                variants[name].job.prices.spot,
                variants[name].job.prices.on_demand,
                factor,
                tuple(plan_inputs.kinds_in(inputs.zones(name), names)),
                variants[name].job.max_on_demand,
            )
            for name, factor in speeds.items()
        ),
        more=len(options[0]) < len(options[1]),
    )
    if as_json:
        results.print(json.dumps(plan_table.as_json(plan_to_show), indent=2), markup=False)
    else:
        plan_table.show(plan_to_show)


@dataclass(frozen=True)
class _Inputs:
    """A stack and the prices with which it is planned."""

    config: "StackConfig"
    stack: str
    work_hours: float
    current_prices: LivePrices | None

    @property
    def priced_config(self) -> "StackConfig":
        """The configuration with current prices, the highest of all zones."""
        return self.current_prices.config(self.config) if self.current_prices else self.config

    def zones(self, machine_type: str = "") -> tuple[plan_inputs.PlannedZone, ...]:
        """Return the zones of a machine type, or of all."""
        zones = plan_inputs.zones(self.config, machine_type)
        if not self.current_prices:
            return zones
        return tuple(
            plan_inputs.zone_with_prices(
                self.current_prices.config(self.config, zone.name), zone, machine_type
            )
            for zone in zones
        )

    def job(self, machine_type: str = "", speed: float = 1.0) -> JobModel:
        """Return the job on machines of a type with this relative speed, or of all types."""
        job = plan_inputs.job_model(self.priced_config, self.stack, self.work_hours, machine_type)
        return replace(job, work=job.work / speed)


@dataclass(frozen=True)
class _Variant:
    """The job and the histories of one machine type, or of all."""

    job: JobModel
    histories: list[CapacityHistory]


def _variant(
    job: JobModel, zones: Sequence[plan_inputs.PlannedZone], market: list[CapacityHistory]
) -> _Variant:
    prices = plan_inputs.prices_in(job.prices, zones, market[0].zones)
    return _Variant(
        replace(job, prices=prices),
        [plan_inputs.machines_in(history, zones, job.machines) for history in market],
    )


def _histories(
    trace_history: CapacityHistory | None,
    zones: Sequence[plan_inputs.PlannedZone],
    machines: int,
    source: plan_table.HistorySource,
) -> list[CapacityHistory]:
    """Return the histories of the zones' spot markets."""
    if trace_history:
        return list(
            planning.histories_of(trace_history, source.histories, source.horizon_seconds, machines)
        )
    hours, names = source.horizon_seconds / HOUR_SECONDS, [zone.name for zone in zones]
    return list(planning.generated_histories(source.histories, source.seed, hours, machines, names))


def _rows(
    options: Sequence[planning.Choice],
    variants: Mapping[str, _Variant],
    limits: planning.JobLimits,
    step: Step,
) -> list[planning.PlanRow]:
    rows = []
    for number, choice in enumerate(options, start=1):
        step.note(f"choice {number} of {len(options)}")
        variant = variants[choice.machine_type]
        outcomes = [
            planning.replay(history, choice, variant.job, limits) for history in variant.histories
        ]
        rows.append(planning.summary(choice, outcomes, limits))
    return rows


def _plot(path: Path, variant: _Variant, limits: planning.JobLimits) -> None:
    history, job = variant.histories[0], variant.job
    choice = planning.Choice(len(history.zones), OnDemand.FALLBACK)
    outcome = planning.replay(history, choice, job, limits, record=True)
    write_output("--plot", path, draw(history, outcome.ticks, job.machines))
    say(f"The picture is in {path}.")
