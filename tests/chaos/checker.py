"""Check the files of a chaos run: `python3 -m tests.chaos.checker FOLDER`.

It imports nothing from the library and parses the files itself, so that it does not repeat a bug of the library.
It uses only the nemesis's clock: the clocks of nodes are wrong on purpose.

    faults.jsonl             actions of the nemesis
    etcd.jsonl               every change of generation, commit and outcome, in etcd's order
    run/journal/*.jsonl      each worker's journal: `generation`, `applied`, `checkpoint`, `restore`
    run/ledger.jsonl         samples of each commit
    run/checkpoints/step-*   manifest.json, state.safetensors
"""

import hashlib
import json
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

BATCH = 32  # global batch of program.py
COUNTS, WEIGHTS = "model.counts", "model.weights"
DRAIN_EXIT_CODES = (0, 143)  # allowed exit codes of a drained node

Entry = dict[str, Any]
Key = tuple[int, int]


@dataclass(frozen=True)
class Violation:
    """A broken invariant.

    Attributes:
        kind: name of the invariant.
        detail: message that says where and how the invariant is broken.
    """

    kind: str
    detail: str


@dataclass(frozen=True)
class SavedState:
    """A complete checkpoint on the disk.

    Attributes:
        step: number of applied steps.
        generation: generation that saved it.
        samples: number of applied samples, from the manifest.
        digest: digest of `counts` and the weights.
        counts: number of applications of each sample; shape (samples of the data set,).
    """

    step: int
    generation: int
    samples: int
    digest: str
    counts: npt.NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True)
class AppliedStep:
    """A step that a worker applied, with the digests of the states before and after it; `process` is its process ID."""

    worker: str
    process: int
    generation: int
    step: int
    before: str
    after: str


@dataclass(frozen=True)
class GenerationStart:
    """A worker's entry into a generation, after `step` steps; `restored_step` is the step that it loaded, if any."""

    worker: str
    generation: int
    step: int
    restored_step: int | None


class History:
    """The recorded files of a run.

    Args:
        folder: folder of the run, described in the module docstring.
    """

    def __init__(self, folder: Path) -> None:
        self.faults = _entries(folder / "faults.jsonl")
        self.etcd = _entries(folder / "etcd.jsonl")
        self.ledger = list(_complete_entries(folder / "run" / "ledger.jsonl"))
        self._folder = folder
        self.applied_steps: list[AppliedStep] = []
        self.starts: list[GenerationStart] = []
        self.renamed_steps: set[int] = set()  # of checkpoints that their writers have renamed
        for path in sorted((folder / "run" / "journal").glob("*.jsonl")):
            self._read_journal(path)

    def _read_journal(self, path: Path) -> None:
        generation, restored_step = 0, None
        for entry in _complete_entries(path):
            if entry["kind"] == "checkpoint":
                self.renamed_steps.add(int(entry["step"]))
            elif entry["kind"] == "restore":
                restored_step = int(entry["step"])
            elif entry["kind"] == "generation":
                generation = int(entry["generation"])
                start = GenerationStart(path.stem, generation, int(entry["step"]), restored_step)
                self.starts.append(start)
                restored_step = None
            elif entry["kind"] == "applied":
                step, process = int(entry["step"]), int(entry["process"])
                states = (str(entry["before"]), str(entry["after"]))
                self.applied_steps.append(
                    AppliedStep(path.stem, process, generation, step, *states)
                )

    @cached_property
    def checkpoints(self) -> dict[int, SavedState]:
        """The complete checkpoints, by step."""
        folders = sorted((self._folder / "run" / "checkpoints").glob("step-*"))
        states = (_saved_state(path) for path in folders)
        return {state.step: state for state in states if state}

    @cached_property
    def origins(self) -> dict[tuple[int, str], str]:
        """The digest before each applied step, by the step and the digest after it."""
        return {(applied.step, applied.after): applied.before for applied in self.applied_steps}

    def values_of(self, key: str) -> list[tuple[int, Entry]]:
        """Return the revisions and values of one of etcd's keys, in order."""
        return [(int(e["revision"]), e["value"]) for e in self.etcd if e["key"] == key]

    def changes_with_previous(self, *keys: str) -> Iterator[tuple[Entry, list[Entry]]]:
        """Yield the changes of these keys, each with the earlier changes that etcd still has.

        A restored etcd may have lost the changes after a revision; the recorder records the remaining ones again.
        """
        previous_entries: list[Entry] = []
        for entry in self.etcd:
            if entry["key"] == "restored":
                previous_entries = [
                    e for e in previous_entries if e["revision"] <= entry["revision"]
                ]
            elif entry["key"] in keys:
                yield entry, previous_entries
                previous_entries.append(entry)


