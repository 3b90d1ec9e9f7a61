"""What `live` and `exact` cost over torch's DistributedDataParallel while nobody comes or goes.

    python3 -m benchmarks.overhead --workers 1 2 3 --sizes 28 64 --rounds 10
    python3 -m benchmarks.overhead --workers 1 --sizes 64 --rounds 20     # against a plain loop
    python3 -m benchmarks.overhead --workers 3 --sizes 28 --json

Workers are processes on this machine that meet on loopback. Each holds every contestant at once, and
all of them take turns in blocks of a few steps, so that a slow minute of the machine meets each
alike: `plain` (one worker alone, no exchange at all), `ddp` (torch's defaults), `live` and `exact`
(the trainer's own steps, in a group whose agent only forms it once). Model, precision, optimizer,
order of samples, augmentation and normalisation are the same. A ratio is taken within each round,
against `ddp`; what is printed is the median over rounds, and the range of the middle half. `effort` is
the same ratio of the processor time that worker 0 took, which a busy machine disturbs less; it does
not show what is waited for.

Nothing is saved unless --checkpoint-seconds is given: then `live` and `exact` save as the trainer
does, `ddp` never.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import TCPStore
from torch.nn.parallel import DistributedDataParallel

from benchmarks.progress import shown
from everstep.elastic import channel
from everstep.elastic.accounting import Accounting
from everstep.elastic.group import Seat, sum_in_default_group
from everstep.elastic.live_worker import attach_live, interruptible
from everstep.elastic.sampler import share
from trainer import models
from trainer.settings import Settings, parse
from trainer.state import MOMENTUM, Trainer, assemble
from trainer.train import train_step, warm_up

SAMPLES = 4096
NEVER = 1e9  # seconds
WAIT_SECONDS = 600.0

Block = Callable[[int], None]
"""Takes so many steps."""


def main() -> None:
    """Measure each number of workers and each size of image."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--sizes", type=int, nargs="+", default=[28, 64], help="side, pixels")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4, help="in one block")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--global-batch", type=int, default=256)
    parser.add_argument("--compress", choices=["none", "bf16"], default="none", help="of `live`")
    parser.add_argument("--overlap", action="store_true", help="`live` with --overlap on, too")
    parser.add_argument("--shard-size", type=int, default=32, help="of `exact`")
    parser.add_argument("--checkpoint-seconds", type=float, default=NEVER)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainer.state", "torch._dynamo", "torchvision"])
    reports = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.sizes:
            data = synthetic(Path(scratch) / f"data-{size}", size)
            for count in options.workers:
                run = Path(scratch) / f"{size}-{count}"
                reports.append(measure(context, options, data, run, size, count))
                if not options.json:
                    print(*lines(reports[-1]), sep="\n", flush=True)
    if options.json:
        print(json.dumps(reports, indent=1))


