"""Scalars of a run, for programs that plot curves: TensorBoard, MLflow, Weights & Biases.

A scalar has the step of the training and the wall time of the journal. A repeated step counts once.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from everstep.cli.report.goodput import counted_steps
from everstep.cli.report.run_record import JournalEntry, RunRecord

PARAMETERS = ("job", "model", "dataset", "dataset_size", "epochs", "global_batch", "total_steps")
"""Settings of a run that its workers record when they start."""


@dataclass(frozen=True)
class Scalar:
    """One value of one curve.

    Attributes:
        at: Unix time in seconds.
        step: step of the training.
        tag: name of the curve; the part before a slash groups curves.
        value: the value.
    """

    at: float
    step: int
    tag: str
    value: float


def scalars(run: RunRecord) -> Iterator[Scalar]:
    """Yield the scalars of a run by time: each step and each evaluation once, even if they were repeated."""
    entries = {(entry.at, entry.number("step")): entry for entry in run.of_kind("step")}
    all_scalars = [
        scalar
        for step in counted_steps(run.steps)
        if (entry := entries.get((step.at, step.step)))
        for scalar in _step_scalars(entry)
    ]
    evaluations = {entry.number("step"): entry for entry in run.of_kind("evaluation")}
    all_scalars += [
        scalar for entry in evaluations.values() for scalar in _evaluation_scalars(entry)
    ]
    yield from sorted(all_scalars, key=lambda scalar: scalar.at)


def _step_scalars(entry: JournalEntry) -> Iterator[Scalar]:
    seconds, images = entry.measure("seconds"), entry.measure("images")
    values = {
        "training/loss": entry.measure("loss"),
        "training/learning_rate": entry.measure("learning_rate"),
        "training/samples_per_second": images / seconds if seconds and images else None,
        "group/world_size": entry.measure("world_size"),
        "group/generation": entry.measure("generation"),
    }
    return _known_scalars(entry, values)


def _evaluation_scalars(entry: JournalEntry) -> Iterator[Scalar]:
    names = ("accuracy", "loss")
    return _known_scalars(entry, {f"evaluation/{name}": entry.measure(name) for name in names})


def _known_scalars(entry: JournalEntry, values: dict[str, float | None]) -> Iterator[Scalar]:
    for tag, value in values.items():
        if value is not None:
            yield Scalar(entry.at, entry.number("step"), tag, value)


def run_name(run: RunRecord) -> str:
    """Return the name that identifies a run: its job and the start time of its first worker."""
    job = re.sub(r"[^A-Za-z0-9_.-]", "-", job_name(run))
    return f"{job[:64]}-{run.starts[0].at * 1000:.0f}"


def job_name(run: RunRecord) -> str:
    """Return the name of a run's job; `everstep` if it has none."""
    return str(parameters(run).get("job") or "everstep")


def parameters(run: RunRecord) -> Mapping[str, str | int]:
    """Return the settings of a run, as the newest worker recorded them."""
    values = run.newest_start.values if run.newest_start else {}
    return {name: values[name] for name in PARAMETERS if values.get(name) is not None}
