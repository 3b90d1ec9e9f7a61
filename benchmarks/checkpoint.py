"""Measure the cost of a checkpoint for the training, and check checkpoints after kills.

    python3 -m benchmarks.checkpoint stall --rounds 10      # ResNet-50 with momentum: 205 MB
    python3 -m benchmarks.checkpoint torture --kills 200 --flips 100
    python3 -m benchmarks.checkpoint torture --json

`stall` alternates between torch.save with fsync, as in a plain training loop, and the trainer's writer.
Matrix products simulate a training step between two changes of the state ("work"). "stall" is the
total wait of the training loop: for the start of the snapshot, and after the work for its end. "at_once"
is the same without work: the time of the whole copy. "while_writing" is the same as "stall" during the
write of an earlier checkpoint. "durable" is from the start of the snapshot until the checkpoint is in
place and synced. "work_meanwhile" and "durable_meanwhile" are the times of the work and of a checkpoint
that overlap. The writer and the training share the disk and the CPUs.

`torture` sends SIGKILL at a random time to a process that saves in a loop, and restores in another
process: the checkpoint must be complete, of a single step, and not older than the newest recorded
commit, which replaces etcd's record. Then single bytes of the newest checkpoint are changed, one at a
time: each restore must skip it and use the previous checkpoint. Exits with 1 on any failure.
"""

import argparse
import functools
import itertools
import json
import logging
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import torch

from benchmarks.progress import track
from everstep.elastic.checkpoint import files as checkpoint
from everstep.elastic.checkpoint.files import MANIFEST_FILE, STATE_FILE, Manifest
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.restore import newest_checkpoint
from everstep.elastic.checkpoint.writer import Writer

RUN = {"benchmark": "checkpoint"}
GENERATION = 1
PREPARATION_SECONDS = 1.0  # as between the first rank assignment and the first checkpoint
RECORD_FILE = "committed"  # replaces etcd: the newest committed step
TORTURE_TENSORS, ELEMENTS_PER_TENSOR = 24, 100_000  # 10 MB per state: a save takes about 20 ms
# A kill occurs at a random time during this number of saves, including the gaps between them.
SAVES_BEFORE_A_KILL = 3


def main() -> None:
    """Run the selected measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measurement", choices=["stall", "torture"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folder", type=Path, help="folder on the disk to measure (default: a temporary folder)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        if options.measurement == "stall":
            results: dict[str, Any] = stall(Path(scratch), options.rounds)
            lines = stall_lines(results)
        else:
            results = torture(Path(scratch), options.kills, options.flips, options.seed)
            lines = [f"{name}: {value}" for name, value in results.items()]
    print(json.dumps(results, indent=1) if options.json else "\n".join(lines))
    sys.exit(1 if results.get("wrong") else 0)


# --- stall ---


def resnet50_state() -> dict[str, torch.Tensor]:
    """Return parameters, statistics and momentum in the memory layout of the training."""
    from trainer.models import build

    model = build("resnet50", 1000).to(memory_format=torch.channels_last)
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        state[f"momentum.{name}"] = torch.zeros_like(parameter)
    return state


def stall(folder: Path, rounds: int) -> dict[str, Any]:
    """Return the milliseconds of each method; the rounds alternate.

    Raises:
        SystemExit: a checkpoint was not written.
    """
    state = resnet50_state()
    written_at: list[float] = []
    failures: list[str] = []
    writer = Writer(
        FolderStore(folder / "ours"),
        commit=lambda _: True,
        on_written=lambda *_: written_at.append(time.monotonic()),
        on_failed=lambda step, reason: failures.append(f"step {step}: {reason}"),
        keep=2,
    )
    writer.prepare(state)
    time.sleep(PREPARATION_SECONDS)
    durations: dict[str, list[float]] = defaultdict(list)

    def save(number: int) -> float:
        return timed(
            lambda: writer.start(state, manifest_of(number), unchanging_names=state.keys())
        )

    def wait_until_written() -> None:
        is_complete = writer.wait()
        if failures or not is_complete:  # the writing thread cannot end this process
            raise SystemExit(failures[0] if failures else "the disk does not respond")

    for number in track(range(0, 3 * rounds, 3), "rounds", rounds):
        durations["torch_save"].append(
            timed(functools.partial(torch_save, folder / "torch", state, number % 2))
        )
        durations["work"].append(timed(work))
        started_at = time.monotonic()
        start_seconds = save(number)
        durations["work_meanwhile"].append(timed(work))
        durations["stall"].append(start_seconds + timed(writer.wait_snapshot))
        wait_until_written()
        durations["durable_meanwhile"].append(written_at[-1] - started_at)
        started_at = time.monotonic()
        durations["at_once"].append(save(number + 1) + timed(writer.wait_snapshot))
        wait_until_written()
        durations["durable"].append(written_at[-1] - started_at)
        writer.start(state, manifest_of(number + 1), unchanging_names=state.keys())
        start_seconds = save(number + 2)
        work()
        durations["while_writing"].append(start_seconds + timed(writer.wait_snapshot))
        wait_until_written()
    megabytes = sum(tensor.nbytes for tensor in state.values()) / 1e6
    return {
        "megabytes": round(megabytes, 1),
        "rounds": rounds,
        "milliseconds": {name: spread(values) for name, values in durations.items()},
    }


def torch_save(folder: Path, state: dict[str, torch.Tensor], number: int) -> None:
    """Save as a careful plain loop does: temporary file, fsync, rename, fsync of the folder."""
    folder.mkdir(exist_ok=True)
    staging = folder / "staging"
    with staging.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    staging.rename(folder / f"{number}.pt")
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def work() -> None:
    """Compute matrix products with Python code between them, as in a training step."""
    matrix = torch.ones(384, 384)
    for _ in range(100):
        matrix = (matrix @ matrix).clamp_(0, 1)


def timed(action: Callable[[], object]) -> float:
    """Return the duration of an action in seconds."""
    started_at = time.monotonic()
    action()
    return time.monotonic() - started_at


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median and range in milliseconds."""
    milliseconds = [1000 * value for value in values]
    return {
        "median": round(statistics.median(milliseconds), 1),
        "min": round(min(milliseconds), 1),
        "max": round(max(milliseconds), 1),
    }


