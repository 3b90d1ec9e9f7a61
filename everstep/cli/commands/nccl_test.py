"""`everstep nccl-test`: bandwidth between the nodes of a stack, and whether EFA carries it."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.commands.options import (
    DEFAULT_STACK,
    AsJson,
    OnTwin,
    Stack,
    check_output,
    check_plot,
    refuse_options,
    write_output,
)
from everstep.cli.console import progress, results, say
from everstep.cli.engine.context import open_running_stack
from everstep.cli.interconnect import show
from everstep.cli.interconnect.in_cluster import ClusterRun
from everstep.cli.interconnect.local import run_locally
from everstep.cli.interconnect.manifests import ClusterTest
from everstep.errors import EverstepError
from everstep.interconnect.collectives import COLLECTIVES, MAX_BYTES, MIN_BYTES
from everstep.interconnect.results import read

DEFAULT_WAIT_SECONDS, DEFAULT_TIMEOUT_SECONDS = 600, 3600
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def nccl_test(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    nodes: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Number of nodes to test; by default the job's number of workers.",
        ),
    ] = 0,
    efa: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=32,
            metavar="N",
            help="EFA adapters of each node, such as 4, 1 or 0; by default as many as a worker has.",
        ),
    ] = None,
    local: Annotated[
        int, typer.Option(min=0, metavar="N", help="Test N processes of this machine instead.")
    ] = 0,
    collective: Annotated[
        list[str], typer.Option(help=f"One of {', '.join(COLLECTIVES)}; repeatable. Default: all.")
    ] = [],  # noqa: B006  typer copies it
    min_size: Annotated[
        str, typer.Option(help="Smallest array, such as 8, 64K or 1M (1 MiB).")
    ] = "8",
    max_size: Annotated[
        str, typer.Option(help="Largest array, up to 4G (4 GiB); memory may limit it.")
    ] = "4G",
    iterations: Annotated[
        int, typer.Option(min=1, help="Maximum number of timed operations of each size.")
    ] = 20,
    backend: Annotated[
        str, typer.Option(help="nccl or gloo; auto: nccl where there are GPUs.")
    ] = "auto",
    wait: Annotated[
        int, typer.Option(min=1, metavar="SECONDS", help="Time for pods to start.")
    ] = DEFAULT_WAIT_SECONDS,
    timeout: Annotated[
        int, typer.Option(min=10, metavar="SECONDS", help="Time for the whole test in a cluster.")
    ] = DEFAULT_TIMEOUT_SECONDS,
    plot: Annotated[Path | None, typer.Option(help="Write the bandwidths as SVG.")] = None,
    log: Annotated[Path | None, typer.Option(help="Write the log of all processes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure all-reduce, all-gather, reduce-scatter and send/receive between nodes, and report whether EFA is in use.

    The processes run as pods on the nodes of the stack's job, which must be free: stop the training first.
    """
    check_plot(plot)
    check_output("--log", log)
    arguments = _arguments(collective, min_size, max_size, iterations, backend)
    if local == 1 or nodes == 1:
        raise EverstepError("one process has no interconnect", "Use 2 or more.")
    if local:
        options = {
            "--stack": stack != DEFAULT_STACK,
            "--twin": twin,
            "--nodes": nodes > 0,
            "--efa": efa is not None,
            "--wait": wait != DEFAULT_WAIT_SECONDS,
            "--timeout": timeout != DEFAULT_TIMEOUT_SECONDS,
        }
        refuse_options(
            options, "cannot be used with --local, which uses no stack", "Omit one of them."
        )
        logs = run_locally(local, arguments, progress())
    else:
        context = open_running_stack(stack, twin=twin)
        run = ClusterRun(context.connect(), context.job)
        test = ClusterTest(nodes or run.default_nodes(), efa, arguments, timeout)
        logs = run.run(test, wait, progress())
    if log:
        write_output("--log", log, "\n".join(logs))
    measurements = read(logs)
    if plot:
        write_output("--plot", plot, show.chart(measurements).svg())
        say(f"   wrote {plot}")
    if as_json:
        results.print(json.dumps(measurements.as_value(), indent=2), markup=False)
    else:
        show.show(measurements)
    if not measurements.is_complete:
        raise EverstepError("the test ended before its last size", "Start it again.")
    if measurements.wrong_results:
        raise EverstepError(
            f"{measurements.wrong_results} collective results were wrong",
            "The network or a device corrupts data.",
        )


def _arguments(
    collectives: list[str], min_size: str, max_size: str, iterations: int, backend: str
) -> list[str]:
    """Return the checked arguments of the benchmark.

    Raises:
        EverstepError: a collective or the backend is unknown, a size is not valid, or the smallest size exceeds the
            largest.
    """
    _check_choice("--backend", backend, ("auto", "nccl", "gloo"))
    for name in collectives:
        _check_choice("--collective", name, COLLECTIVES)
    smallest, largest = _size("--min-size", min_size), _size("--max-size", max_size)
    if smallest > largest:
        raise EverstepError(
            f"--min-size {min_size} is larger than --max-size {max_size}", "Swap them."
        )
    return [
        *("--backend", backend),
        *("--collectives", *(collectives or COLLECTIVES)),
        *("--min-bytes", str(smallest)),
        *("--max-bytes", str(largest)),
        *("--iterations", str(iterations)),
    ]


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise EverstepError(f"{option} is {value!r}", f"Choose one of {', '.join(choices)}.")


def _size(option: str, text: str) -> int:
    """Return a size in bytes."""
    match = re.fullmatch(r"(\d{1,12})([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = int(match[1]) * UNITS[match[2].upper()] if match else 0
    if not MIN_BYTES <= size <= MAX_BYTES:
        raise EverstepError(
            f"{option} {text!r} is not a size from {MIN_BYTES} B to 4 GiB",
            "Write bytes, or a number with K, M or G: 8, 64K, 1M, 4G.",
        )
    return size
