"""`everstep plan`: expected duration, cost and goodput of a job, before anything is bought."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from everstep.capacity import plan as planning
from everstep.capacity.history import HOUR_SECONDS, CapacityHistory
from everstep.capacity.job import JobModel
from everstep.capacity.traces import read_traces
from everstep.cli import plan_inputs, plan_table
from everstep.cli.commands.options import DEFAULT_STACK, AsJson, Stack
from everstep.cli.console import progress, results
from everstep.cli.engine.context import open_stack
from everstep.errors import EverstepError

UNIT_SECONDS = {"m": 60.0, "h": HOUR_SECONDS, "d": 24 * HOUR_SECONDS}
DEFAULT_HOURS = 12.0  # of all machines


def plan(
    *,
    stack: Stack = DEFAULT_STACK,
    deadline: Annotated[
        str, typer.Option(help="Time by which the job has to be complete, such as 24h.")
    ] = "",
    budget: Annotated[
        float | None, typer.Option(metavar="USD", help="Suspend the job before it costs more.")
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
        typer.Option(help="Replay this capacity trace instead of generated ones; one file a zone."),
    ] = [],  # noqa: B006  typer copies it
    histories: Annotated[int, typer.Option(min=1, max=1000, help="Histories to replay.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same plan.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Estimate duration, cost and goodput for each choice of zones and on-demand machines; buy nothing.

    Replays capacity histories whose outages follow published spot traces, or traces of your own.
    """
    config = open_stack(stack).config
    machines = plan_inputs.wanted_machines(config)
    job = JobModel(
        work=_work_seconds(work, machines),
        machines=machines,
        min_machines=min(config.job.min_replicas, machines),
        prices=plan_inputs.prices(config, stack),
    )
    deadline_seconds = duration_seconds("--deadline", deadline) if deadline else None
    planning.check_deadline(job, deadline_seconds)
    planning.check_budget(job, budget)
    horizon = planning.horizon_seconds(job, deadline_seconds)
    found: list[CapacityHistory]
    rows: list[planning.PlanRow] = []
    with progress().step(f"Replaying {histories} capacity histories") as step:
        if trace:
            found = list(planning.histories_of(read_traces(trace), histories, horizon, machines))
        else:
            zones = plan_inputs.zone_names(config)
            hours = horizon / HOUR_SECONDS
            found = list(planning.generated_histories(histories, seed, hours, machines, zones))
        options = list(planning.choices(len(found[0].zones)))
        for number, choice in enumerate(options):
            step.note(f"choice {number + 1} of {len(options)}")
            outcomes = [
                planning.replay(one, choice, job, deadline_seconds, budget) for one in found
            ]
            rows.append(planning.summary(choice, outcomes, deadline_seconds))
    source = plan_table.Source(tuple(str(path) for path in trace), histories, seed, horizon)
    shown = plan_table.Plan(
        stack, job, deadline_seconds, budget, found[0].zones, source, tuple(rows)
    )
    if as_json:
        results.print(json.dumps(plan_table.as_json(shown), indent=2), markup=False)
    else:
        plan_table.show(shown)


def duration_seconds(option: str, text: str) -> float:
    """Return a duration such as 24h in seconds.

    Raises:
        EverstepError: it is not a positive number with a unit.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([mhd])", text.strip())
    seconds = float(match[1]) * UNIT_SECONDS[match[2]] if match else 0.0
    if not seconds:
        raise EverstepError(
            f"{option} {text!r} is not a duration",
            f"Use a positive number and a unit, m, h or d: {option} 24h",
        )
    return seconds


def _work_seconds(hours: float | None, machines: int) -> float:
    if hours is None:
        return DEFAULT_HOURS * machines * HOUR_SECONDS
    if not 0 < hours < 1e7:
        raise EverstepError(
            f"--work {hours:g} is outside of what can be planned",
            "Use the machine-hours of the whole job: more than 0, less than ten million.",
        )
    return hours * HOUR_SECONDS
