"""The systems under comparison, each with the services that it needs."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from benchmarks.comparison.nodes import Node
from tests.processes import free_port
from tests.trainer.elastic.nodes import running_etcd

NAMES = tuple(f"n{number}" for number in range(3))
LIGHTHOUSE = {"min_replicas": 1, "quorum_tick_ms": 100, "join_timeout_ms": 10000}
"""Options as in the README of torchft 0.2.0, which counts a replica as dead 5 s after its last heartbeat."""

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it, restarted workers read addresses of their previous attempt (pytorch/pytorch#135712, read 2026-11-23)."""

Start = Callable[[Path], contextlib.AbstractContextManager[Sequence[Node]]]


@dataclass(frozen=True)
class System:
    """A system under comparison.

    Attributes:
        name: name in the output.
        machines: context manager that runs its services in a folder and yields its machines, which are not started.
    """

    name: str
    machines: Start


@contextlib.contextmanager
def everstep(folder: Path) -> Iterator[Sequence[Node]]:
    """Yield machines with `everstep launch` and a real etcd."""
    with running_etcd(folder) as endpoint:
        yield [
            Node(
                name,
                folder,
                [
                    *(sys.executable, "-m", "everstep.elastic.launch", "--nnodes=1:3"),
                    *("--rdzv_backend=etcd", f"--rdzv_endpoint={endpoint}", "--rdzv_id=comparison"),
                    *("-m", "benchmarks.comparison.everstep_worker"),
                ],
                {"POD_IP": f"127.0.0.{2 + index}", "POD_NAME": name, "TMPDIR": str(folder)},
            )
            for index, name in enumerate(NAMES)
        ]


@contextlib.contextmanager
def torchft(folder: Path) -> Iterator[Sequence[Node]]:
    """Yield machines with one replica group each, and a lighthouse that no event disrupts."""
    os.environ.setdefault("RUST_LOG", "error")  # read when torchft is imported
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer("127.0.0.1:0", **LIGHTHOUSE)
    port = lighthouse.address().rpartition(":")[2]
    variables = {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
    launch = ["--nnodes=1", "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0"]
    try:
        yield [Node(name, folder, _torchrun(launch, "torchft_worker"), variables) for name in NAMES]
    finally:
        lighthouse.shutdown()


@contextlib.contextmanager
def torchrun(folder: Path) -> Iterator[Sequence[Node]]:
    """Yield machines of one elastic torchrun; its rendezvous store runs outside them, in this process."""
    store = TCPStore("127.0.0.1", free_port(), is_master=True, wait_for_workers=False)
    launch = [
        *("--nnodes=1:3", "--rdzv_backend=c10d", "--rdzv_id=comparison"),
        *(f"--rdzv_endpoint=127.0.0.1:{store.port}", "--rdzv_conf=is_host=0"),
        *("--local_addr=127.0.0.1",),
    ]
    yield [Node(name, folder, _torchrun(launch, "torchrun_worker"), OWN_STORE) for name in NAMES]
    del store


def _torchrun(flags: Sequence[str], worker: str) -> list[str]:
    common = ["--nproc_per_node=1", "--max_restarts=100000", "--monitor_interval=0.1"]
    program = [sys.executable, "-m", "torch.distributed.run", *flags, *common]
    return [*program, "-m", f"benchmarks.comparison.{worker}"]


SYSTEMS = (
    System("everstep", everstep),
    System("torchft", torchft),
    System("torchrun", torchrun),
)
