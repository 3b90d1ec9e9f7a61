"""What a checkpoint costs the training, and what survives a kill in the middle of one.

    python3 -m benchmarks.checkpoint stall --rounds 10      # ResNet-50 with momentum: 205 MB
    python3 -m benchmarks.checkpoint torture --kills 200 --flips 100
    python3 -m benchmarks.checkpoint torture --json

`stall` takes turns: torch.save with fsync, as a plain training loop does it, and the trainer's own
writer. A training step between two changes of the state is played by some matrix products ("work").
"stall" is what the training loop waits for in all: to begin the snapshot, and after the work for its
end. "at_once" is the same with no work between, so the whole copy; "while_writing" the same as
"stall" while an earlier checkpoint is still on its way to the disk. "durable" is from the begin of
the snapshot until the checkpoint is in its place, everything synced; "meanwhile" stands for a disk and
a processor that the two share.

`torture` kills a process that saves in a loop with SIGKILL at a random moment, and has another
process restore: what it finds must be whole, made of one step alone, and not older than the newest
step whose commit stands in the record, as etcd's would. Then single bytes of the newest checkpoint
are changed, one at a time: each time the restore must take the one before, or refuse with words.
Exits with 1 where anything was wrong.
"""

import argparse
import functools
import itertools
import json
import logging
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from benchmarks.progress import shown
from everstep.elastic import checkpoint
from everstep.elastic.checkpoint import MANIFEST_FILE, STATE_FILE, Manifest
from everstep.elastic.writer import Writer