def _entries(path: Path) -> list[Entry]:
    """Return the JSON objects of a file that the test itself wrote: no line is incomplete."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def _complete_entries(path: Path) -> Iterator[Entry]:
    """Yield the JSON objects of a worker's file; skip the lines that killed workers left incomplete."""
    if not path.exists():
        return
    for line in path.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def _saved_state(folder: Path) -> SavedState | None:
    """Return a checkpoint; None if it is not complete."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        data = (folder / "state.safetensors").read_bytes()
        if len(data) != manifest["bytes"] or zlib.crc32(data) != manifest["checksum"]:
            return None
        counts, weights = _tensor(data, COUNTS), _tensor(data, WEIGHTS)
    except (OSError, ValueError, KeyError):
        return None
    if folder.name != f"step-{manifest['step']:08d}":
        return None
    digest = hashlib.sha256(counts.tobytes() + weights.tobytes()).hexdigest()[:16]
    samples = int(manifest["extra"]["samples"])
    return SavedState(manifest["step"], manifest["generation"], samples, digest, counts)


def _tensor(data: bytes, name: str) -> npt.NDArray[np.float32]:
    """Return a tensor of a safetensors file: 8 bytes with the header's size, the header, the values."""
    size = int.from_bytes(data[:8], "little")
    first, last = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return np.frombuffer(data[8 + size + first : 8 + size + last], np.float32)


# --- invariants ---------------------------------------------------------------------------------


def samples_exactly_once(history: History) -> Iterator[str]:
    """Check by the counts in the parameters that each epoch applies each sample exactly once."""
    for state in history.checkpoints.values():
        epochs, part = divmod(state.step * BATCH, len(state.counts))
        violating = np.flatnonzero((state.counts != epochs) & (state.counts != epochs + 1))
        if len(violating):
            sample = int(violating[0])
            yield (
                f"step {state.step}: sample {sample} was applied {state.counts[sample]:g} times "
                f"in {epochs} epochs and part of another; {len(violating)} samples are wrong"
            )
        elif int((state.counts == epochs + 1).sum()) != part:
            yield f"step {state.step}: {int(state.counts.sum())} samples were applied"


def ledgers_count_all_samples(history: History) -> Iterator[str]:
    """Check that the ledger and the manifests count all samples up to each commit."""
    for entry in history.ledger:
        if entry["samples"] != entry["step"] * BATCH:
            yield f"the ledger of step {entry['step']} has {entry['samples']} samples"
    for state in history.checkpoints.values():
        if state.samples != state.step * BATCH:
            yield f"the manifest of step {state.step} has {state.samples} samples"


def commits_only_advance(history: History) -> Iterator[str]:
    """Check that neither the step nor the agreed generation of a commit is lower than in the previous commit."""
    for entry, previous_entries in history.changes_with_previous("committed"):
        key, previous = _commit_key(entry), max(map(_commit_key, previous_entries), default=(0, 0))
        if key[0] < previous[0] or key[1] < previous[1]:
            revision = entry["revision"]
            yield f"revision {revision} commits {key} after {previous} (agreed generation, step)"