def stall_lines(results: dict[str, Any]) -> list[str]:
    """Return the durations as lines of text."""
    lines = [f"{results['megabytes']} MB, {results['rounds']} rounds; milliseconds, median (range)"]
    for name, values in results["milliseconds"].items():
        lines.append(f"{name:20} {values['median']:7.1f} ({values['min']} to {values['max']})")
    return lines


def manifest_of(step: int) -> Manifest:
    """Return the manifest of a checkpoint of this benchmark."""
    return Manifest(step, GENERATION, RUN)


# --- torture ---


@dataclass(frozen=True)
class RestoredCheckpoint:
    """The checkpoint that a separate process found on the disk."""

    step: int  # -1: nothing
    is_consistent: bool  # every value belongs to this step
    skipped: int  # damaged folders that it skipped


def torture(folder: Path, kills: int, flips: int, seed: int) -> dict[str, Any]:
    """Kill and restore, then flip bytes and restore; return the counts of the results."""
    torch.set_num_threads(1)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["everstep.elastic.checkpoint.writer"])
    rng = random.Random(seed)  # noqa: S311 - the time of a kill is not secret
    violations, phases, step = list[str](), Counter[str](), 0
    for number in track(range(kills), "kills", kills):
        kill_once(context, folder, step, rng)
        phases[phase(folder)] += 1
        result, committed_step = restore_in_process(context, folder), newest_committed(folder)
        if result.step < committed_step or not result.is_consistent:
            violations.append(f"kill {number}: {result}, the committed step was {committed_step}")
        step = max(result.step, committed_step, step)
    detected_flips = 0
    for number in track(range(flips), "flips", flips):
        fault = flip_once(context, folder, rng)
        detected_flips += not fault
        violations += [f"flip {number}: {fault}"] * bool(fault)
    return {
        "kills": kills,
        "kills_by_phase": dict(phases),
        "flips": flips,
        "flips_detected": detected_flips,
        "wrong": violations,
    }


def content(step: int) -> dict[str, torch.Tensor]:
    """Return a state that contains only its step."""
    return {
        f"part{index}": torch.full((ELEMENTS_PER_TENSOR,), float(step * 100 + index))
        for index in range(TORTURE_TENSORS)
    }


def save_in_a_loop(folder: str, step: int, sender: Connection) -> None:
    """Save one step after the other until this process is killed."""
    record = Path(folder) / RECORD_FILE

    def commit(manifest: Manifest) -> bool:
        staging = record.with_suffix(".new")
        staging.write_text(str(manifest.step))
        staging.replace(record)
        return True

    def report_failure(step: int, reason: str) -> None:
        os.write(2, f"step {step}: {reason}\n".encode())

    writer = Writer(
        FolderStore(Path(folder)),
        commit=commit,
        on_written=lambda *_: None,
        on_failed=report_failure,
        keep=2,
    )

    torch.set_num_threads(1)  # on a busy machine, several threads would mostly wait for each other

    def save(step: int) -> None:
        writer.start(content(step), manifest_of(step))
        writer.wait()

    save(step + 1)  # the first save also allocates memory
    sender.send("begun")
    for step_after in itertools.count(step + 2):
        save(step_after)


