"""Measure the overhead of `live` and `exact` over torch's DistributedDataParallel in a stable group.

    python3 -m benchmarks.overhead --workers 1 2 3 --sizes 28 64 --rounds 10
    python3 -m benchmarks.overhead --workers 1 --sizes 64 --rounds 20     # against a plain loop
    python3 -m benchmarks.overhead --workers 3 --sizes 28 --json

Workers are local processes connected over loopback. Each has all variants, which take turns in blocks
of a few steps, so that other load on the machine affects all of them: `plain` (one worker, no
all-reduce), `ddp` (torch's defaults), `live` and `exact` (the trainer's steps, in a group that is
formed once). `ddp_shards` is `ddp` with a forward and a backward pass for each shard of `exact`, and one all-reduce
after the last: the rest of the time of `exact` is the cost of its sums. Model, precision, optimizer, order of
samples, augmentation and normalization are the same. A ratio is computed within each round, against `ddp`,
`ddp_shards`, and for one worker also against `plain`; the output has the median over rounds, and the quartiles.
`cpu_time` is the ratio of the CPU time of worker 0, which other load disturbs less; it does not include waits.

Nothing is saved unless --checkpoint-seconds is given: then `live` and `exact` save as the trainer
does, `ddp` never.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import TCPStore
from torch.nn.parallel import DistributedDataParallel

from benchmarks.progress import track
from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.data_order.sampler import Ids, SampleOrder, share
from everstep.elastic.training.worker import connect
from everstep.elastic.transport import channel
from tests.processes import free_port
from trainer import models
from trainer.classifier import MOMENTUM, Classifier, assemble
from trainer.settings import Settings, parse

SAMPLES = 4096
NEVER = 1e9  # seconds
WAIT_SECONDS = 600.0

Block = Callable[[int], None]
"""A function that takes a number of steps."""


def main() -> None:
    """Measure each number of workers and each size of image."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[28, 64], help="sides of the images, in pixels"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4, help="steps in one block")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--global-batch", type=int, default=256)
    parser.add_argument(
        "--compress", choices=["none", "bf16"], default="none", help="compression of `live`"
    )
    parser.add_argument(
        "--overlap", action="store_true", help="also measure `live` with --overlap on"
    )
    parser.add_argument("--shard-size", type=int, default=32, help="samples in a shard of `exact`")
    parser.add_argument("--checkpoint-seconds", type=float, default=NEVER)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainer.classifier", "torch._dynamo", "torchvision"])
    reports = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.sizes:
            data = random_data(Path(scratch) / f"data-{size}", size)
            for count in options.workers:
                run = Path(scratch) / f"{size}-{count}"
                reports.append(measure(context, options, data, run, size, count))
                if not options.json:
                    print(*lines(reports[-1]), sep="\n", flush=True)
    if options.json:
        print(json.dumps(reports, indent=1))


