"""Measure the staging of data: plans of many small files, copies of large files, random kills.

    python3 -m benchmarks.staging plan --files 1000000        # at most 60 s and 500 MB
    python3 -m benchmarks.staging copy --gib 4 --rounds 5     # at least 80 % of the rate of `cp`
    python3 -m benchmarks.staging kills --kills 50            # 0 wrong files
    python3 -m benchmarks.staging plan --json

`plan` lists generated names, as a bucket would, and plans them twice: for an empty destination, and with the records
of a complete destination. Each pass is a separate process; its memory is the peak of its resident set. Requests to a
store are not included: S3 lists 1,000 objects per request.

`copy` compares `everstep data stage` of a folder with `cp` followed by `sync -f`, alternately, on the disk of --folder.
The files are written before the measurement, and are in the page cache if memory suffices; staging also computes their
SHA-256.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from everstep.staging import spool
from everstep.staging.content import Content
from everstep.staging.copying import CHUNK_BYTES
from everstep.staging.entry import Entry, Record
from everstep.staging.journal import locked_state
from everstep.staging.sources.folder import FolderSource
from everstep.staging.stage import Observer, Options, plan, stage
from tests.everstep.staging.kills import kill_repeatedly

CLASSES = 1000
FILE_BYTES = 1000  # small, because a plan that the disk cannot hold is refused
LARGE_FILES = 4


class GeneratedSource:
    """A source with a number of small files, which cannot be read."""

    name = "generated"

    def __init__(self, files: int) -> None:
        self._files = files

    def entries(self) -> Iterator[Entry]:
        """Yield the files in the order of their keys, as S3 does."""
        files_per_class = -(-self._files // CLASSES)
        for number in range(self._files):
            name = f"train/n{number // files_per_class:08}/n{number // files_per_class:08}_{number:08}.JPEG"
            etag = f"{number:032x}"
            yield Entry(name, FILE_BYTES, f'"{etag}"', f"imagenet/{name}", etag)

    def open(self, entry: Entry, offset: int) -> AbstractContextManager[Content]:
        """Raise NotImplementedError: generated files have no content."""
        raise NotImplementedError(f"{entry.name} at {offset}")


def main() -> int:
    """Run the selected measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measurement", choices=["plan", "copy", "kills"])
    parser.add_argument("--files", type=int, default=1_000_000, help="files to plan")
    parser.add_argument("--gib", type=float, default=4.0, help="size of the copy")
    parser.add_argument("--rounds", type=int, default=5, help="copies of each kind")
    parser.add_argument("--kills", type=int, default=50, help="processes to kill")
    parser.add_argument("--seed", type=int, default=1, help="seed of the kills")
    parser.add_argument("--folder", type=Path, help="folder on the disk to measure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--pass", dest="one_pass", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_pass:
        print(json.dumps(plan_once(Path(options.one_pass), options.files)))
        return 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure = {"plan": measure_plans, "copy": measure_copies, "kills": measure_kills}
        result = measure[options.measurement](Path(folder), options)
    print(
        json.dumps(result)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in result.items())
    )
    return int(bool(result.get("wrong") or result.get("missing")))


def measure_plans(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Return time and peak memory of a plan for an empty destination, and with all records."""
    first_figures = _pass(folder, options.files)
    destination = folder / "data"
    with locked_state(destination) as state:
        entries = spool.read(state.listing, Entry)
        spool.write(state.records, (Record(*entry[:3], "0" * 64) for entry in entries))
    record_figures = _pass(folder, options.files)
    return {
        "files": options.files,
        "empty destination": first_figures,
        "with records": record_figures,
    }


def _pass(folder: Path, files: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.staging", "plan", "--files", str(files)]
    result = subprocess.run(
        [*command, "--pass", str(folder / "data")], check=True, capture_output=True, text=True
    )
    figures: dict[str, float] = json.loads(result.stdout)
    return figures


def plan_once(destination: Path, files: int) -> dict[str, float]:
    """Plan in this process; return seconds, CPU seconds and the peak of its memory in MB."""
    started_at = time.monotonic()
    staging_plan = plan(GeneratedSource(files), destination, Options(), Observer())
    assert staging_plan.to_copy.files == files
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": round(time.monotonic() - started_at, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(usage.ru_maxrss * 1024 / 1e6, 1),
    }


def measure_copies(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Return the rates of `cp` and of staging in MB/s, and the ratio of their medians."""
    source = folder / "source"
    source.mkdir()
    size = int(options.gib * (1 << 30) / LARGE_FILES)
    for number in range(LARGE_FILES):
        _write(source / f"{number}.bin", size)
    rates: dict[str, list[float]] = {"cp": [], "stage": []}
    for number in range(options.rounds):
        for kind, values in rates.items():
            target = folder / f"{kind}-{number}"
            started_at = time.monotonic()
            _copy(kind, source, target)
            values.append(LARGE_FILES * size / 1e6 / (time.monotonic() - started_at))
            subprocess.run(["rm", "-r", target], check=True)
    median = {kind: statistics.median(values) for kind, values in rates.items()}
    return {
        "MB/s": {kind: [round(value) for value in values] for kind, values in rates.items()},
        "ratio_to_cp": round(median["stage"] / median["cp"], 3),
    }


def _write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for start in range(0, size, CHUNK_BYTES):
            file.write(os.urandom(min(CHUNK_BYTES, size - start)))
        os.fsync(file.fileno())


def _copy(kind: str, source: Path, target: Path) -> None:
    if kind == "cp":
        subprocess.run(["cp", "-r", source, target], check=True)
        subprocess.run(["sync", "-f", target], check=True)
    else:
        stage(FolderSource(source), target, Options(), Observer())


def measure_kills(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Return the number of wrong and missing files after kills at random points."""
    outcome = kill_repeatedly(folder, options.kills, options.seed)
    return {
        "kills": outcome.kills,
        "wrong": len(outcome.wrong),
        "missing": len(outcome.missing),
        "kept": outcome.most_complete,
    }


if __name__ == "__main__":
    sys.exit(main())
