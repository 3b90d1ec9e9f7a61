"""Kill a staging process at random points, start it again, and compare every file with its source.

    python -m tests.everstep.staging.kills --kills 50

The process kills itself with SIGKILL a random time after a random number of its reports. After each kill, a
file at the destination equals the source's or is absent.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from everstep.staging import copier, copying
from everstep.staging.copier import CopyProgress
from everstep.staging.sources.location import open_source
from everstep.staging.stage import Observer, Options, StagingPlan, stage
from tests.everstep.staging.trees import make_tree, missing_files, wrong_files

WORKERS = 4
MAX_DELAY_SECONDS = 0.05
FILES_PER_KILL = 40


class Outcome(NamedTuple):
    """Result of a series of kills.

    Attributes:
        kills: processes that were killed before they ended.
        wrong: files that differed from their source after a kill or at the end.
        missing: files that were missing at the end.
        most_complete: largest number of files that a run found complete.
    """

    kills: int
    wrong: list[str]
    missing: set[str]
    most_complete: int


class KillingObserver(Observer):
    """An observer that kills its process with SIGKILL some time after a number of reports."""

    def __init__(self, reports: int, delay: float) -> None:
        self._reports, self._delay = reports, delay

    def report_listing(self, files: int) -> None:
        self._report()

    def report_plan(self, plan: StagingPlan) -> None:
        print(plan.complete.files, flush=True)
        self._report()

    def report_progress(self, progress: CopyProgress) -> None:
        self._report()

    def _report(self) -> None:
        self._reports -= 1
        if self._reports == 0:
            threading.Timer(self._delay, os.kill, (os.getpid(), signal.SIGKILL)).start()


def stage_with_kill(source: str, destination: str, reports: str, delay: str) -> None:
    """Stage with small groups and frequent syncs, so that a kill can hit many states."""
    copier.GROUP_FILES, copier.GROUP_SECONDS = 3, 0.0
    copying.SYNC_BYTES = 2 * copying.CHUNK_BYTES
    observer = KillingObserver(int(reports), float(delay))
    stage(open_source(source), Path(destination), Options(workers=WORKERS), observer)


def kill_repeatedly(folder: Path, kills: int, seed: int) -> Outcome:
    """Stage a folder in processes that are killed, and finally in a process that reaches its end."""
    rng = random.Random(seed)
    source, destination = folder / "source", folder / "destination"
    make_tree(source, kills * FILES_PER_KILL, seed)
    (source / "large.bin").write_bytes(rng.randbytes(9 * copying.CHUNK_BYTES))
    wrong: list[str] = []
    most_complete = kill_count = 0
    while kill_count < kills:
        reports = rng.randint(1, FILES_PER_KILL // 4)
        finished, complete = run_once(
            source, destination, reports, rng.uniform(0, MAX_DELAY_SECONDS)
        )
        wrong += wrong_files(source, destination)
        most_complete, kill_count = max(most_complete, complete), kill_count + (not finished)
        if finished:  # nothing would be left to kill
            shutil.rmtree(destination)
    _, complete = run_once(source, destination, reports=0, delay=0)
    wrong += wrong_files(source, destination)
    return Outcome(
        kill_count, wrong, missing_files(source, destination), max(most_complete, complete)
    )


def run_once(source: Path, destination: Path, reports: int, delay: float) -> tuple[bool, int]:
    """Run a process that stages; return whether it reached its end, and how many files were complete."""
    command = [sys.executable, "-m", "tests.everstep.staging.kills", "--stage"]
    arguments = map(str, (source, destination, reports, delay))
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode in (0, -signal.SIGKILL), result.stderr
    return result.returncode == 0, int(result.stdout or 0)


def main() -> int:
    """Run the command; return 1 if a file is wrong or missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stage", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        stage_with_kill(*options.stage)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        outcome = kill_repeatedly(Path(folder), options.kills, options.seed)
    print(
        f"{outcome.kills} kills: {len(outcome.wrong)} wrong files, {len(outcome.missing)} missing; "
        f"one run found {outcome.most_complete} complete files"
    )
    return int(bool(outcome.wrong or outcome.missing))


if __name__ == "__main__":
    sys.exit(main())
