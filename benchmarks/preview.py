"""Measure `everstep preview --stack X --twin` of the cloud stacks with warm caches.

    .venv/bin/python benchmarks/preview.py [--rounds 5] [--stacks eks-dev,aks-dev] [--json]

Each round previews every stack once, so that other load on the machine affects all of them equally. A
first round, which fills caches, is not counted. The figures are the wall-clock time, the CPU time
of all processes of the preview, which is more reliable on a busy machine, and the time of the program's
imports in a separate process, without the modules that it loads later with their resources. State is
kept in a temporary folder.
"""

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.pulumi.run_program import NEW_OBJECTS_PER_COLLECTION

from benchmarks.progress import track

PROJECT = Path(__file__).parents[1]
EVERSTEP = Path(sys.executable).with_name("everstep")
STACKS = ("eks-dev", "aks-dev", "eks-prod", "aks-prod")
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


@dataclass(frozen=True)
class Measurement:
    """Duration of one run: wall-clock time, and CPU time of all its processes."""

    wall_seconds: float
    cpu_seconds: float


def main() -> None:
    """Print the figures, as a table or as JSON."""
    parser = argparse.ArgumentParser(description="Measure previews of the cloud stacks.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stacks", default=",".join(STACKS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    stacks = options.stacks.split(",")
    adopt_orphans()
    load = os.getloadavg()[0]
    previews, imports = measure(stacks, options.rounds)
    figures = {stack: summarize(previews[stack], imports[stack]) for stack in stacks}
    if options.json:
        print(json.dumps({"load_before": round(load, 2), "stacks": figures}, indent=1))
    else:
        show(figures, load)


def measure(
    stacks: Sequence[str], rounds: int
) -> tuple[Mapping[str, list[Measurement]], Mapping[str, list[Measurement]]]:
    """Preview every stack in every round; return the runs of the previews and of the imports."""
    previews: dict[str, list[Measurement]] = {stack: [] for stack in stacks}
    imports: dict[str, list[Measurement]] = {stack: [] for stack in stacks}
    with tempfile.TemporaryDirectory(prefix="everstep-preview-") as state:
        environment = {**os.environ, "EVERSTEP_STATE": state}
        for number in track(range(rounds + 1), "rounds", rounds + 1):
            for stack in stacks:
                preview = run([str(EVERSTEP), "preview", "--stack", stack, "--twin"], environment)
                import_run = run([sys.executable, "-c", program_imports(stack)], environment)
                if number:
                    previews[stack].append(preview)
                    imports[stack].append(import_run)
    return previews, imports


def program_imports(stack: str) -> str:
    """Return a program with the imports of the Pulumi program of a stack, as the twin runs it."""
    cloud = {"eks": "aws", "aks": "azure"}.get(stack.partition("-")[0], "existing")
    return (
        f"import gc, sys; sys.path.insert(0, {str(PROJECT)!r}); "
        f"gc.set_threshold({NEW_OBJECTS_PER_COLLECTION}); "
        "from everstep.cli import bytecode; bytecode.keep(); "
        f"import pulumi, components.cost, components.stack, components.{cloud}.environment"
    )


def run(command: Sequence[str], environment: Mapping[str, str]) -> Measurement:
    """Run a command to its end and measure it, including processes that outlive it briefly.

    Raises:
        SystemExit: the command failed; the message is its output.
    """
    seconds_before, started_at = children_seconds(), time.monotonic()
    result = subprocess.run(
        command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False
    )
    wall = time.monotonic() - started_at
    reap()
    if result.returncode:
        raise SystemExit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return Measurement(wall, children_seconds() - seconds_before)


def children_seconds() -> float:
    """Return the user and system CPU time of all ended children in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def adopt_orphans() -> None:
    """Become the parent of plugins that outlive the engine, so that they count too."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap() -> None:
    """Wait for all remaining children."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return


def summarize(previews: Sequence[Measurement], imports: Sequence[Measurement]) -> dict[str, object]:
    """Return the figures of one stack."""
    shares = [
        measurement.cpu_seconds / preview.cpu_seconds
        for measurement, preview in zip(imports, previews, strict=True)
    ]
    return {
        "wall_seconds": spread(preview.wall_seconds for preview in previews),
        "processor_seconds": spread(preview.cpu_seconds for preview in previews),
        "program_imports_processor_seconds": spread(
            measurement.cpu_seconds for measurement in imports
        ),
        "program_imports_share": round(statistics.median(shares), 2),
    }


def spread(values: Iterable[float]) -> dict[str, float]:
    """Return the median and the range."""
    numbers = list(values)
    return {
        "median": round(statistics.median(numbers), 2),
        "min": round(min(numbers), 2),
        "max": round(max(numbers), 2),
    }


def show(figures: Mapping[str, Mapping[str, object]], load: float) -> None:
    """Print a table."""
    print(f"load before: {load:.2f}; seconds, median (range)")
    for stack, stack_figures in figures.items():
        texts = {
            key.removesuffix("_seconds"): f"{value['median']} ({value['min']} to {value['max']})"
            for key, value in stack_figures.items()
            if isinstance(value, dict)
        }
        line = ", ".join(f"{key.replace('_', ' ')} {text}" for key, text in texts.items())
        print(
            f"{stack}: {line}; imports are {stack_figures['program_imports_share']:.0%} of the CPU time"
        )


if __name__ == "__main__":
    main()