def random_data(folder: Path, size: int) -> Path:
    """Prepare a data set of random images: one channel at the size of Fashion-MNIST, else three."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    files = {}
    for part, count in (("train", SAMPLES), ("test", 16)):
        shape = (count, size, size, 1 if size == 28 else 3)
        images = rng.integers(0, 255, shape, dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
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


# --- parent process ---


def measure(
    context: ForkServerContext,
    options: argparse.Namespace,
    data: Path,
    run: Path,
    size: int,
    count: int,
) -> dict[str, Any]:
    """Start workers, run all variants in turn, and summarize."""
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
        sockets = {mode: stack.enter_context(static_group(run, mode, count)) for mode in settings}
        receiver, sender = context.Pipe()
        workers = [
            context.Process(
                target=work,
                args=(
                    WorkerTask(rank, count, port, options.rounds, options.steps),
                    settings,
                    {mode: paths[rank] for mode, paths in sockets.items()},
                    sender,
                ),
            )
            for rank in range(count)
        ]
        for worker in workers:
            worker.start()
        sender.close()
        seconds: dict[str, list[tuple[float, float]]] = receiver.recv()
        for worker in workers:
            worker.join()
    return summarize(seconds, size, count, options)


@contextlib.contextmanager
def static_group(run: Path, mode: str, count: int) -> Iterator[list[str]]:
    """Run minimal agents for a group that never changes, and yield their sockets."""
    store = TCPStore(
        "127.0.0.1",
        0,
        is_master=True,
        wait_for_workers=False,
        use_libuv=False,
        timeout=timedelta(seconds=WAIT_SECONDS),
    )
    ready = threading.Barrier(count)

    def agent(rank: int) -> channel.AgentServer:
        def receive(pid: int, message: channel.Message) -> channel.Message | None:
            del pid
            if "ready" in message:
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

        return channel.AgentServer(run / f"{mode}-{rank}.sock", receive)

    agents = [agent(rank) for rank in range(count)]
    for server in agents:
        server.start()
    try:
        yield [str(run / f"{mode}-{rank}.sock") for rank in range(count)]
    finally:
        for server in agents:
            server.close()


def summarize(
    seconds: Mapping[str, Sequence[tuple[float, float]]],
    size: int,
    count: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Return images per second, and ratios to `ddp`, `ddp_shards` and `plain`: medians and quartiles."""
    images = options.steps * options.global_batch
    variants = {}
    for name, durations in seconds.items():
        variants[name] = {"images_per_second": quartiles([images / wall for wall, _ in durations])}
        for base in [name for name in ("ddp", "ddp_shards", "plain") if name in seconds]:
            pairs = list(zip(seconds[base], durations, strict=True))
            variants[name][f"ratio_to_{base}"] = quartiles(
                [base_times[0] / times[0] for base_times, times in pairs]
            )
            variants[name][f"cpu_time_to_{base}"] = quartiles(
                [times[1] / base_times[1] for base_times, times in pairs]
            )
    return {
        "model": options.model,
        "pixels": size,
        "workers": count,
        "global_batch": options.global_batch,
        "shard_size": options.shard_size,
        "compress": options.compress,
        "rounds": options.rounds,
        "variants": variants,
    }


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Return median, first and third quartile."""
    low, middle, high = (
        statistics.quantiles(values, n=4, method="inclusive")
        if len(values) > 1
        else [values[0]] * 3
    )
    return {"median": round(middle, 4), "q1": round(low, 4), "q3": round(high, 4)}


def lines(report: Mapping[str, Any]) -> list[str]:
    """Return a report as lines of text."""
    text = [
        "{model} at {pixels} pixels, {workers} worker(s), batch {global_batch}, {rounds} rounds".format(
            **report
        )
    ]
    for name, values in report["variants"].items():
        speed, *ratios = values.items()
        parts = [
            f"{speed[1]['median']:7.1f} images/s ({speed[1]['q1']:.1f} to {speed[1]['q3']:.1f})"
        ]
        parts += [
            f"{kind.replace('_', ' ')} {ratio['median']:.4f} ({ratio['q1']:.4f} to {ratio['q3']:.4f})"
            for kind, ratio in ratios
        ]
        text.append(f"  {name:10} " + "; ".join(parts))
    return text


# --- one worker ---


@dataclass(frozen=True)
class WorkerTask:
    """The task of one worker.

    Attributes:
        rank: its rank.
        count: number of workers.
        port: port of the store of the default process group.
        rounds: number of blocks of each variant.
        steps: number of steps in a block.
    """

    rank: int
    count: int
    port: int
    rounds: int
    steps: int


def work(
    task: WorkerTask, arguments: dict[str, list[str]], sockets: dict[str, str], sender: Connection
) -> None:
    """Run all variants in one process, block by block."""
    init_default_group(task)
    variants: dict[str, Block] = {}
    trainers = {
        mode: trainer_in_a_group(parse(arguments[mode]), sockets[mode]) for mode in arguments
    }
    reference = trainers["live"]
    threads = max(1, len(os.sched_getaffinity(0)) // task.count)
    share_size = -(-reference.settings.global_batch // task.count)
    shard_size = reference.settings.shard_size
    if task.count == 1:
        variants["plain"] = with_threads(threads, PlainLoop(reference, task, share_size, ddp=False))
    variants["ddp"] = with_threads(threads, PlainLoop(reference, task, share_size, ddp=True))
    if shard_size < share_size:
        loop = PlainLoop(reference, task, shard_size, ddp=True)
        variants["ddp_shards"] = with_threads(1, loop)  # one thread, as in `exact`
    variants["live"] = with_threads(threads, trainer_steps(reference))
    if "overlap" in trainers:
        variants["overlap"] = with_threads(threads, trainer_steps(trainers["overlap"]))
    # The last bits depend on the number of threads.
    variants["exact"] = with_threads(1, trainer_steps(trainers["exact"]))
    for block in variants.values():
        block(2)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    names = list(variants)
    rounds = range(task.rounds)
    for number in track(rounds, "rounds", len(rounds)) if task.rank == 0 else rounds:
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            dist.barrier()
            started_at, cpu_start = time.monotonic(), time.process_time()
            variants[name](task.steps)
            wall = time.monotonic() - started_at
            seconds[name].append((wall, time.process_time() - cpu_start))
    dist.barrier()
    if task.rank == 0:
        sender.send(seconds)
        sender.close()
    os._exit(0)  # skips exit handlers, such as the wait for checkpoints in progress


def init_default_group(task: WorkerTask) -> None:
    """Initialize the default process group of torch, for DDP."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["POD_IP"] = "127.0.0.1"
    store = TCPStore(
        "127.0.0.1",
        task.port,
        is_master=task.rank == 0,
        wait_for_workers=False,
        use_libuv=False,
        timeout=timedelta(seconds=WAIT_SECONDS),
    )
    dist.init_process_group("gloo", store=store, rank=task.rank, world_size=task.count)