def synthetic(folder: Path, size: int) -> Path:
    """A prepared data set of random images: of one channel like Fashion-MNIST's at its size, else of three."""
    folder.mkdir()
    numbers = np.random.default_rng(0)
    files = {}
    for part, count in (("train", SAMPLES), ("test", 16)):
        shape = (count, size, size, 1 if size == 28 else 3)
        images = numbers.integers(0, 255, shape, dtype=np.uint8)
        labels = numbers.integers(0, 10, count, dtype=np.uint8)
        for name, array in ((f"{part}-images.npy", images), (f"{part}-labels.npy", labels)):
            np.save(folder / name, array)
            digest = hashlib.sha256(array.tobytes()).hexdigest()
            files[name] = {"bytes": (folder / name).stat().st_size, "sha256": digest}
    channels = 1 if size == 28 else 3
    manifest = {
        "dataset": "fashion-mnist",
        "classes": 10,
        "mean": [0.5] * channels,
        "deviation": [0.3] * channels,
        "files": files,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


# --- the parent: one group of each kind, and what its workers report ---


def measure(
    context: Any,  # noqa: ANN401 - a context of multiprocessing
    options: argparse.Namespace,
    data: Path,
    run: Path,
    size: int,
    count: int,
) -> dict[str, Any]:
    """Start workers, let them take turns, and sum up."""
    run.mkdir()
    settings = {
        mode: [
            *("--model", options.model, "--dataset", "fashion-mnist", "--data", str(data)),
            *("--run", str(run / mode), "--mode", mode, "--epochs", "100000"),
            *("--global-batch", str(options.global_batch)),
            *("--checkpoint-seconds", str(options.checkpoint_seconds)),
            *("--checkpoint-steps", "8" if options.checkpoint_seconds < NEVER else "1000000000"),
            *("--learning-rate", "0.01", "--shard-size", str(options.shard_size)),
            *("--compress", options.compress if mode == "live" else "none"),
        ]
        for mode in ("live", "exact")
    }
    if options.overlap:
        settings["overlap"] = [*settings["live"], "--overlap", "on", "--run", str(run / "overlap")]
    port = free_port()
    with contextlib.ExitStack() as stack:
        sockets = {mode: stack.enter_context(formed_once(run, mode, count)) for mode in settings}
        hears, tells = context.Pipe()
        workers = [
            context.Process(
                target=work,
                args=(
                    Place(rank, count, port, options.rounds, options.steps),
                    settings,
                    {mode: paths[rank] for mode, paths in sockets.items()},
                    tells,
                ),
            )
            for rank in range(count)
        ]
        for worker in workers:
            worker.start()
        tells.close()
        seconds: dict[str, list[tuple[float, float]]] = hears.recv()
        for worker in workers:
            worker.join()
    return sum_up(seconds, size, count, options)


@contextlib.contextmanager
def formed_once(run: Path, mode: str, count: int) -> Iterator[list[str]]:
    """The agents of a group's workers, as far as a group that never changes needs them; their sockets."""
    store = TCPStore(
        "127.0.0.1",
        0,
        is_master=True,
        wait_for_workers=False,
        use_libuv=False,
        timeout=timedelta(seconds=WAIT_SECONDS),
    )
    ready = threading.Barrier(count)

    def agent(rank: int) -> channel.Exchange:
        def hear(pid: int, message: channel.Message) -> channel.Message | None:
            del pid
            if "out" in message:
                ready.wait(WAIT_SECONDS)
                return {
                    "form": 1,
                    "node": rank,
                    "nodes": count,
                    "host": "127.0.0.1",
                    "port": store.port,
                    "committed": [0, 0],
                }
            return {"answer": True} if "commit" in message else None

        return channel.Exchange(run / f"{mode}-{rank}.sock", hear)

    agents = [agent(rank) for rank in range(count)]
    for exchange in agents:
        exchange.start()
    try:
        yield [str(run / f"{mode}-{rank}.sock") for rank in range(count)]
    finally:
        for exchange in agents:
            exchange.close()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def sum_up(
    seconds: Mapping[str, Sequence[tuple[float, float]]],
    size: int,
    count: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Images per second and ratios to `ddp`, medians with the middle half."""
    images = options.steps * options.global_batch
    contestants = {}
    for name, taken in seconds.items():
        contestants[name] = {"images_per_second": quartiles([images / wall for wall, _ in taken])}
        for base in [name for name in ("ddp", "plain") if name in seconds]:
            pairs = list(zip(seconds[base], taken, strict=True))
            contestants[name][f"ratio_to_{base}"] = quartiles([b[0] / a[0] for b, a in pairs])
            contestants[name][f"effort_to_{base}"] = quartiles([a[1] / b[1] for b, a in pairs])
    return {
        "model": options.model,
        "pixels": size,
        "workers": count,
        "global_batch": options.global_batch,
        "shard_size": options.shard_size,
        "compress": options.compress,
        "rounds": options.rounds,
        "contestants": contestants,
    }


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Median, first and third quartile."""
    low, middle, high = (
        statistics.quantiles(values, n=4, method="inclusive")
        if len(values) > 1
        else [values[0]] * 3
    )
    return {"median": round(middle, 4), "q1": round(low, 4), "q3": round(high, 4)}


def lines(report: Mapping[str, Any]) -> list[str]:
    """For people."""
    found = [
        "{model} at {pixels} pixels, {workers} worker(s), batch {global_batch}, {rounds} rounds".format(
            **report
        )
    ]
    for name, values in report["contestants"].items():
        speed, *ratios = values.items()
        words = [
            f"{speed[1]['median']:7.1f} images/s ({speed[1]['q1']:.1f} to {speed[1]['q3']:.1f})"
        ]
        words += [
            f"{kind.replace('_', ' ')} {ratio['median']:.4f} ({ratio['q1']:.4f} to {ratio['q3']:.4f})"
            for kind, ratio in ratios
        ]
        found.append(f"  {name:6} " + "; ".join(words))
    return found


# --- one worker ---


@dataclass(frozen=True)
class Place:
    """Which worker this is, and what it has to do."""

    rank: int
    count: int
    port: int
    rounds: int
    steps: int


def work(
    place: Place, lines: dict[str, list[str]], sockets: dict[str, str], tells: Connection
) -> None:
    """All contestants in one process, block by block."""
    meet_plainly(place)
    contestants: dict[str, Block] = {}
    trainers = {mode: trainer_in_a_group(parse(lines[mode]), sockets[mode]) for mode in lines}
    reference = trainers["live"]
    threads = max(1, len(os.sched_getaffinity(0)) // place.count)
    if place.count == 1:
        contestants["plain"] = with_threads(threads, PlainLoop(reference, place, ddp=False))
    contestants["ddp"] = with_threads(threads, PlainLoop(reference, place, ddp=True))
    contestants["live"] = with_threads(threads, own_steps(reference))
    if "overlap" in trainers:
        contestants["overlap"] = with_threads(threads, own_steps(trainers["overlap"]))
    contestants["exact"] = with_threads(1, own_steps(trainers["exact"]))  # its bits depend on it
    for block in contestants.values():
        block(2)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    names = list(contestants)
    rounds = range(place.rounds)
    for number in shown(rounds, "rounds", len(rounds)) if place.rank == 0 else rounds:
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            dist.barrier()
            began, busy = time.monotonic(), time.process_time()
            contestants[name](place.steps)
            seconds[name].append((time.monotonic() - began, time.process_time() - busy))
    dist.barrier()
    if place.rank == 0:
        tells.send(seconds)
        tells.close()
    os._exit(0)  # not by the agents' end, which would be reported as a loss


def meet_plainly(place: Place) -> None:
    """The default group of torch, for DDP."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["POD_IP"] = "127.0.0.1"
    store = TCPStore(
        "127.0.0.1",
        place.port,
        is_master=place.rank == 0,
        wait_for_workers=False,
        use_libuv=False,
        timeout=timedelta(seconds=WAIT_SECONDS),
    )
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.count)


def trainer_in_a_group(settings: Settings, path: str) -> Trainer:
    """As `trainer.train.train_live` begins."""
    os.environ[channel.SOCKET_VARIABLE] = path
    accounting, device = Accounting(), torch.device("cpu")
    group = attach_live(device, accounting)
    assert group is not None
    alone = Seat(0, 1, 0, None, 1, sum_in_default_group)
    trainer = assemble(settings, group, alone, device, accounting)
    warm_up(trainer)
    interruptible(trainer.model, group.check)
    trainer.take(group.join(trainer))
    return trainer


def own_steps(trainer: Trainer) -> Block:
    """The trainer's own loop, without its evaluations."""

    def block(steps: int) -> None:
        for _ in range(steps):
            train_step(trainer)
            if trainer.leads:
                trainer.save_now_and_then()

    return block


class PlainLoop:
    """The training loop that everybody writes, over the same data and model."""

    def __init__(self, like: Trainer, place: Place, *, ddp: bool) -> None:
        self._like, self._place, self._step = like, place, 0
        settings = like.settings
        torch.manual_seed(settings.seed)
        model = models.build(settings.model, like.train_set.classes)
        model = model.to(memory_format=like.precision.memory_format)  # type: ignore[call-overload]
        groups = models.parameter_groups(model, settings.weight_decay)
        self._optimizer = torch.optim.SGD(
            groups, lr=settings.learning_rate, momentum=MOMENTUM, nesterov=True
        )
        self._model: nn.Module = DistributedDataParallel(model) if ddp else model

    def __call__(self, steps: int) -> None:
        """Take steps."""
        for _ in range(steps):
            self._take()

    def _take(self) -> None:
        like, place = self._like, self._place
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = like.schedule.rate(self._step)
        ids = like.plan.batch(self._step)
        mine = ids[share(len(ids), place.rank, place.count)]
        epoch = like.plan.epoch_of(self._step)
        images, labels = like.train_set.train_batch(mine, like.settings.seed, epoch)
        self._model.train()
        self._optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=like.precision.autocast):
            outputs = self._model(like.prepare(images))
        loss = nn.functional.cross_entropy(
            outputs.float(),
            torch.from_numpy(labels),
            label_smoothing=like.settings.label_smoothing,
        )
        loss.backward()  # type: ignore[no-untyped-call] # torch's own annotation is missing
        self._optimizer.step()
        self._step += 1
        loss.item()


def with_threads(threads: int, block: Block) -> Block:
    """A block in which torch uses so many processors."""

    def run(steps: int) -> None:
        torch.set_num_threads(threads)
        block(steps)

    return run


if __name__ == "__main__":
    main()
