"""Verify that a run trained every sample exactly once: `python3 -m trainer.verify RUN`.

RUN is a run's folder. The program reads its ledger, one line for each checkpoint that was committed,
and the manifests of the checkpoints that are still there, and reckons anew which samples must have
made each of them: from the seed, the size of the data set and the global batch alone. It shares no
code with the trainer: a fault in the trainer's order would not be repeated here.

Exit codes: 0 everything agrees, 1 something does not, 2 there is nothing to verify.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
LEDGER_SEED = 0x1ED6E5
LEDGER_FILE = "ledger.jsonl"


@dataclass(frozen=True)
class Commit:
    """One line of the ledger."""

    step: int
    generation: int
    samples: int
    digest: int


def main() -> None:
    """Say for each commit whether it agrees, and end with the code that sums it up."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    run: Path = parser.parse_args().run
    commits = list(read(run / LEDGER_FILE))
    if not commits:
        print(f"nothing to verify: no line in {run / LEDGER_FILE}", file=sys.stderr)
        sys.exit(2)
    faults = verify(json.loads((run / "run.json").read_text()), commits)
    for fault in faults:
        print(f"WRONG: {fault}")
    last = commits[-1]
    print(
        f"{len(commits)} commits, the last of step {last.step}, {last.samples} samples: "
        f"{'every sample exactly once' if not faults else f'{len(faults)} faults'}"
    )
    sys.exit(1 if faults else 0)


def read(path: Path) -> Iterator[Commit]:
    """The ledger's lines; a torn last one is passed over."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        yield Commit(
            int(said["step"]),
            int(said["generation"]),
            int(said["samples"]),
            int(said["digest"], 16),
        )


def verify(run: dict[str, Any], commits: list[Commit]) -> list[str]:
    """What does not agree, as sentences.

    Args:
        run: what run.json holds: the settings and the size of the data set.
        commits: in the order in which they were written.
    """
    expected = reckon(run, max(commit.step for commit in commits))
    faults = []
    for commit in commits:
        if (commit.samples, commit.digest) != expected[commit.step]:
            samples, _ = expected[commit.step]
            faults.append(
                f"step {commit.step} of generation {commit.generation} was made of "
                f"{commit.samples} samples; {samples} were due, or others than these"
            )
    steps = [(commit.generation, commit.step) for commit in commits]
    if steps != sorted(steps):
        faults.append("a commit of an older generation came after one of a newer")
    return faults


def reckon(run: dict[str, Any], steps: int) -> list[tuple[int, int]]:
    """Number of samples and digest that each step count must have, from 0 to `steps`."""
    settings = run["fingerprint"]
    batch, seed = int(settings["global_batch"]), int(settings["seed"])
    found = [(0, 0)]
    order, made_for = np.empty(0, np.int64), (-1, -1)
    for step in range(steps):
        samples = _samples_at(run, step)
        epoch, place = divmod(step, -(-samples // batch))
        if made_for != (epoch, samples):
            order = np.argsort(_hash(seed, epoch, np.arange(samples)), kind="stable")
            made_for = (epoch, samples)
        ids = order[place * batch : (place + 1) * batch]
        words = int(_hash(LEDGER_SEED, step, ids).sum(dtype=np.uint64))
        found.append((found[-1][0] + len(ids), (found[-1][1] + words) % 2**64))
    return found


def _samples_at(run: dict[str, Any], step: int) -> int:
    """Size of the data set that the step after `step` was trained on; who runs it may have accepted another."""
    changes = [change for change in run.get("data_changes", []) if change["step"] <= step]
    return int(changes[-1]["samples"] if changes else run["samples"])


def _hash(seed: int, stream: int, ids: npt.NDArray[np.int64]) -> Words:
    with np.errstate(over="ignore"):
        base = _stir(_stir(np.array([seed], np.int64).astype(np.uint64)) + np.uint64(stream))
        return _stir(_stir(ids.astype(np.uint64)) ^ base)


def _stir(words: Words) -> Words:
    """Splitmix64: add the golden ratio, then two rounds of shift and multiply."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


if __name__ == "__main__":
    main()