def _commit_key(entry: Entry) -> Key:
    return int(entry["value"]["agreed_generation"]), int(entry["value"]["step"])


def commits_are_fenced(history: History) -> Iterator[str]:
    """Check that only the current generation commits."""
    for entry, previous_entries in history.changes_with_previous("committed", "generation"):
        generations = [e["value"]["number"] for e in previous_entries if e["key"] == "generation"]
        current = int(generations[-1]) if generations else 0
        if entry["key"] == "committed" and int(entry["value"]["generation"]) != current:
            yield (
                f"generation {entry['value']['generation']} commits step "
                f"{entry['value']['step']} while {current} is current"
            )


def generations_only_grow(history: History) -> Iterator[str]:
    """Check that each generation has a higher number than the previous one.

    A generation that is written again may differ only by additional fenced members. A restored etcd
    does not know all numbers that were used; the agents do.
    """
    highest, recorded_entries = 0, list[Entry]()
    for entry, previous_entries in history.changes_with_previous("generation"):
        value, number = entry["value"], int(entry["value"]["number"])
        previous = previous_entries[-1]["value"] if previous_entries else None
        if entry in recorded_entries:
            pass  # read again from a restored etcd
        elif previous and number == previous["number"]:
            if not _only_fences(previous, value):
                yield f"generation {number} was replaced by another generation with the same number"
        elif number <= highest:
            yield f"generation {number} follows {highest}"
        highest = max(highest, number)
        recorded_entries.append(entry)


def _only_fences(earlier: Entry, later: Entry) -> bool:
    fenced_members = [set(value.get("fenced", ())) for value in (earlier, later)]
    other_fields = [{**value, "fenced": ()} for value in (earlier, later)]
    return (
        fenced_members[0] < fenced_members[1] <= set(later.get("members", ()))
        and other_fields[0] == other_fields[1]
    )


def commits_stay(history: History) -> Iterator[str]:
    """Check that no generation begins at a step before the last commit, and that commits stay on the disk."""
    committed_step, minimum_step = 0, dict[int, int]()
    for entry in history.etcd:
        if entry["key"] == "committed":
            committed_step = max(committed_step, int(entry["value"]["step"]))
        elif entry["key"] == "generation":
            # Later writes of the same number only fence members.
            minimum_step.setdefault(int(entry["value"]["number"]), committed_step)
    for start in history.starts:
        if start.step < minimum_step.get(start.generation, 0):
            yield (
                f"{start.worker} begins generation {start.generation} at step {start.step}; "
                f"step {minimum_step[start.generation]} was committed"
            )
    commits = [value for _, value in history.values_of("committed")]
    for value, next_value in zip(commits, [*commits[1:], None], strict=True):
        state = history.checkpoints.get(int(value["step"]))
        is_complete = state is not None and state.generation >= int(value["agreed_generation"])
        if not is_complete and not _writer_died(history, value, next_value):
            yield f"the committed checkpoint of step {value['step']} is missing or damaged"


def _writer_died(history: History, commit: Entry, next_commit: Entry | None) -> bool:
    """Return True if the writer of a commit may have ended before it renamed the checkpoint.

    In that case a restore renames it. If the other workers have the state, the next group needs no restore, and its
    first commit removes the files that were not renamed.
    """
    return (
        int(commit["step"]) not in history.renamed_steps
        and next_commit is not None
        and int(next_commit["generation"]) > int(commit["generation"])
    )


def generations_begin_at_one_step(history: History) -> Iterator[str]:
    """Check that all workers of a generation begin at the same step."""
    steps = defaultdict(set)
    for start in history.starts:
        steps[start.generation].add(start.step)
    for generation, first_steps in sorted(steps.items()):
        if len(first_steps) > 1:
            yield f"generation {generation} begins at the steps {sorted(first_steps)}"