def trainer_in_a_group(settings: Settings, path: str) -> Classifier:
    """Return a trainer that has connected to its agent, as at the start of `trainer.train.train`."""
    os.environ[AGENT_VARIABLE] = path
    accounting, device = TimeAccount(), torch.device("cpu")
    return assemble(settings, connect(device, accounting), accounting, device)


def trainer_steps(trainer: Classifier) -> Block:
    """Return the trainer's loop without its evaluations; the trainer joins its group in the first block."""
    batches = iter(trainer.run)

    def block(steps: int) -> None:
        for _ in range(steps):
            trainer.train(next(batches))

    return block


class PlainLoop:
    """An ordinary training loop over the same data and model.

    Args:
        trainer: source of the samples and the settings.
        task: the worker.
        pass_size: number of samples in a forward and backward pass, at most.
        ddp: whether the model is wrapped in DistributedDataParallel.
    """

    def __init__(self, trainer: Classifier, task: WorkerTask, pass_size: int, *, ddp: bool) -> None:
        self._trainer, self._task, self._pass_size, self._step = trainer, task, pass_size, 0
        settings = trainer.settings
        self._order = SampleOrder(
            len(trainer.train_set), settings.global_batch, settings.epochs, settings.seed
        )
        torch.manual_seed(settings.seed)
        model = models.build(settings.model, trainer.train_set.class_count)
        model = model.to(memory_format=trainer.precision.memory_format)
        groups = models.parameter_groups(model, settings.weight_decay)
        self._optimizer = torch.optim.SGD(
            groups, lr=settings.learning_rate, momentum=MOMENTUM, nesterov=True
        )
        self._model: nn.Module = DistributedDataParallel(model) if ddp else model

    def __call__(self, steps: int) -> None:
        """Take a number of steps."""
        for _ in range(steps):
            self._take_step()

    def _take_step(self) -> None:
        trainer, task = self._trainer, self._task
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = trainer.schedule.rate(self._step)
        ids = self._order.batch(self._step)
        own_ids = ids[share(len(ids), task.rank, task.count)]
        self._model.train()
        self._optimizer.zero_grad()
        for first in range(0, len(own_ids), self._pass_size):
            pass_ids = own_ids[first : first + self._pass_size]
            is_last = first + self._pass_size >= len(own_ids)
            with contextlib.ExitStack() as stack:
                if isinstance(self._model, DistributedDataParallel) and not is_last:
                    stack.enter_context(self._model.no_sync())
                self._compute(pass_ids, len(pass_ids) / len(own_ids))
        self._optimizer.step()
        self._step += 1

    def _compute(self, ids: Ids, weight: float) -> None:
        """Add the gradients of one forward and backward pass."""
        trainer = self._trainer
        epoch = self._order.epoch_of(self._step)
        images, labels = trainer.train_set.train_batch(ids, trainer.settings.seed, epoch)
        with torch.autocast("cpu", torch.bfloat16, enabled=trainer.precision.dtype is not None):
            outputs = self._model(trainer.convert_input(images))
        loss = nn.functional.cross_entropy(
            outputs.float(),
            torch.from_numpy(labels),
            label_smoothing=trainer.settings.label_smoothing,
        )
        (loss * weight).backward()  # type: ignore[no-untyped-call] # torch's own annotation is missing
        loss.item()


def with_threads(threads: int, block: Block) -> Block:
    """Return a block in which torch uses this number of threads."""

    def run(steps: int) -> None:
        torch.set_num_threads(threads)
        block(steps)

    return run


if __name__ == "__main__":
    main()