RUN = {"benchmark": "checkpoint"}
GENERATION = 1
RECORD_FILE = "committed"  # stands in for etcd: the newest committed step
TORTURE_TENSORS, TORTURE_NUMBERS = 24, 100_000  # 10 MB a state: a save takes about 20 ms
SAVES_BEFORE_A_KILL = 3  # kills fall anywhere in so many saves, the gaps between them included


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["stall", "torture"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; a temporary one")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        if options.what == "stall":
            found: dict[str, Any] = stall(Path(scratch), options.rounds)
            lines = stall_lines(found)
        else:
            found = torture(Path(scratch), options.kills, options.flips, options.seed)
            lines = [f"{name}: {value}" for name, value in found.items()]
    print(json.dumps(found, indent=1) if options.json else "\n".join(lines))
    sys.exit(1 if found.get("wrong") else 0)


# --- stall ---


def resnet50_state() -> dict[str, torch.Tensor]:
    """Parameters, statistics and momentum, in the layout in which they are trained."""
    from trainer.models import build

    model = build("resnet50", 1000).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        state[f"momentum.{name}"] = torch.zeros_like(parameter)
    return state


def stall(folder: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds of each way, its rounds in turn."""
    state = resnet50_state()
    written: list[float] = []
    writer = Writer(
        folder / "ours",
        commit=lambda _: True,
        on_written=lambda *_: written.append(time.monotonic()),
        on_failed=lambda step, reason: sys.exit(f"step {step}: {reason}"),
        keep=2,
    )
    writer.prepare(state)
    time.sleep(1)  # as between the first seat and the first checkpoint
    seen: dict[str, list[float]] = defaultdict(list)

    def save(number: int) -> float:
        return timed(lambda: writer.start(state, of_step(number), steady=state.keys()))

    for number in shown(range(0, 3 * rounds, 3), "rounds", rounds):
        seen["torch_save"].append(
            timed(functools.partial(torch_save, folder / "torch", state, number % 2))
        )
        seen["work"].append(timed(work))
        began = time.monotonic()
        stalled = save(number)
        seen["work_meanwhile"].append(timed(work))
        seen["stall"].append(stalled + timed(writer.taken))
        writer.wait()
        seen["durable_meanwhile"].append(written[-1] - began)
        began = time.monotonic()
        seen["at_once"].append(save(number + 1) + timed(writer.taken))
        writer.wait()
        seen["durable"].append(written[-1] - began)
        writer.start(state, of_step(number + 1), steady=state.keys())
        stalled = save(number + 2)
        work()
        seen["while_writing"].append(stalled + timed(writer.taken))
        writer.wait()
    megabytes = sum(t.numel() * t.element_size() for t in state.values()) / 1e6
    return {
        "megabytes": round(megabytes, 1),
        "rounds": rounds,
        "milliseconds": {name: spread(values) for name, values in seen.items()},
    }


def torch_save(folder: Path, state: dict[str, torch.Tensor], number: int) -> None:
    """As a careful plain loop does it: aside, fsync, rename, fsync of the folder."""
    folder.mkdir(exist_ok=True)
    aside = folder / "aside"
    with aside.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(folder / f"{number}.pt")
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def work() -> None:
    """Matrix products and a little Python between them, as in a training step."""
    matrix = torch.ones(384, 384)
    for _ in range(100):
        matrix = (matrix @ matrix).clamp_(0, 1)


def timed(action: Callable[[], object]) -> float:
    """Seconds of an action."""
    began = time.monotonic()
    action()
    return time.monotonic() - began


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range, in milliseconds."""
    ordered = sorted(1000 * value for value in values)
    middle = statistics.median(ordered)
    return {"median": round(middle, 1), "min": round(ordered[0], 1), "max": round(ordered[-1], 1)}


def stall_lines(found: dict[str, Any]) -> list[str]:
    """For people."""
    lines = [f"{found['megabytes']} MB, {found['rounds']} rounds; milliseconds, median (range)"]
    for name, values in found["milliseconds"].items():
        lines.append(f"{name:20} {values['median']:7.1f} ({values['min']} to {values['max']})")
    return lines


def of_step(step: int) -> Manifest:
    """What a checkpoint of this benchmark is of."""
    return Manifest(step, GENERATION, RUN)


# --- torture ---


@dataclass(frozen=True)
class Restored:
    """What a process of its own found on the disk."""

    step: int  # -1: nothing
    whole: bool  # every number is the one that this step has
    skipped: int  # damaged folders that it passed over


def torture(folder: Path, kills: int, flips: int, seed: int) -> dict[str, Any]:
    """Kill and restore, then flip and restore; counts of what was found."""
    torch.set_num_threads(1)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["everstep.elastic.writer"])
    numbers = random.Random(seed)  # noqa: S311 - where a kill falls is no secret
    wrong, moments, step = list[str](), Counter[str](), 0
    for number in shown(range(kills), "kills", kills):
        step = kill_once(context, folder, step, numbers)
        moments[moment(folder)] += 1
        found, committed = restored(context, folder), newest_committed(folder)
        if found.step < committed or not found.whole:
            wrong.append(f"kill {number}: {found}, committed was {committed}")
        step = max(found.step, committed, step)
    detected = 0
    for number in shown(range(flips), "flips", flips):
        fault = flip_once(context, folder, numbers)
        detected += not fault
        wrong += [f"flip {number}: {fault}"] * bool(fault)
    return {
        "kills": kills,
        "where_they_fell": dict(moments),
        "flips": flips,
        "flips_detected": detected,
        "wrong": wrong,
    }


def content(step: int) -> dict[str, torch.Tensor]:
    """A state that holds nothing but its step."""
    return {
        f"part{index}": torch.full((TORTURE_NUMBERS,), float(step * 100 + index))
        for index in range(TORTURE_TENSORS)
    }


def save_in_a_loop(folder: str, step: int, tell: Connection) -> None:
    """The victim: saves one step after the other for as long as it lives."""
    record = Path(folder) / RECORD_FILE

    def commit(manifest: Manifest) -> bool:
        aside = record.with_suffix(".new")
        aside.write_text(str(manifest.step))
        aside.replace(record)
        return True

    writer = Writer(
        Path(folder),
        commit=commit,
        on_written=lambda *_: None,
        on_failed=lambda step, reason: os.write(2, f"step {step}: {reason}\n".encode()),
        keep=2,
    )

    torch.set_num_threads(1)  # on a busy machine several would mostly wait for each other

    def save(step: int) -> None:
        writer.start(content(step), of_step(step))
        writer.wait()

    save(step + 1)  # the first one also sets memory aside
    tell.send("begun")
    for later in itertools.count(step + 2):
        save(later)


def kill_once(context: Any, folder: Path, step: int, numbers: random.Random) -> int:  # noqa: ANN401 - a context
    """Let a process save from a step on, and kill it at a random moment; a step that it has passed."""
    hears, tells = context.Pipe()
    victim = context.Process(target=save_in_a_loop, args=(str(folder), step, tells))
    victim.start()
    hears.recv()
    time.sleep(numbers.uniform(0, typical_save_seconds(folder) * SAVES_BEFORE_A_KILL))
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    return step


_typical: list[float] = []


def typical_save_seconds(folder: Path) -> float:
    """How long one save of the torture takes here; measured once."""
    if not _typical:
        tried = [
            timed(
                lambda: checkpoint.write(
                    folder / "typical", content(1), of_step(1), commit=lambda _: True
                )
            )
            for _ in range(5)
        ]
        _typical.append(statistics.median(tried))
    return _typical[0]


def moment(folder: Path) -> str:
    """In which part of a save a kill fell, by what it left."""
    asides = [path for path in folder.glob(".step-*") if path.is_dir()]
    if not asides:
        return "between two saves"
    if not (asides[0] / MANIFEST_FILE).exists():
        return "in the state file" if (asides[0] / STATE_FILE).exists() else "before the state file"
    committed = asides[0].name[1:14] == f"step-{newest_committed(folder):08d}"
    return "after its commit" if committed else "before its commit"


def newest_committed(folder: Path) -> int:
    """The step in the record, -1 where there is none."""
    try:
        return int((folder / RECORD_FILE).read_text())
    except FileNotFoundError:
        return -1


def restored(context: Any, folder: Path) -> Restored:  # noqa: ANN401 - as above
    """What another process restores."""
    hears, tells = context.Pipe()
    process = context.Process(target=restore, args=(str(folder), tells))
    process.start()
    found: Restored = hears.recv()
    process.join()
    return found


def restore(folder: str, tell: Connection) -> None:
    """As a new group's rank 0 does it: complete what was committed, take the newest that is good."""
    torch.set_num_threads(1)
    logging.disable()  # a hundred damaged checkpoints are no news here
    checkpoint.complete(Path(folder), GENERATION, newest_committed(Path(folder)))
    skipped: list[object] = []
    found = checkpoint.newest(Path(folder), RUN, skipped.append)
    if found is None:
        tell.send(Restored(-1, whole=True, skipped=len(skipped)))
        return
    due, state = content(found.manifest.step), found.load()
    whole = due.keys() == state.keys() and all(torch.equal(due[name], state[name]) for name in due)
    tell.send(Restored(found.manifest.step, whole, len(skipped)))


def flip_once(context: Any, folder: Path, numbers: random.Random) -> str:  # noqa: ANN401 - as above
    """Change one byte of the newest checkpoint, restore, put it back; what was wrong, or nothing."""
    newest, before = sorted(folder.glob("step-*"), reverse=True)[:2]
    file = newest / numbers.choice([STATE_FILE, STATE_FILE, MANIFEST_FILE])
    place, mask = numbers.randrange(file.stat().st_size), numbers.randrange(1, 256)
    flip(file, place, mask)
    found = restored(context, folder)
    flip(file, place, mask)
    good = found.whole and found.skipped == 1 and before.name == f"step-{found.step:08d}"
    return "" if good else f"byte {place} of {file.name} xor {mask}: {found}"


def flip(file: Path, place: int, mask: int) -> None:
    """Change one byte; twice is not at all."""
    with file.open("r+b") as opened:
        opened.seek(place)
        (byte,) = opened.read(1)
        opened.seek(place)
        opened.write(bytes([byte ^ mask]))


if __name__ == "__main__":
    main()
