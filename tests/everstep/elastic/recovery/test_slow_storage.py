"""Workers that wait for a checkpoint whose read takes longer than a collective may; the test acts as their agents."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery import live_worker
from everstep.elastic.recovery.live_worker import LiveGroup
from everstep.elastic.recovery.node_agreements import NodeAgreements
from everstep.elastic.recovery.sharded_worker import ShardedGroup
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.transport import abortable_group, channel
from everstep.elastic.transport.group import RankAssignment
from tests.everstep.elastic.recovery.test_live_worker import TrainingState
from tests.everstep.elastic.transport.process_groups import CPU, WAIT_SECONDS, group_store

COLLECTIVE_SECONDS = 1.5
READ_SECONDS = 3.0
SHARDS = 2

CreateGroup = Callable[[int, channel.MessageStream], LiveGroup]


class SlowState(TrainingState):
    """A state whose checkpoint is read slowly but steadily.

    Args:
        read_seconds: duration of a read.
    """

    def __init__(self, read_seconds: float = READ_SECONDS) -> None:
        super().__init__()
        self.read_seconds, self.timeout_seconds = read_seconds, READ_SECONDS / 2
        self.responded_at = time.monotonic
        self.reads = threading.Event()

    def restore(self, committed: StepProgress) -> int:
        self._read("all shards")
        return committed.step

    def restored_generation(self) -> int:
        return 1

    def restore_shard(self, step: int, generation: int) -> None:
        del step, generation
        self._read("one shard")

    def _read(self, part: str) -> None:
        self.reads.set()
        time.sleep(self.read_seconds)
        self.calls.append(part)


class Workers:
    """The groups of several workers, and their agents' ends of the connections.

    Args:
        size: number of workers.
        port: port of the generations' stores.
        create: function that creates the group of a rank.
    """

    def __init__(self, size: int, port: int, create: CreateGroup) -> None:
        pairs = [socket.socketpair() for _ in range(size)]
        self.agents = [channel.MessageStream(agent) for _, agent in pairs]
        self.groups = [
            create(rank, channel.MessageStream(worker)) for rank, (worker, _) in enumerate(pairs)
        ]
        self._port, self._executor = port, ThreadPoolExecutor(size)

    def form(self, number: int, ranks: Sequence[int]) -> None:
        """Assign these workers to a generation."""
        for node, rank in enumerate(ranks):
            message = {"form": number, "node": node, "nodes": len(ranks), "committed": [1, 30, "f"]}
            self.agents[rank].send({**message, "host": "127.0.0.1", "port": self._port})

    def join(self, states: Sequence[SlowState]) -> list[Future[RankAssignment]]:
        """Let all workers join their next generation."""
        return [
            self._executor.submit(group.join, state)
            for group, state in zip(self.groups, states, strict=True)
        ]

    def wait_for(self, rank: int, field: str, value: int) -> None:
        """Wait for a message of a worker."""
        while (message := self.agents[rank].receive()) is not None:
            if message.get(field) == value:
                return
        raise AssertionError(f"rank {rank} sent no message with {field} {value}")


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abortable_group, "COLLECTIVE_SECONDS", COLLECTIVE_SECONDS)
    # The listeners would end this process when the test closes its connections.
    monkeypatch.setattr(live_worker, "end_process", lambda *_, **__: None)


@contextlib.contextmanager
def workers_of(size: int, create: CreateGroup) -> Iterator[Workers]:
    with group_store() as port:
        workers = Workers(size, port, create)
        yield workers
        for group in workers.groups:
            group._leave_group()
        for agent in workers.agents:
            agent.close()
        # A listener that sees the end after this test would end the process: `end_process` is real again by then.
        for thread in threading.enumerate():
            if thread.name == "everstep-group":
                thread.join(WAIT_SECONDS)


def live_group(_: int, stream: channel.MessageStream) -> LiveGroup:
    return LiveGroup(stream, CPU)


def test_all_workers_wait_for_a_slow_read_that_makes_progress() -> None:
    states = [SlowState(), SlowState()]
    with workers_of(2, live_group) as workers:
        workers.form(5, [0, 1])
        joins = workers.join(states)

        assert [join.result(WAIT_SECONDS).sources for join in joins] == [(0,), (0,)]
        assert [group.generation for group in workers.groups] == [5, 5]

    assert "all shards" in states[0].calls, "rank 0 reads once, and is not interrupted"
    assert "all shards" not in states[1].calls


def test_the_workers_of_all_nodes_wait_for_each_shard(tmp_path: Path) -> None:
    """The first worker reads all shards; the second one reads its own afterwards, and no one reads with it."""

    def create(rank: int, stream: channel.MessageStream) -> LiveGroup:
        node, shard = divmod(rank, SHARDS)
        agreements = NodeAgreements(tmp_path / f"node-{node}", SHARDS, shard)
        group = ShardedGroup(stream, CPU, SHARDS, agreements, TimeAccount())
        group.local_rank = shard
        return group

    states = [SlowState() for _ in range(4)]
    with workers_of(4, create) as workers:
        workers.form(5, range(4))
        joins = workers.join(states)

        assert [join.result(WAIT_SECONDS).sources for join in joins] == [(0,)] * 4

    reads = [[call for call in state.calls if isinstance(call, str)] for state in states]
    assert reads == [["all shards"], ["one shard"], [], []]


def test_the_wait_for_a_slow_read_ends_when_the_agent_stops_the_generation() -> None:
    states = [SlowState(), SlowState(read_seconds=0.0)]
    with workers_of(2, live_group) as workers:
        workers.form(5, [0, 1])
        joins = workers.join(states)
        assert states[0].reads.wait(WAIT_SECONDS)

        stopped_at = time.monotonic()
        workers.agents[1].send({"stop": "lost w0", "generation": 5})
        workers.wait_for(1, "ready", 5)
        ended_at = time.monotonic()

        workers.form(6, [1])
        assert joins[1].result(WAIT_SECONDS).world_size == 1
        workers.agents[0].send({"stop": "lost w1", "generation": 5})
        workers.form(7, [0])
        joins[0].result(WAIT_SECONDS)

    assert ended_at - stopped_at < 1.0