def steps_have_one_state(history: History) -> Iterator[str]:
    """Check that all workers that apply a step in a generation have equal states before and after it."""
    states: dict[Key, list[AppliedStep]] = defaultdict(list)
    for applied_step in history.applied_steps:
        states[applied_step.generation, applied_step.step].append(applied_step)
    for (generation, step), applications in sorted(states.items()):
        for state_name in ("before", "after"):
            if len({getattr(applied_step, state_name) for applied_step in applications}) > 1:
                workers = ", ".join(
                    f"{applied_step.worker} {getattr(applied_step, state_name)}"
                    for applied_step in applications
                )
                yield f"{state_name} step {step} of generation {generation}: {workers}"


def steps_are_consecutive(history: History) -> Iterator[str]:
    """Check that a process applies the steps of a generation one after the other, each once."""
    last_steps: dict[tuple[str, int, int], int] = {}
    for applied_step in history.applied_steps:
        key = (applied_step.worker, applied_step.process, applied_step.generation)
        if key in last_steps and applied_step.step != last_steps[key] + 1:
            yield (
                f"{applied_step.worker} applies step {applied_step.step} after {last_steps[key]} "
                f"in generation {applied_step.generation}"
            )
        last_steps[key] = applied_step.step


def states_have_an_origin(history: History) -> Iterator[str]:
    """Check that each step after the first begins with a state from the previous step or from a complete checkpoint."""
    known_states = {(state.step, state.digest) for state in history.checkpoints.values()}
    known_states |= history.origins.keys()
    for applied_step in history.applied_steps:
        if (
            applied_step.step > 1
            and (applied_step.step - 1, applied_step.before) not in known_states
        ):
            yield (
                f"{applied_step.worker} applies step {applied_step.step} of generation "
                f"{applied_step.generation} to a state that no step produced: {applied_step.before}"
            )


def restored_states_are_complete(history: History) -> Iterator[str]:
    """Check that a restored checkpoint is complete, and that training continues from its content."""
    first_states = {
        (applied_step.generation, applied_step.step): applied_step.before
        for applied_step in history.applied_steps
    }
    for start in history.starts:
        if start.restored_step is None:
            continue
        state = history.checkpoints.get(start.restored_step)
        digest_before = first_states.get((start.generation, start.restored_step + 1))
        if state is None:
            yield f"{start.worker} restored step {start.restored_step}, which is not a complete checkpoint"
        elif (
            digest_before is not None
            and start.step == start.restored_step
            and digest_before != state.digest
        ):
            yield f"{start.worker} restored step {start.restored_step} and continued from another state"


def final_chain(history: History) -> dict[int, str]:
    """Return the digests of the final history by step, for the steps in the journals."""
    chain: dict[int, str] = {}
    for committed_step in sorted(
        (int(v["step"]) for _, v in history.values_of("committed")), reverse=True
    ):
        if (
            committed_step >= min(chain, default=committed_step + 1)
            or committed_step not in history.checkpoints
        ):
            continue
        digest: str | None = history.checkpoints[committed_step].digest
        step = committed_step
        while digest is not None and step >= 0:
            chain[step] = digest
            digest, step = history.origins.get((step, digest)), step - 1
    return chain


def commits_are_one_history(history: History) -> Iterator[str]:
    """Check that every committed state is the result of an applied step, and part of the final history."""
    chain = final_chain(history)
    for _, value in history.values_of("committed"):
        step = int(value["step"])
        state = history.checkpoints.get(step)
        if state and step > 0 and (step, state.digest) not in history.origins:
            yield f"the committed state of step {step} is not the result of an applied step"
        if state and step in chain and chain[step] != state.digest:
            yield f"the committed state of step {step} is not in the final history"


