"""Measure memory and time of reading a run's journals by their number of steps: `python -m benchmarks.journals`.

Writes the journals of a run of many steps, reads them as `everstep follow` does, then measures polls, with one new
line for each poll: reading the line, folding older steps into blocks, and building the report.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from everstep.cli.report.readers import FolderReader
from everstep.cli.report.report import build

POLLS = 20
STEP_SECONDS = 0.2
CHANGE_STEPS = 20_000  # steps between two changes of the group
TIME_LINE_STEPS = 25  # steps between two lines with a worker's seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), options.steps)
    if options.json:
        print(json.dumps(results))
        return
    for name, value in results.items():
        print(f"{name:28} {value}")


def measure(run: Path, steps: int) -> dict[str, float]:
    """Return sizes in MB and CPU times in seconds."""
    journal = run / "journal" / "worker-0.jsonl"
    journal.parent.mkdir()
    write(journal, steps)
    memory_before, started_at = resident_megabytes(), time.process_time()
    reader = FolderReader(run, run / "events.jsonl")
    report = build(reader.read())
    first_seconds = time.process_time() - started_at
    assert report.steps == steps, report.steps
    poll_seconds = []
    for poll in range(1, POLLS + 1):
        with journal.open("a") as file:
            file.write(step_line(steps + poll))
        started_at = time.process_time()
        build(reader.read())
        poll_seconds.append(time.process_time() - started_at)
    return {
        "steps": steps,
        "journal_mb": round(journal.stat().st_size / 1e6, 1),
        "first_reading_seconds": round(first_seconds, 2),
        "memory_mb": round(resident_megabytes() - memory_before, 1),
        "poll_seconds_median": round(statistics.median(poll_seconds), 4),
        "poll_seconds_max": round(max(poll_seconds), 4),
    }


def write(path: Path, steps: int) -> None:
    """Write one worker's journal."""
    with path.open("w") as file:
        start = {"at": 0.0, "kind": "start", "worker": "worker-0", "node": "gpu-0"}
        file.write(json.dumps({**start, "generation": 1, "total_steps": steps}) + "\n")
        for step in range(1, steps + 1):
            file.write(step_line(step))
            if step % TIME_LINE_STEPS == 0:
                line = {"at": step * STEP_SECONDS, "kind": "seconds", "step": step}
                file.write(json.dumps({**line, "compute": step * STEP_SECONDS}) + "\n")


def step_line(step: int) -> str:
    """Return a step's line as rank 0 writes it."""
    line = {
        "at": step * STEP_SECONDS,
        "kind": "step",
        "step": step,
        "epoch": step // 1000 + 1,
        "seconds": STEP_SECONDS,
        "images": 1024,
        "loss": 1.23456,
        "learning_rate": 0.1,
        "world_size": 8,
        "generation": 1 + step // CHANGE_STEPS,
    }
    return json.dumps(line) + "\n"


def resident_megabytes() -> float:
    """Return this process's memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
