"""Interconnect test between processes of this machine, without a cluster."""

import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from everstep.catalog.plurals import amount
from everstep.cli.child_process import run_in_session
from everstep.cli.interconnect.manifests import PROGRAM, VARIABLES
from everstep.errors import EverstepError
from everstep.interconnect import results
from everstep.optional_packages import TORCH
from everstep.progress import Progress, Step

POLL_SECONDS = 0.2
LOG_LINES = 12
"""Number of last lines of the log that an error contains, if no line begins with `error:`."""


def run_locally(ranks: int, arguments: Sequence[str], progress: Progress) -> list[str]:
    """Run the test with processes that are connected by the loopback interface; return their log.

    Args:
        ranks: number of processes.
        arguments: arguments of the benchmark.
        progress: receiver of the progress.

    Raises:
        EverstepError: PyTorch is not installed, or a process failed.
    """
    TORCH.require(
        "torch", "everstep nccl-test --local measures with PyTorch, which is not installed"
    )
    command = [sys.executable, "-m", PROGRAM, "--nodes=1", f"--processes={ranks}", "--node-rank=0"]
    command += ["--address=127.0.0.1", f"--port={free_port()}", *arguments]
    with tempfile.TemporaryDirectory(prefix="everstep-nccl-test-") as folder:
        log = Path(folder) / "log"
        with (
            progress.step(f"Measuring between {amount(ranks, 'process', 'processes')}") as step,
            run_in_session(command, log, {**VARIABLES, "OMP_NUM_THREADS": "1"}) as process,
        ):
            while process.poll() is None:
                note_newest(step, log.read_text(errors="replace"))
                time.sleep(POLL_SECONDS)
        text = log.read_text(errors="replace")
    if process.returncode:
        lines = [line for line in text.splitlines() if line.startswith("error:")]
        details = "\n".join(lines or text.splitlines()[-LOG_LINES:])
        raise EverstepError(
            f"a process of the test ended with exit code {process.returncode}:\n{details}",
            "Correct the cause that the log names, then run the test again.",
        )
    return [text]


def free_port() -> int:
    """Return a free TCP port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def note_newest(step: Step, log: str) -> None:
    """Show the newest measurement of a log."""
    measurements = list(results.measurements(results.entries(log.splitlines())))
    if measurements:
        step.note(f"{measurements[-1].collective} {measurements[-1].bytes:,} B")
