"""Process groups whose workers are in one process, one thread per worker, with real sockets."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from everstep.elastic.recovery import copying
from everstep.elastic.recovery.state_machine import StateReport, StepProgress, plan_copy
from everstep.elastic.transport import abortable_group
from everstep.elastic.transport.abortable_group import AbortableGroup, GroupAddress, UsualWait
from everstep.elastic.transport.group import PeerLostError
from tests.everstep.elastic.descriptors import no_descriptors_left
from tests.everstep.elastic.transport.process_groups import CPU, WAIT_SECONDS, run


def test_a_sum_is_over_all_workers(port: int) -> None:
    def work(process_group: AbortableGroup) -> float:
        tensor = torch.full((3,), float(process_group.rank + 1))
        process_group.sum(tensor)
        return float(tensor[0])

    assert run(port, 3, work) == [6.0, 6.0, 6.0]


def sum_until_aborted(process_group: AbortableGroup) -> None:
    """Start an all-reduce that another thread aborts."""
    threading.Timer(0.2, process_group.abort).start()
    with pytest.raises(PeerLostError):
        process_group.sum(torch.ones(1000))


def test_an_abort_interrupts_an_all_reduce_that_waits_for_a_frozen_peer(port: int) -> None:
    release = threading.Event()

    def work(process_group: AbortableGroup) -> bool:
        if process_group.rank == 1:  # frozen: its sockets stay open without traffic
            return release.wait(WAIT_SECONDS)
        sum_until_aborted(process_group)
        release.set()
        return True

    assert run(port, 2, work) == [True, True], "without an abort it would wait for ten minutes"


def test_connections_that_others_opened_meanwhile_survive_an_abort(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, connections = AbortableGroup._build, list[tuple[socket.socket, socket.socket]]()

    def open_others_and_build(process_group: AbortableGroup) -> None:
        connections.append(connection("0.0.0.0"))
        connections.append(connection("127.0.0.1"))
        build(process_group)
        connections.append(connection("127.0.0.1"))

    monkeypatch.setattr(AbortableGroup, "_build", open_others_and_build)
    release = threading.Event()

    def work(process_group: AbortableGroup) -> bool:
        if process_group.rank == 1:
            return release.wait(WAIT_SECONDS)
        with selectors.EpollSelector() as watcher:  # as an event loop of another library does
            for pair in connections:
                watcher.register(pair[0], selectors.EVENT_READ)
            sum_until_aborted(process_group)
            release.set()
            return True

    assert run(port, 2, work) == [True, True], "the group's own connections are shut down"
    assert len(connections) == 6
    for client, server_side in connections:
        client.sendall(b"x")
        assert server_side.recv(1) == b"x", (
            "an abort shut down a connection that is not the group's"
        )
        client.close()
        server_side.close()


def test_an_abort_needs_no_descriptor(port: int) -> None:
    both_built, release = threading.Barrier(2), threading.Event()

    def work(process_group: AbortableGroup) -> bool:
        both_built.wait(WAIT_SECONDS)  # gloo ends the process if it gets no descriptor in `build`
        if process_group.rank == 1:
            return release.wait(WAIT_SECONDS)
        with no_descriptors_left():
            sum_until_aborted(process_group)
        release.set()
        return True

    assert run(port, 2, work) == [True, True], (
        "a worker without descriptors must still leave its group"
    )


def connection(host: str) -> tuple[socket.socket, socket.socket]:
    """Return a TCP connection that has nothing to do with a group."""
    with socket.create_server((host, 0)) as server:
        client = socket.create_connection(("127.0.0.1", server.getsockname()[1]), WAIT_SECONDS)
        server_side, _ = server.accept()
    server_side.settimeout(WAIT_SECONDS)
    return client, server_side


@pytest.fixture
def no_connect_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep an attempt to build a group from timing out during the test."""
    monkeypatch.setattr(abortable_group, "CONNECT_TIMEOUT_SECONDS", 10 * WAIT_SECONDS)


def check_that_no_builder_is_left() -> None:
    for builder in [thread for thread in threading.enumerate() if thread.name == "everstep-build"]:
        builder.join(WAIT_SECONDS)
        assert not builder.is_alive(), "the attempt must not wait for its timeout"


@pytest.mark.usefixtures("no_connect_timeout")
def test_an_abort_before_the_group_is_built_shuts_down_the_connection_to_its_store(
    port: int,
) -> None:
    process_group = AbortableGroup(
        GroupAddress(1, "127.0.0.1", port, 0, 2), CPU
    )  # the other worker never connects
    threading.Timer(0.3, process_group.abort).start()

    with pytest.raises(PeerLostError, match="aborted while it was built"):
        process_group.build()

    check_that_no_builder_is_left()


