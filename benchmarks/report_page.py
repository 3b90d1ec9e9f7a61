"""Measure the time to build and to load the report's page of a large run: `python -m benchmarks.report_page`.

The run is synthetic: 8 nodes and 10,000 machine events in ten days, each followed by a change of the group,
more than in any published spot market. The browser is Debian's `chromium`.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

NODES, EVENTS = 8, 10_000
SECONDS_BETWEEN_EVENTS = 86.4
STEP_SECONDS = 2.0
LOADS = 5
MILESTONES = {
    "loaded and laid out": """
        new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))
    """,
    "content loaded": "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd",
    "first paint": "performance.getEntriesByName('first-contentful-paint')[0].startTime",
}
"""Expressions for milliseconds since the navigation began; the first expression waits for a frame after loading."""

START = 1_790_000_000.0


def main() -> None:
    """Print the seconds of each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the page to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder), options.nodes, options.events)
        page = options.keep or Path(folder) / "report.html"
        for name, seconds in build(Path(folder), page).items():
            print(f"{name:24}{seconds:8.2f} s")
        print(f"{'size':24}{page.stat().st_size / 1e6:8.2f} MB")
        for name, seconds in load(page).items():
            print(f"{name:24}{seconds:8.2f} s")


def write_run(folder: Path, nodes: int, events: int) -> None:
    """Write the journals and events of a run whose nodes vanish and return in a random order."""
    (folder / "journal").mkdir()
    lines: dict[str, list[str]] = {f"node-{number}": [] for number in range(nodes)}
    event_lines = []
    for journal, line in history(nodes, events):
        if journal:
            lines[journal].append(json.dumps(line))
        else:
            event_lines.append(json.dumps(line))
    for name, worker_lines in lines.items():
        path = folder / "journal" / f"worker-{name}.jsonl"
        path.write_text("".join(line + "\n" for line in worker_lines))
    (folder / "events.jsonl").write_text("".join(line + "\n" for line in event_lines))


def history(nodes: int, events: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield journal lines with their node, and machine events with an empty node."""
    rng = random.Random(0)  # noqa: S311  the same run each time
    present_nodes, step, now = [f"node-{number}" for number in range(nodes)], 0, START
    absent_nodes: list[str] = []
    total = int(1.2 * events * SECONDS_BETWEEN_EVENTS / STEP_SECONDS)
    for generation in range(events + 1):
        for rank, node in enumerate(present_nodes):
            group = {"generation": generation, "world_size": len(present_nodes), "rank": rank}
            if generation == 0 or (absent_nodes and rank == len(present_nodes) - 1):
                start = {"at": now, "kind": "start", "worker": f"worker-{node}", "node": node}
                yield node, {**start, "job": "large", "total_steps": total, "mode": "live", **group}
            yield node, {"at": now, "kind": "generation", "step": step, **group}
        event_time = now + SECONDS_BETWEEN_EVENTS * rng.uniform(0.5, 1.5)
        while now < event_time:
            now, step = now + STEP_SECONDS, step + 1
            line = {"at": now, "kind": "step", "step": step, "seconds": STEP_SECONDS, "images": 512}
            loss = {"loss": 0.3 + 4.0 * 0.999998**step + rng.uniform(0, 0.1)}
            group = {"generation": generation, "world_size": len(present_nodes)}
            yield present_nodes[0], {**line, **loss, **group}
        returns = bool(absent_nodes) and (len(present_nodes) < 3 or rng.random() < 0.5)
        source, target = (absent_nodes, present_nodes) if returns else (present_nodes, absent_nodes)
        node = source.pop(rng.randrange(len(source)))
        target.append(node)
        kind = "return" if returns else "vanish"
        yield "", {"at": now, "kind": kind, "node": node}
        now += rng.uniform(1.0, 6.0)


def build(folder: Path, page: Path) -> dict[str, float]:
    """Write the page; return the seconds of each part."""
    from everstep.cli.report.page.model import build_page
    from everstep.cli.report.page.render import render
    from everstep.cli.report.readers import FolderReader

    times = {}
    started_at = time.perf_counter()
    run = FolderReader(folder, folder / "events.jsonl").read()
    times["read the journals"], started_at = time.perf_counter() - started_at, time.perf_counter()
    page_model = build_page(run, run.entries[-1].at + 1)
    times["build the page"], started_at = time.perf_counter() - started_at, time.perf_counter()
    page.write_text(render(page_model))
    times["write the page"] = time.perf_counter() - started_at
    return times


def load(page: Path) -> dict[str, float]:
    """Load the page in the browser; return the medians of the seconds until each milestone and of the CPU time."""
    from tests.chromium import browser

    timings: dict[str, list[float]] = {}
    with browser() as tab:
        tab.call("Performance.enable", timeDomain="threadTicks")  # CPU time, not wall-clock time
        for _ in range(LOADS):
            tab.open(page)
            for name, expression in MILESTONES.items():
                timings.setdefault(name, []).append(tab.run(expression) / 1000)
            metrics = tab.call("Performance.getMetrics")["metrics"]
            task_seconds = next(
                metric["value"] for metric in metrics if metric["name"] == "TaskDuration"
            )
            timings.setdefault("main thread's work", []).append(task_seconds)
    return {name: median(seconds) for name, seconds in timings.items()}


if __name__ == "__main__":
    main()
