"""Verification that a run trained every sample exactly once: `python3 -m trainer.verify RUN`.

RUN is a run's folder. The program reads its ledger, which has one line for each committed checkpoint,
and the manifests of the existing checkpoints. For each of them, it recomputes the samples only from the
seed, the size of the data set and the global batch. It shares no code with the trainer, so that it does
not repeat a bug in the trainer's sample order.

Exit codes: 0 all commits agree, 1 a commit disagrees or the last steps of a finished run have no commit, 2 nothing to
verify: no commit or no settings.
"""

import argparse
import json
import math
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
# Copied, like the order of samples below: this file must not import the code that it checks.
LEDGER_SEED = 0x1ED6E5
LEDGER_FILE, RUN_FILE = "ledger.jsonl", "run.json"
MAX_NUMBER, MAX_DIGEST = 2**63 - 1, 2**64 - 1
# Errors of parsing a value that no run has written.
PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Commit:
    """One line of the ledger.

    Attributes:
        step: number of completed steps.
        generation: generation of the group that committed.
        samples: number of samples trained since the start of the run.
        digest: sum of the hashes of these samples, modulo 2^64.
        at: Unix time of the line, in seconds; infinite for a manifest, which has none.
    """

    step: int
    generation: int
    samples: int
    digest: int
    at: float = field(default=math.inf, compare=False)


def main() -> None:
    """Verify the commits of a run, print the result and exit with the code of the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    run: Path = parser.parse_args().run
    commits, existing_commits = list(read(run / LEDGER_FILE)), list(checkpoints(run))
    if not commits and not existing_commits:
        print(f"nothing to verify: no line in {run / LEDGER_FILE}", file=sys.stderr)
        sys.exit(2)
    try:
        record = read_record(run / RUN_FILE)
    except (OSError, ValueError) as error:
        print(f"nothing to verify: {run / RUN_FILE} cannot be read: {error}", file=sys.stderr)
        sys.exit(2)
    unrecorded_commits = [
        checkpoint for checkpoint in existing_commits if checkpoint not in commits
    ]
    for checkpoint in unrecorded_commits:
        print(f"note: {LEDGER_FILE} has no line for the checkpoint of step {checkpoint.step}")
    faults = verify(record, commits) + verify(record, unrecorded_commits)
    faults += uncommitted_end_faults(run, [*commits, *unrecorded_commits])
    commits = commits or unrecorded_commits
    for fault in faults:
        print(f"WRONG: {fault}")
    last_commit = commits[-1]
    print(
        f"{len(commits)} commits, the last at step {last_commit.step}, {last_commit.samples} samples: "
        f"{'every sample exactly once' if not faults else f'{len(faults)} faults'}"
    )
    sys.exit(1 if faults else 0)


def read(path: Path) -> Iterator[Commit]:
    """Yield the commits in the ledger; skip torn and damaged lines: a later commit contains the same samples."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    for number, line in enumerate(lines, 1):
        try:
            entry: dict[str, Any] = json.loads(line)
            yield parse_commit(entry, entry)
        except PARSE_ERRORS:
            print(
                f"note: line {number} of {path.name} is incomplete or damaged, and is not verified"
            )


def parse_commit(entry: dict[str, Any], ledger: dict[str, Any]) -> Commit:
    """Return a commit from a line of the ledger, or from a manifest, whose `extra` has the samples.

    No run has written values that raise one of `PARSE_ERRORS`.
    """
    return Commit(
        _number(entry["step"]),
        _number(entry["generation"]),
        _number(ledger["samples"]),
        _number(int(ledger["digest"], 16), maximum=MAX_DIGEST),
        float(entry.get("at", math.inf)),
    )


def _number(value: str | float, minimum: int = 0, maximum: int = MAX_NUMBER) -> int:
    number = int(value)
    if not minimum <= number <= maximum:
        raise ValueError(f"{number} is not from {minimum} to {maximum}")
    return number


