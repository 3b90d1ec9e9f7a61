"""Benchmark of collectives over the processes of a group: `python3 -m everstep.interconnect.benchmark` for each rank.

Any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and LOCAL_RANK can start it; `launch` does. Rank
0 prints one JSON object per line: the setup, the measurements, the unsupported collectives, and the end. NCCL's own
log lines, on the same stream, show which network carries the data; `transport` reads them.
"""

import argparse
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from everstep.interconnect.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLECTIVES,
    ELEMENT_BYTES,
    MAX_BYTES,
    MIN_BYTES,
    REDUCE_SCATTER,
    SEND_RECV,
    array_sizes,
)

WARM_UP_OPERATIONS = 2  # operations of each size before the timed ones
MIN_OPERATIONS = 4
"""Minimum number of timed operations of each size, unless --iterations is less: the first ones benefit from empty
socket buffers."""

TIMEOUT = timedelta(seconds=300)
"""Timeout of one operation, after which a peer that vanished without notice is reported."""

SHARE_OF_MEMORY = 0.8
ARRAY_MEMORY_FACTORS = {"cuda": 2.0, "cpu": 3.0}
"""Memory for an array as a multiple of its size, including what a rank receives and the copies of the backend."""


def main(arguments: "list[str] | None" = None) -> int:
    """Run the benchmark; return 0, or 1 if it failed, such as after the loss of a peer."""
    options = parse(arguments)
    try:
        run(options)
    except RuntimeError as error:  # torch's: connections that break, timeouts, memory of a GPU
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        print(f"error: rank {os.environ['RANK']} failed: {reason}", file=sys.stderr)
        return 1
    return 0


def parse(arguments: "list[str] | None") -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="everstep.interconnect.benchmark")
    add = parser.add_argument
    add(
        "--backend",
        choices=("auto", "nccl", "gloo"),
        default="auto",
        help="backend of torch.distributed; auto: nccl with a GPU, otherwise gloo",
    )
    add(
        "--collectives",
        nargs="+",
        choices=COLLECTIVES,
        default=list(COLLECTIVES),
        help="collectives to measure",
    )
    add("--min-bytes", type=positive, default=MIN_BYTES, help="smallest array, in bytes")
    add("--max-bytes", type=positive, default=MAX_BYTES, help="largest array, in bytes")
    add(
        "--iterations",
        type=positive,
        default=20,
        help="maximum number of timed operations of each size",
    )
    add("--seconds", type=float, default=2.0, help="approximate seconds for each size")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    """Return the integer of an argument.

    Raises:
        ValueError: it is not an integer, or less than 1.
    """
    value = int(text)
    if value < 1:
        raise ValueError("less than 1")
    return value


def run(options: argparse.Namespace) -> None:
    """Join the group and measure every collective with every size."""
    device = choose_device()
    backend = options.backend
    if backend == "auto":
        backend = "nccl" if device.type == "cuda" else "gloo"
    if backend == "gloo":
        device = torch.device("cpu")
    dist.init_process_group(backend, timeout=TIMEOUT)
    try:
        max_bytes = agree_on_size(options.max_bytes, device)
        note("setup", **describe(backend, device), max_bytes=options.max_bytes, largest=max_bytes)
        for collective in options.collectives:
            measure_all(collective, options, max_bytes, device)
        note("end")
    finally:
        if backend == "nccl":
            dist.destroy_process_group()


def end(code: int) -> None:
    """End this process without destroying the group.

    The destructor of a gloo group waits for its threads while it holds Python's global interpreter lock. A thread that
    frees the tensor of the last collective may wait for this lock, and neither continues.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def choose_device() -> torch.device:
    """Return this process's GPU, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def describe(backend: str, device: torch.device) -> "dict[str, object]":
    """Return the properties of the group for the first line."""
    version = ""
    if backend == "nccl":
        nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]  # torch has no types here
        version = ".".join(map(str, nccl))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {
        "ranks": dist.get_world_size(),
        "backend": backend,
        "device": name,
        "torch": torch.__version__,
        "nccl": version,
    }


def agree_on_size(max_bytes: int, device: torch.device) -> int:
    """Return the maximum size of an array: `max_bytes`, or a power of two that fits into the memory of all ranks."""
    fitting_bytes = int(
        available_bytes(device) * SHARE_OF_MEMORY / ARRAY_MEMORY_FACTORS[device.type]
    )
    fitting_bytes = max(fitting_bytes, MIN_BYTES)  # 0 or less if the container is above its limit
    agreed_bytes = torch.tensor(
        [min(max_bytes, 2 ** (fitting_bytes.bit_length() - 1))], device=device
    )
    dist.all_reduce(agreed_bytes, dist.ReduceOp.MIN)
    return int(agreed_bytes.item())


