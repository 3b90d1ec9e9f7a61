"""`trainer.verify` on the folder of a run, in a separate process, as a user runs it."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run_verify(run: Path, seconds: float | None = None) -> "subprocess.CompletedProcess[str]":
    """Verify a run; return the result of the program.

    Args:
        run: folder of the run.
        seconds: time limit; None for none.

    Raises:
        subprocess.TimeoutExpired: the program did not end in time.
    """
    return subprocess.run(
        [sys.executable, "-m", "trainer.verify", str(run)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