def read_record(path: Path) -> dict[str, Any]:
    """Return the content of run.json.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    record: dict[str, Any] = json.loads(path.read_text())
    try:
        settings, changes = record["fingerprint"], record.get("data_changes", [])
        for number in (
            record["samples"],
            settings["global_batch"],
            *(change["samples"] for change in changes),
        ):
            _number(number, minimum=1)
        _number(settings["seed"], minimum=-MAX_NUMBER)
        for change in changes:
            _number(change["step"])
            _number(change.get("generation", 0))
            float(change.get("at", 0))
    except PARSE_ERRORS as error:
        raise ValueError("it does not contain the settings of a run") from error
    return record


def checkpoints(run: Path) -> Iterator[Commit]:
    """Yield the commits in the manifests of the existing checkpoints, by step.

    Their lines in the ledger may be missing: a writer ended before it wrote them, or its machine vanished
    before they were uploaded.
    """
    for manifest in sorted(run.glob("checkpoints/step-*/manifest.json")):
        try:
            entry: dict[str, Any] = json.loads(manifest.read_text())
            yield parse_commit(entry, entry["extra"])
        except OSError:
            continue  # the run has removed it in the meantime
        except PARSE_ERRORS:  # the trainer skips it, too
            print(f"note: {manifest.relative_to(run)} is damaged, and is not verified")


def uncommitted_end_faults(run: Path, commits: list[Commit]) -> list[str]:
    """Return a fault as a list if a finished run has steps after its last commit, an empty list otherwise."""
    try:
        steps = int(json.loads((run / "result.json").read_text())["steps"])
    except (OSError, *PARSE_ERRORS):
        return []
    last_step = max(commit.step for commit in commits)
    return [f"the run ended after {steps} steps, but its last commit is at step {last_step}"] * (
        steps > last_step
    )


def verify(run: dict[str, Any], commits: list[Commit]) -> list[str]:
    """Return the disagreements as sentences.

    Args:
        run: content of run.json: the settings and the size of the data set.
        commits: the commits, in the order in which they were written.
    """
    changes = run.get("data_changes", [])
    histories: dict[tuple[int, ...], list[Commit]] = {}
    for commit in commits:
        histories.setdefault(_preceding_changes(changes, commit), []).append(commit)
    faults = []
    for numbers, history in histories.items():
        faults += _history_faults(
            {**run, "data_changes": [changes[number] for number in numbers]}, history
        )
    # Without agents, a run may continue from any older checkpoint: no record of its newest commit prevents it.
    steps = [(commit.generation, commit.step if commit.generation else 0) for commit in commits]
    if steps != sorted(steps):
        faults.append(
            "a commit follows one of a newer generation, or of a later step in its generation"
        )
    return faults


def _preceding_changes(changes: list[dict[str, Any]], commit: Commit) -> tuple[int, ...]:
    """Return the positions of the data changes that precede a commit.

    A run that restores an older checkpoint leaves a history, whose commits remain in the ledger. Each later commit
    has a newer generation or, without agents, a later time.
    """

    def precedes(change: dict[str, Any]) -> bool:
        generation = change.get("generation", 0)
        if generation or commit.generation:
            return bool(generation <= commit.generation)
        return bool(change.get("at", 0) <= commit.at)

    return tuple(number for number, change in enumerate(changes) if precedes(change))


def _history_faults(run: dict[str, Any], commits: list[Commit]) -> list[str]:
    """Return the commits with other samples than those expected by one history, as sentences."""
    # The digests take much longer than the numbers, and a damaged step may have billions of predecessors.
    plausible_steps = {
        commit.step for commit in commits if commit.samples == expected_samples(run, commit.step)
    }
    digests = expected_digests(run, plausible_steps)
    faults = []
    for commit in commits:
        text = f"step {commit.step} of generation {commit.generation} has {commit.samples} samples"
        if commit.samples != (samples := expected_samples(run, commit.step)):
            faults.append(f"{text} instead of {samples}")
        elif commit.digest != digests[commit.step]:
            faults.append(f"{text}, but not the expected ones")
    return faults


def expected_samples(run: dict[str, Any], steps: int) -> int:
    """Return the expected number of samples of the first `steps` steps."""
    batch = int(run["fingerprint"]["global_batch"])

    def count(size: int, end: int) -> int:
        """Return the number of samples of the first steps with this size of the data set."""
        epochs, position = divmod(end, -(-size // batch))
        return epochs * size + position * batch

    changes = {int(change["step"]) for change in run.get("data_changes", [])}
    edges = sorted({0, steps} | {step for step in changes if 0 < step < steps})
    return sum(
        count(_samples_at(run, first), end) - count(_samples_at(run, first), first)
        for first, end in pairwise(edges)
    )


def expected_digests(run: dict[str, Any], steps: Collection[int]) -> dict[int, int]:
    """Return the expected digest of all samples up to each of these steps."""
    settings = run["fingerprint"]
    batch, seed = int(settings["global_batch"]), int(settings["seed"])
    digest, expected = 0, {0: 0}
    order, order_key = np.empty(0, np.int64), (-1, -1)
    for step in range(max(steps, default=0)):
        samples = _samples_at(run, step)
        epoch, position = divmod(step, -(-samples // batch))
        if order_key != (epoch, samples):
            order = np.argsort(_hash(seed, epoch, np.arange(samples)), kind="stable")
            order_key = (epoch, samples)
        ids = order[position * batch : (position + 1) * batch]
        digest = (digest + int(_hash(LEDGER_SEED, step, ids).sum(dtype=np.uint64))) % 2**64
        if step + 1 in steps:
            expected[step + 1] = digest
    return expected


def _samples_at(run: dict[str, Any], step: int) -> int:
    """Return the size of the data set after `step` steps; it may change during a run."""
    changes = [change for change in run.get("data_changes", []) if change["step"] <= step]
    return int(changes[-1]["samples"] if changes else run["samples"])


def _hash(seed: int, stream: int, ids: npt.NDArray[np.int64]) -> Words:
    with np.errstate(over="ignore"):
        base = _mix(_mix(np.array([seed], np.int64).astype(np.uint64)) + np.uint64(stream))
        return _mix(_mix(ids.astype(np.uint64)) ^ base)


def _mix(words: Words) -> Words:
    """Apply splitmix64: add the golden ratio, then two rounds of xorshift and multiplication, and a last xorshift."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


if __name__ == "__main__":
    main()