def available_bytes(device: torch.device) -> int:
    """Return the free memory for one process of this node, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(free_memory(), free_cgroup_memory()) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def free_memory() -> int:
    """Return the available memory of this machine, in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def free_cgroup_memory(folder: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory that this container may still use, in bytes."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        return int(limit) - int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # no limit, or not a container
        return 2**63 - 1


def measure_all(
    collective: str, options: argparse.Namespace, max_bytes: int, device: torch.device
) -> None:
    """Measure one collective with all sizes, and print the results."""
    for size in array_sizes(collective, dist.get_world_size(), options.min_bytes, max_bytes):
        try:
            operation = Operation(collective, size, device)
            wrong_values = operation.check()
        except (NotImplementedError, RuntimeError) as error:
            if "support" not in str(error):
                raise
            note("unsupported", collective=collective, reason=str(error).splitlines()[0])
            return
        iterations, seconds = measure(operation, options, device)
        note(
            "measurement",
            collective=collective,
            bytes=size,
            iterations=iterations,
            seconds=seconds,
            wrong=wrong_values,
        )


class Operation:
    """One collective on an array of one size, in place where the collective allows it."""

    def __init__(self, collective: str, size: int, device: torch.device) -> None:
        self._collective, self._ranks = collective, dist.get_world_size()
        elements = size // ELEMENT_BYTES
        self._array = torch.zeros(elements, device=device)
        parts = {ALL_REDUCE: 0, SEND_RECV: elements}
        self._part = torch.zeros(parts.get(collective, elements // self._ranks), device=device)

    def __call__(self) -> None:
        """Run the collective once."""
        if self._collective == ALL_REDUCE:
            dist.all_reduce(self._array)
        elif self._collective == ALL_GATHER:
            dist.all_gather_into_tensor(self._array, self._part)
        elif self._collective == REDUCE_SCATTER:
            dist.reduce_scatter_tensor(self._part, self._array)
        else:
            self._send_and_receive()

    def _send_and_receive(self) -> None:
        """Send the array to the next rank while the previous rank's array arrives."""
        rank = dist.get_rank()
        transfers = [
            # First: over gloo a sender waits until its peer is ready to receive.
            dist.P2POp(dist.irecv, self._part, (rank - 1) % self._ranks),
            dist.P2POp(dist.isend, self._array, (rank + 1) % self._ranks),
        ]
        for transfer in dist.batch_isend_irecv(transfers):
            transfer.wait()

    def check(self) -> int:
        """Run the collective with known numbers; return the number of wrong results over all ranks."""
        self._array.fill_(dist.get_rank() + 1)
        self._part.fill_(dist.get_rank() + 1)
        self()
        wrong_values = self._wrong_values()
        dist.all_reduce(wrong_values)
        self._array.zero_()  # sums of sums would overflow
        return int(wrong_values.item())

    def _wrong_values(self) -> torch.Tensor:
        """Return the number of this rank's wrong results, from arrays that every rank has filled with its rank + 1."""
        if self._collective == ALL_GATHER:
            expected = torch.arange(1.0, self._ranks + 1, device=self._array.device)
            return (self._array.view(self._ranks, -1) != expected[:, None]).sum()
        if self._collective == SEND_RECV:
            return (self._part != (dist.get_rank() - 1) % self._ranks + 1).sum()
        result = self._array if self._collective == ALL_REDUCE else self._part
        return (result != self._ranks * (self._ranks + 1) / 2).sum()


def measure(
    operation: Operation, options: argparse.Namespace, device: torch.device
) -> "tuple[int, float]":
    """Return the number of timed operations and the mean seconds of one on the slowest rank."""
    estimate = duration(operation, WARM_UP_OPERATIONS, device)
    wanted = max(MIN_OPERATIONS, int(options.seconds / max(estimate, 1e-9)))
    local_iterations = min(options.iterations, wanted)
    common_iterations = torch.tensor([local_iterations], device=device)
    dist.broadcast(common_iterations, 0)
    iterations = int(common_iterations.item())
    return iterations, duration(operation, iterations, device)


def duration(operation: Operation, count: int, device: torch.device) -> float:
    """Return the mean seconds of `count` operations on the slowest rank: a collective ends with its last rank."""
    dist.barrier()
    synchronize(device)
    started_at = time.perf_counter()
    for _ in range(count):
        operation()
    synchronize(device)
    seconds = torch.tensor([time.perf_counter() - started_at], device=device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return float(seconds.item()) / count


def synchronize(device: torch.device) -> None:
    """Wait for the GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def note(kind: str, **fields: object) -> None:
    """Print one line on rank 0."""
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps({"kind": kind, **fields}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    end(main())