def kill_once(context: ForkServerContext, folder: Path, step: int, rng: random.Random) -> None:
    """Kill a process that saves the steps after `step`, at a random time."""
    receiver, sender = context.Pipe()
    victim = context.Process(target=save_in_a_loop, args=(str(folder), step, sender))
    victim.start()
    sender.close()
    receiver.recv()
    time.sleep(rng.uniform(0, typical_save_seconds(folder) * SAVES_BEFORE_A_KILL))
    victim.kill()
    victim.join()


_save_seconds: list[float] = []


def typical_save_seconds(folder: Path) -> float:
    """Return the duration of one save on this machine; measured once."""
    if not _save_seconds:
        durations = [
            timed(
                lambda: checkpoint.write(
                    folder / "typical", content(1), manifest_of(1), commit=lambda _: True
                )
            )
            for _ in range(5)
        ]
        _save_seconds.append(statistics.median(durations))
    return _save_seconds[0]


def phase(folder: Path) -> str:
    """Return the phase of the save at the time of a kill, from the files that it left."""
    staging_folders = [path for path in folder.glob(".step-*") if path.is_dir()]
    if not staging_folders:
        return "between two saves"
    if not (staging_folders[0] / MANIFEST_FILE).exists():
        return (
            "during the write of the state file"
            if (staging_folders[0] / STATE_FILE).exists()
            else "before the write of the state file"
        )
    is_committed = staging_folders[0].name[1:14] == f"step-{newest_committed(folder):08d}"
    return "after its commit" if is_committed else "before its commit"


def newest_committed(folder: Path) -> int:
    """Return the step in the record; -1 without a record."""
    try:
        return int((folder / RECORD_FILE).read_text())
    except FileNotFoundError:
        return -1


def restore_in_process(context: ForkServerContext, folder: Path) -> RestoredCheckpoint:
    """Return the checkpoint that another process restores."""
    receiver, sender = context.Pipe()
    process = context.Process(target=restore, args=(str(folder), sender))
    process.start()
    sender.close()  # otherwise the end of a failed process would not be noticed
    try:
        result: RestoredCheckpoint = receiver.recv()
    except EOFError:
        result = RestoredCheckpoint(-1, is_consistent=False, skipped=0)
    process.join()
    return result


def restore(folder: str, sender: Connection) -> None:
    """Restore as rank 0 of a new group: complete the committed checkpoint and load the newest valid checkpoint."""
    torch.set_num_threads(1)
    logging.disable()  # damaged checkpoints are expected here
    checkpoint.place_committed(Path(folder), GENERATION, newest_committed(Path(folder)))
    skipped: list[object] = []
    newest_valid = newest_checkpoint(FolderStore(Path(folder)), RUN, skipped.append)
    if newest_valid is None:
        sender.send(RestoredCheckpoint(-1, is_consistent=True, skipped=len(skipped)))
        return
    expected, state = content(newest_valid.manifest.step), newest_valid.load()
    is_complete = expected.keys() == state.keys() and all(
        torch.equal(expected[name], state[name]) for name in expected
    )
    sender.send(RestoredCheckpoint(newest_valid.manifest.step, is_complete, len(skipped)))


def flip_once(context: ForkServerContext, folder: Path, rng: random.Random) -> str:
    """Change one byte of the newest checkpoint, restore, and undo the change; return the fault, or ""."""
    newest_folder, previous_folder = sorted(folder.glob("step-*"), reverse=True)[:2]
    file = newest_folder / rng.choice([STATE_FILE, STATE_FILE, MANIFEST_FILE])
    offset, mask = rng.randrange(file.stat().st_size), rng.randrange(1, 256)
    flip(file, offset, mask)
    result = restore_in_process(context, folder)
    flip(file, offset, mask)
    is_correct = (
        result.is_consistent
        and result.skipped == 1
        and previous_folder.name == f"step-{result.step:08d}"
    )
    return "" if is_correct else f"byte {offset} of {file.name} xor {mask}: {result}"


def flip(file: Path, offset: int, mask: int) -> None:
    """Change one byte; a second call undoes it."""
    with file.open("r+b") as stream:
        stream.seek(offset)
        (byte,) = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([byte ^ mask]))


if __name__ == "__main__":
    main()