@pytest.mark.usefixtures("no_connect_timeout")
def test_an_abort_before_the_store_is_connected_ends_the_attempt(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_group = AbortableGroup(
        GroupAddress(1, "127.0.0.1", port, 0, 2), CPU
    )  # the other worker never connects

    def connect_after_the_abort(*args: Any, **options: Any) -> TCPStore:
        process_group.abort()
        return TCPStore(*args, **options)

    monkeypatch.setattr(abortable_group, "TCPStore", connect_after_the_abort)

    with pytest.raises(PeerLostError, match="aborted while it was built"):
        process_group.build()

    check_that_no_builder_is_left()


def test_a_group_that_is_complete_only_after_its_abort_is_released(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its threads and connections would stay until the process ends."""
    process_group = AbortableGroup(GroupAddress(1, "127.0.0.1", port, 0, 2), CPU)
    is_closed = threading.Event()

    def create_after_the_abort(_: object) -> object:
        process_group.abort()
        is_closed.wait(WAIT_SECONDS)
        return object()

    monkeypatch.setattr(process_group, "_create", create_after_the_abort)
    with pytest.raises(PeerLostError, match="aborted while it was built"):
        process_group.build()
    process_group.close()
    is_closed.set()
    check_that_no_builder_is_left()

    assert process_group._backend is None


def test_workers_of_different_generations_do_not_form_a_group(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abortable_group, "CONNECT_TIMEOUT_SECONDS", 0.5)
    process_groups = [
        AbortableGroup(GroupAddress(5 + rank, "127.0.0.1", port, rank, 2), CPU) for rank in range(2)
    ]
    built_ranks = list[int]()

    def build(process_group: AbortableGroup) -> None:
        with contextlib.suppress(PeerLostError):
            process_group.build()
            built_ranks.append(process_group.rank)

    threads = [
        threading.Thread(target=build, args=(process_group,)) for process_group in process_groups
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    for process_group in process_groups:
        process_group.abort()

    assert not built_ranks
    check_that_no_builder_is_left()


def test_the_age_of_an_abort_counts_from_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((100.0, 103.0, 104.9, 105.0))
    monkeypatch.setattr(abortable_group, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    process_group = AbortableGroup(GroupAddress(1, "127.0.0.1", 1, 0, 2), CPU)

    process_group.abort()
    process_group.abort()

    assert [process_group.aborted_for(5), process_group.aborted_for(5)] == [False, True]


class NcclStub:
    """A stand-in for NCCL's backend that records its calls, each with the name of the calling thread."""

    def __init__(self, calls: list[tuple[str, str]]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., "NcclStub"]:
        def call(*_: object) -> "NcclStub":
            if name != "wait":
                self._calls.append((name, threading.current_thread().name))
            return self

        return call


@pytest.fixture
def nccl_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the calls of a backend that stands in for NCCL's."""
    calls = list[tuple[str, str]]()
    monkeypatch.setattr(AbortableGroup, "_create", lambda *_: NcclStub(calls))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    return calls


def test_the_communicator_of_a_gpu_is_built_with_the_group(
    port: int, nccl_calls: list[tuple[str, str]]
) -> None:
    process_group = AbortableGroup(
        GroupAddress(1, "127.0.0.1", port, 0, 2), torch.device("cuda", 0)
    )

    process_group.build()

    assert nccl_calls == [("eager_connect_single_device", "everstep-build")], (
        "an abort could not interrupt it in the training loop's thread"
    )
    process_group.close()


def test_a_state_is_copied_between_gpus_in_one_batch(
    port: int, nccl_calls: list[tuple[str, str]]
) -> None:
    process_group = AbortableGroup(
        GroupAddress(1, "127.0.0.1", port, 0, 3), torch.device("cuda", 0)
    )
    process_group.build()
    nccl_calls.clear()
    tensor = torch.ones(2)

    process_group.send_and_receive([(1, 1, tensor), (2, 2, tensor)], [(1, 3, tensor)])

    names = [name for name, _ in nccl_calls]
    assert names == ["_group_start", "send", "send", "recv", "_group_end"], (
        "NCCL would execute them one after the other outside a batch"
    )
    process_group.close()


def test_a_sum_that_nccl_ends_without_an_error_after_an_abort_has_no_result(
    port: int, nccl_calls: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    process_group = AbortableGroup(
        GroupAddress(1, "127.0.0.1", port, 0, 2), torch.device("cuda", 0)
    )
    process_group.build()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: process_group.abort())

    with pytest.raises(PeerLostError, match="aborted during the transfer"):
        process_group.sum(torch.ones(1))

    assert [name for name, _ in nccl_calls][-2:] == ["allreduce", "abort"]
    process_group.close()


class StuckOperation:
    """An operation that never ends, as sometimes with gloo when peers leave while this process is frozen."""

    ended = threading.Event()
    wait_timed_out = threading.Event()  # set if a wait lasted for `WAIT_SECONDS`

    def __init__(self, *_: object) -> None: ...

    def allreduce(self, tensors: object) -> "StuckOperation":
        return self

    def wait(self) -> None:
        if not self.ended.wait(WAIT_SECONDS):
            self.wait_timed_out.set()

    def __del__(self) -> None:
        self.wait()


def test_an_all_reduce_that_never_ends_is_abandoned(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abortable_group, "ProcessGroupGloo", StuckOperation)
    monkeypatch.setattr(abortable_group, "ABORT_TIMEOUT_SECONDS", 0.1)
    process_group = AbortableGroup(GroupAddress(1, "127.0.0.1", port, 0, 2), CPU)
    process_group.build()
    threading.Timer(0.2, process_group.abort).start()

    with pytest.raises(PeerLostError, match="does not end"):
        process_group.sum(torch.ones(1000))
    process_group.close()

    assert not StuckOperation.wait_timed_out.is_set(), (
        "neither the abandoned operation nor the shutdown of its backend may block"
    )
    StuckOperation.ended.set()


def test_an_unusually_long_wait_is_reported_until_it_ends(port: int) -> None:
    reports = threading.Semaphore(0)

    def work(process_group: AbortableGroup) -> float:
        if process_group.rank == 1:  # arrives after three reports
            assert all(reports.acquire(timeout=WAIT_SECONDS) for _ in range(3))
        process_group.sum(torch.ones(1))
        return process_group._usual_wait.limit_seconds

    limit_seconds = run(port, 2, work, reports.release)[0]

    longest_unreported = (
        abortable_group.STALL_AFTER_SECONDS + 2 * abortable_group.STALL_REPEAT_SECONDS
    )
    assert limit_seconds > 2 * longest_unreported, "this duration has become usual"


def test_a_wait_that_is_as_long_as_usual_is_not_reported(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abortable_group, "STALL_AFTER_SECONDS", 0.01)
    stall_reported = threading.Event()

    def work(process_group: AbortableGroup) -> bool:
        process_group._usual_wait.observe(10 * WAIT_SECONDS)
        was_reported = process_group.rank == 1 and stall_reported.wait(0.2)  # while rank 0 waits
        process_group.sum(torch.ones(1))
        return was_reported

    assert run(port, 2, work, stall_reported.set) == [False, False]


def test_the_usual_wait_grows_immediately_and_shrinks_slowly() -> None:
    wait = UsualWait()
    assert wait.limit_seconds == abortable_group.STALL_AFTER_SECONDS

    wait.observe(0.7)
    assert wait.limit_seconds == pytest.approx(1.4)
    wait.observe(0.01)
    assert 1.2 < wait.limit_seconds < 1.4
    for _ in range(50):
        wait.observe(0.01)

    assert wait.limit_seconds == abortable_group.STALL_AFTER_SECONDS


@pytest.mark.parametrize(
    "operation",
    [
        lambda process_group: process_group.sum(torch.ones(1)),
        lambda process_group: process_group.run(lambda backend: backend.barrier()),
        lambda process_group: process_group.all_gather(torch.ones(1)),
        lambda process_group: process_group.send_and_receive([], []),
    ],
    ids=["sum", "run", "all_gather", "send_and_receive"],
)
def test_an_aborted_group_refuses_all_operations(
    port: int, operation: Callable[[AbortableGroup], object]
) -> None:
    process_group = AbortableGroup(GroupAddress(2, "127.0.0.1", port, 0, 1), CPU)
    process_group.build()
    process_group.abort()

    with pytest.raises(PeerLostError, match="the group was aborted"):
        operation(process_group)
    process_group.close()


def test_a_group_of_one_worker_gathers_its_own_tensor(port: int) -> None:
    with contextlib.closing(
        AbortableGroup(GroupAddress(2, "127.0.0.1", port, 0, 1), CPU)
    ) as process_group:
        process_group.build()

        [gathered] = process_group.all_gather(torch.arange(3))

    assert gathered.tolist() == [0, 1, 2], "with one worker, no collective fills the result"


def test_only_missing_state_is_copied_bitwise(port: int) -> None:
    def state(seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)  # separate, since the workers are threads
        kernel = torch.randn(4, 3, 3, 3, generator=generator).to(memory_format=torch.channels_last)
        return [kernel, torch.randn(7, generator=generator), torch.tensor(5), torch.ones(2)]

    expected = state(1)

    def work(process_group: AbortableGroup) -> list[torch.Tensor]:
        tensors = state(0 if process_group.rank == 2 else 1)
        progress = StepProgress(4, 9 if process_group.rank == 2 else 10)
        computed = ((process_group.rank, process_group.rank + 1), (6 + process_group.rank, 9))
        reports = copying.compare(
            process_group, StateReport(progress, computed_units=computed), tensors
        )
        assert [report.computed_units for report in reports] == [
            ((n, n + 1), (6 + n, 9)) for n in range(3)
        ]
        plan = plan_copy(reports)
        assert plan is not None
        assert plan.sources == (0, 1)
        assert plan.missing_tensors == {2: (0, 1)}, "equal tensors are not sent"
        copying.copy(process_group, plan, tensors)
        assert copying.received_bytes(plan, process_group.rank, tensors) == (
            {0: 4 * 4 * 3 * 3 * 3, 1: 4 * 7} if process_group.rank == 2 else {}
        )
        return tensors

    for tensors in run(port, 3, work):
        assert isinstance(tensors, list), tensors
        assert all(
            torch.equal(tensor, expected_tensor)
            for tensor, expected_tensor in zip(tensors, expected, strict=True)
        )
