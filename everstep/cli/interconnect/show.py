"""Tables and a chart of an interconnect test's results."""

import math
from collections.abc import Iterator, Sequence

from rich.text import Text

from everstep.catalog.plurals import amount
from everstep.cli.console import results as console
from everstep.cli.line_chart import Axis, Curve, LineChart
from everstep.errors import EverstepError
from everstep.interconnect.collectives import ALL_REDUCE, COLLECTIVES, SEND_RECV
from everstep.interconnect.results import PUBLISHED_BANDWIDTHS, PUBLISHED_BYTES, Results

BYTE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def show(results: Results) -> None:
    """Print tables, the comparison and the verdict."""
    for line in report_lines(results):
        console.print(Text(line))


def report_lines(results: Results) -> Iterator[str]:
    """Yield the lines of the report."""
    setup = results.setup
    version = f"NCCL {setup['nccl']}, " if setup.get("nccl") else ""
    processes = amount(results.ranks, "process", "processes")
    yield f"{processes}, {setup['backend']} on {setup['device']}, {version}torch {setup['torch']}"
    yield ""
    yield from _table(results)
    yield ""
    yield from _comparison(results)
    yield ""
    yield f"EFA in use: {'yes' if results.verdict.uses_efa else 'no'}, {results.verdict.transport}"
    yield f"  {results.verdict.reason}"
    yield from _notes(results)


def size_text(size: float) -> str:
    """Return a size in bytes with a binary unit."""
    for unit, name in BYTE_UNITS:
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size:g} B"


def _table(results: Results) -> Iterator[str]:
    headers = ("size", "count", "time, us", "algbw, GB/s", "busbw, GB/s", "wrong")
    yield _row("collective", headers)
    yield "-" * len(_row("", headers))
    for measurement in results.measurements:
        cells = (
            size_text(measurement.bytes),
            str(measurement.iterations),
            f"{measurement.seconds * 1e6:,.1f}",
            f"{measurement.algorithm_bandwidth:.4g}",
            f"{measurement.bus_bandwidth(results.ranks):.4g}",
            str(measurement.wrong),
        )
        yield _row(measurement.collective, cells)


def _row(name: str, cells: Sequence[str]) -> str:
    widths = (12, 7, 14, 14, 14, 7)
    return name.ljust(16) + "".join(map(str.rjust, cells, widths))


def _comparison(results: Results) -> Iterator[str]:
    yield f"{'bus bandwidth, GB/s':<44}{'average':>10}{'maximum':>10}"
    for collective in COLLECTIVES:
        if summary := results.summary(collective):
            yield f"{'this test, ' + collective:<44}{summary.average:>10.2f}{summary.maximum:>10.2f}"
    largest = max(
        (measurement.bytes for measurement in results.measurements_of(ALL_REDUCE)), default=0
    )
    if largest > PUBLISHED_BYTES and (summary := results.summary(ALL_REDUCE, PUBLISHED_BYTES)):
        name = "this test, all_reduce up to 1 GiB"
        yield f"{name:<44}{summary.average:>10.2f}{summary.maximum:>10.2f}"
    for published in PUBLISHED_BANDWIDTHS:
        adapters = amount(published.adapters, "EFA adapter")
        name = f"published, {adapters} ({published.provider})"
        yield f"{name:<44}{published.average:>10.2f}{published.maximum:>10.2f}"


def _notes(results: Results) -> Iterator[str]:
    yield ""
    if rate := results.link_rate:
        yield f"Rate of a link in each direction: {rate:.4g} GB/s, measured with the largest array of {SEND_RECV}."
    yield "The average is over all sizes, so it depends on them. Published: all-reduce on p4d.24xlarge, 8 B to 1 GiB."
    if results.is_limited_by_memory:
        yield f"Sizes end at {size_text(results.setup['largest'])}: the memory of a process is too small for more."
    yield from _unmeasured(results)
    if results.wrong_results:
        yield f"{results.wrong_results} results were wrong: the network or the devices corrupt data."


def _unmeasured(results: Results) -> Iterator[str]:
    for collective, reason in results.unsupported.items():
        yield f"{collective} was not measured: {reason}"


def chart(results: Results) -> LineChart:
    """Return a chart of the bus bandwidth by size, next to the published maxima.

    Raises:
        EverstepError: no size was measured.
    """
    if not results.measurements:
        raise EverstepError(
            "; ".join(("no size was measured, so there is no chart", *_unmeasured(results))),
            "Choose a collective that the backend supports.",
        )
    sizes = [measurement.bytes for measurement in results.measurements]
    curves = [
        Curve(
            name,
            [
                (measurement.bytes, measurement.bus_bandwidth(results.ranks))
                for measurement in results.measurements_of(name)
            ],
        )
        for name in COLLECTIVES
        if results.measurements_of(name)
    ]
    span = (min(sizes), max(sizes))
    references = [
        Curve(
            f"{published.adapters} EFA: {published.maximum:g}",
            [(x, published.maximum) for x in span],
            reference=True,
        )
        for published in PUBLISHED_BANDWIDTHS
    ]
    transport = results.verdict.transport
    return LineChart(
        f"Bus bandwidth of {results.ranks} processes over {transport}, and published maxima",
        Axis("size of the array", _size_ticks(*span), logarithmic=True),
        Axis("GB/s", _bandwidth_ticks(curves), logarithmic=True),
        [*curves, *references],
    )


def _size_ticks(low: int, high: int) -> list[tuple[float, str]]:
    """Return ticks from the smallest to the largest size, by factors of 16."""
    top = max(high, 2 * low)
    between = [low * 16**power for power in range(1, 8) if low * 16**power * 4 <= top]
    return [(size, size_text(size)) for size in (low, *between, top)]


def _bandwidth_ticks(curves: list[Curve]) -> list[tuple[float, str]]:
    """Return powers of ten around all measured and published bandwidths."""
    bandwidths = [y for curve in curves for _, y in curve.points]
    lowest = math.floor(math.log10(min(*bandwidths, 1.0)))
    highest = math.ceil(math.log10(max(*bandwidths, 100.0)))
    return [(10.0**power, f"{10.0**power:g}") for power in range(lowest, highest + 1)]