def training_continues(history: History) -> Iterator[str]:
    """Check that after the faults of each round all nodes train together within the bound."""
    faults_end: Entry | None = None
    for entry in history.faults:
        if entry["event"] == "faults_end":
            faults_end = entry
        elif entry["event"] == "recovered" and faults_end:
            seconds = float(entry["at"]) - float(faults_end["at"])
            if seconds > float(faults_end["bound"]):
                yield f"all nodes train together only after {seconds:.0f} s"
            faults_end = None
    if faults_end:
        yield f"not all nodes train together after the faults that ended at {faults_end['at']}"


def no_fault_ends_the_run(history: History) -> Iterator[str]:
    """Check that no fault ends the run, and that a drain of all nodes saves the last step."""
    for _, value in history.values_of("ended"):
        yield f"the run was ended: {value}"
    events = [entry["event"] for entry in history.faults]
    if "drain_all" not in events:
        return  # the run was stopped because it made no progress
    # A node that is drained earlier may be killed by another fault meanwhile.
    for entry in history.faults[events.index("drain_all") :]:
        if entry["event"] == "left" and entry["code"] not in DRAIN_EXIT_CODES:
            yield f"{entry['target']} ended with {entry['code']} when it was drained"
    commits = history.values_of("committed")
    last_generation = max(
        (applied_step.generation for applied_step in history.applied_steps), default=0
    )
    step = max(
        (
            applied_step.step
            for applied_step in history.applied_steps
            if applied_step.generation == last_generation
        ),
        default=0,
    )
    if not commits or int(commits[-1][1]["step"]) < step:
        yield f"the last applied step {step} is not committed"


def the_record_is_complete(history: History) -> Iterator[str]:
    """Check that the recorder has recorded all revisions."""
    for entry in history.etcd:
        if entry["key"] == "gap":
            yield f"revisions before {entry['revision']} were not recorded"


INVARIANTS: dict[str, Callable[[History], Iterator[str]]] = {
    "samples": samples_exactly_once,
    "ledger": ledgers_count_all_samples,
    "commits advance": commits_only_advance,
    "commits fenced": commits_are_fenced,
    "generations grow": generations_only_grow,
    "commits stay": commits_stay,
    "one history": commits_are_one_history,
    "one start": generations_begin_at_one_step,
    "equal states": steps_have_one_state,
    "consecutive steps": steps_are_consecutive,
    "known origin": states_have_an_origin,
    "complete restores": restored_states_are_complete,
    "progress": training_continues,
    "run continues": no_fault_ends_the_run,
    "record": the_record_is_complete,
}


def check(folder: Path) -> list[Violation]:
    """Return all violations in a run's files."""
    history = History(folder)
    return [
        Violation(kind, detail)
        for kind, invariant in INVARIANTS.items()
        for detail in invariant(history)
    ]


def summary(folder: Path) -> dict[str, int]:
    """Return the number of checked items of the history, by name."""
    history = History(folder)
    chain = final_chain(history)
    newest = max(chain, default=0)
    return {
        "commits": len(history.values_of("committed")),
        "generations": len(history.values_of("generation")),
        "applied": len(history.applied_steps),
        "restores": sum(start.restored_step is not None for start in history.starts),
        "steps": newest,
        "steps_in_chain": sum(step > 0 for step in chain),
    }


def recoveries(folder: Path) -> list[tuple[list[str], float]]:
    """Return the kinds of faults of each round, and the seconds from their end until all nodes train."""
    rounds, kinds, ended_at = [], list[str](), 0.0
    for entry in _entries(folder / "faults.jsonl"):
        if entry["event"] == "begin":
            kinds.append(entry["type"])
        elif entry["event"] == "faults_end":
            ended_at = float(entry["at"])
        elif entry["event"] == "recovered" and kinds:
            rounds.append((kinds, round(float(entry["at"]) - ended_at, 1)))
            kinds = []
    return rounds


def main() -> None:
    """Print the violations of a run; exit with 1 if there are any."""
    folder = Path(sys.argv[1])
    violations = check(folder)
    for violation in violations:
        print(f"{violation.kind}: {violation.detail}")
    print(f"{summary(folder)}, {len(violations)} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
