"""A scaling study as a table, as JSON, and as a chart with the ideal line."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from everstep.cli.console import results as console
from everstep.cli.line_chart import Axis, Curve, LineChart
from everstep.cli.report.page.chart import value_ticks
from everstep.cli.scaling.study import PRESETS, SizeResult, efficiencies


def show(model: str, sizes: Sequence[SizeResult], shared_cpus: int | None) -> None:
    """Print the table and its notes."""
    for line in report_lines(model, sizes, shared_cpus):
        console.print(Text(line))


def report_lines(model: str, sizes: Sequence[SizeResult], shared_cpus: int | None) -> Iterator[str]:
    """Yield the lines of the report.

    Args:
        model: name of the model.
        sizes: measured sizes, ascending.
        shared_cpus: CPUs that all processes share; None if each process has its own machine.
    """
    columns = "".join(
        f"{head:>{width}}"
        for head, width in (
            ("processes", 11),
            ("epoch, s", 12),
            ("images/s", 11),
            ("efficiency", 12),
            ("all-reduce", 12),
            ("CPU ms/image", 14),
        )
    )
    yield f"{model}\n"
    yield f"{'replicas':<10}{columns}"
    yield "-" * (10 + len(columns))
    for size, efficiency in zip(sizes, efficiencies(sizes), strict=True):
        mark = "*" if size.is_extrapolated else " "
        yield (
            f"{size.replicas:<10}{size.processes:>11}{size.epoch_seconds:>11,.1f}{mark}"
            f"{size.images_per_second:>11,.1f}{efficiency:>12.1%}"
            f"{_text(size.all_reduce_share, '.1%'):>12}{_text(size.cpu_milliseconds, '.2f'):>14}"
        )
    yield from _notes(model, sizes, shared_cpus)


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _notes(model: str, sizes: Sequence[SizeResult], shared_cpus: int | None) -> Iterator[str]:
    yield ""
    if any(size.is_extrapolated for size in sizes):
        yield "* Extrapolated from the images per second of the measured steps, without the first two."
    yield "Efficiency: images/s of a replica relative to the smallest size. All-reduce: share of a step's time,"
    yield "including the wait for slower processes."
    if shared_cpus is not None:
        yield (
            f"All processes share {shared_cpus} CPUs, so images/s cannot scale beyond them: compare the "
            "CPU time of an image, which separate machines would spend in parallel, and the all-reduce."
        )
    if model in PRESETS:
        yield f"Published study: {PRESETS[model].machine}, one epoch of ImageNet."


def as_value(
    settings: dict[str, Any], sizes: Sequence[SizeResult], shared_cpus: int | None
) -> dict[str, Any]:
    """Return the study as plain values for JSON."""
    return {
        "settings": settings,
        "shared_processors": shared_cpus,
        "sizes": [
            {
                **size.as_value(),
                "images_per_second": size.images_per_second,
                "epoch_seconds": size.epoch_seconds,
                "extrapolated": size.is_extrapolated,
                "efficiency": efficiency,
                "exchange_share": size.all_reduce_share,
                "processor_milliseconds_per_image": size.cpu_milliseconds,
            }
            for size, efficiency in zip(sizes, efficiencies(sizes), strict=True)
        ],
    }


def chart(model: str, sizes: Sequence[SizeResult], shared_cpus: int | None) -> LineChart:
    """Return a chart of the time of an epoch by the number of processes, with the ideal line."""
    first = sizes[0]
    points = [(size.processes, size.epoch_seconds) for size in sizes]
    ideal = [
        (float(n), first.epoch_seconds * first.processes / n)
        for n in range(first.processes, max(sizes[-1].processes, first.processes + 1) + 1)
    ]
    highest = max(seconds for _, seconds in points)
    ticks = value_ticks(0.0, highest)
    cpus = f", {shared_cpus} shared CPUs" if shared_cpus is not None else ""
    return LineChart(
        f"{model}: time of an epoch{cpus}",
        Axis("processes", [(n, f"{n:g}") for n, _ in _x_ticks(ideal)]),
        Axis("seconds", [(value, f"{value:g}") for value in ticks]),
        [Curve("measured", points), Curve("ideal", ideal, reference=True)],
    )


def _x_ticks(ideal: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    step = max(1, len(ideal) // 8)
    ticks = list(ideal[::step])
    return ticks if ticks[-1] == ideal[-1] else [*ticks, ideal[-1]]
