"""The messages between an agent and its workers, without an etcd."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from everstep.elastic.membership import node_workers
from everstep.elastic.membership.agent import Agent, NodeAssignment
from everstep.elastic.membership.etcd_client import Etcd, EtcdUnreachableError
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.events import (
    Action,
    Begin,
    Ready,
    Regroup,
    RunEnded,
    Stop,
    Withdrawn,
)
from everstep.elastic.membership.generations import Generation, GroupLimits
from everstep.elastic.membership.node_workers import NodeWorkers
from everstep.elastic.membership.own_key import AgentIdentity
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.transport import channel
from everstep.errors import EverstepError
from tests.waiting import wait_until


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[NodeWorkers]:
    """Yield a `NodeWorkers` without processes; neither it nor its agent is started."""
    workers = NodeWorkers(tmp_path / "agent.sock", "n0")
    agent = Agent(
        Etcd(EtcdOptions(endpoints=("127.0.0.1:1",))),
        "run",
        AgentIdentity("n0", "127.0.0.1"),
        GroupLimits(),
        open_store=lambda: "127.0.0.1:1",
        on_stop=workers.stop,
        on_regroup=workers.regroup,
        on_ended=workers.end,
    )
    workers._agent = agent
    with contextlib.closing(workers), contextlib.closing(agent):
        yield workers


@pytest.mark.parametrize("end", [Regroup("n1 joins"), Stop("lost n1")])
def test_the_end_of_a_generation_that_has_just_begun_names_that_generation(
    end: Action, workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a joiner would wait for a group that never leaves its generation."""
    messages: list[channel.Message] = []
    monkeypatch.setattr(workers._server, "broadcast", messages.append)
    monkeypatch.setattr(node_workers, "_run_later", lambda *_: None)
    agent = workers._running_agent()

    agent._carry_out(Begin(Generation(10, ("n0-1",), "127.0.0.1:1"), 0))
    agent._carry_out(end)  # before the thread that passes generations on has taken the 10th

    assert [message["generation"] for message in messages] == [10], "workers ignore an older number"


def test_a_node_whose_worker_waits_for_hung_storage_leaves_the_group(
    workers: NodeWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    workers._on_message(7, {"hung": "the storage has not responded for 300 s"})

    events = list(workers._running_agent()._more_events())
    assert events == [Withdrawn()], "the process may stay in the kernel, with its connections open"
    assert "has not responded for 300 s" in caplog.text


def test_an_outcome_that_does_not_reach_etcd_is_logged_and_ends_no_thread(
    workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the exception would end the thread that handles the worker's messages."""

    def fail(outcome: RunEnded, number: int) -> bool:
        raise EtcdUnreachableError(f"etcd has not responded for 600 s ({outcome}, {number})")

    monkeypatch.setattr(workers._running_agent()._keys, "put_outcome", fail)

    workers._on_message(7, {"failed": "no data", "generation": 0})
    workers._on_disconnected(7)

    assert "not announced (no data): etcd has not responded for 600 s" in caplog.text
    assert str(workers.failure) == "no data", "this node ends: its worker is in no group"


def test_messages_of_a_worker_are_handled_while_its_outcome_waits_for_etcd(
    workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the pongs of a worker would not be read during an outage of etcd, and it would be killed."""
    is_etcd_available, order = threading.Event(), list[str]()

    def announce(outcome: RunEnded, number: int) -> bool:
        is_etcd_available.wait(10)
        order.append(f"{outcome.reason}, {number}")
        return True

    monkeypatch.setattr(workers._running_agent(), "end_run", announce)
    monkeypatch.setattr(workers._running_agent(), "withdraw", lambda: order.append("withdrawn"))
    workers._generation_by_pid[7] = 3

    workers._on_message(7, {"finished": "8 steps", "generation": 3})
    workers._on_message(7, {"pong": 1.0})

    assert order == [], "etcd does not respond yet"
    assert 7 in workers._last_pong
    is_etcd_available.set()
    workers._on_disconnected(7)
    assert order == ["8 steps, 3", "withdrawn"], "the next generation would refuse the outcome"


def test_a_late_message_that_a_worker_is_ready_does_not_count_for_its_next_generation(
    workers: NodeWorkers,
) -> None:
    """Otherwise the node would wait for a group while its worker trains in one."""
    workers._on_message(7, {"hello": 7, "local_world_size": 1})
    workers._generation_by_pid[7] = 3

    workers._on_message(7, {"ready": 2})
    assert not list(workers._running_agent()._more_events())
    workers._on_message(7, {"ready": 3})

    assert list(workers._running_agent()._more_events()) == [Ready()]


def test_a_node_is_ready_once_the_last_of_its_writes_is_complete(workers: NodeWorkers) -> None:
    workers._on_message(7, {"hello": 7, "local_world_size": 2})
    workers._on_message(7, {"ready": 3, "only_copy": False, "writes": True})
    workers._on_message(8, {"ready": 3, "only_copy": True, "writes": False})
    assert not list(workers._running_agent()._more_events())

    workers._on_message(7, {"ready": 3, "only_copy": False, "writes": False})

    assert list(workers._running_agent()._more_events()) == [Ready(may_be_only_copy=True)], (
        "the state of one of its workers may be the only copy"
    )


def test_the_workers_of_a_leaving_node_learn_of_commits(
    workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[channel.Message] = []
    monkeypatch.setattr(workers._server, "broadcast", messages.append)
    workers.note_commit(StepProgress(3, 10))
    assert messages == [], "other workers need not know"

    workers.prepare_to_leave()
    workers.note_commit(StepProgress(3, 20))

    commits = [message["newest_commit"][:2] for message in messages]
    assert commits == [(0, 0), (3, 20)]


def test_a_generation_is_not_passed_on_while_a_worker_of_the_node_is_missing(
    workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the node's other workers, and the members of the group, would wait for the missing worker."""
    messages: list[channel.Message] = []
    monkeypatch.setattr(workers._server, "broadcast", messages.append)
    assignment = NodeAssignment(Generation(3, ("n0-1",), "127.0.0.1:1"), 0)
    workers._on_message(7, {"hello": 7, "local_world_size": 2})
    workers._on_message(7, {"ready": 0})

    workers._assign(assignment)
    assert messages == []
    workers._on_message(8, {"ready": 0})
    workers._assign(assignment)

    assert [message["form"] for message in messages] == [3]


@pytest.fixture
def killed_pids(workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the processes that are killed; 7, 8 and 9 are connected."""
    pids = list[int]()
    monkeypatch.setattr(workers._server, "workers", lambda: [7, 8, 9])
    monkeypatch.setattr("os.kill", lambda pid, _: pids.append(pid))
    return pids


def test_an_agent_that_was_frozen_itself_kills_no_worker(
    workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch, killed_pids: list[int]
) -> None:
    """The responses of its workers have arrived, but it has not read them yet."""
    times = iter([100.0, 130.0, 131.0])
    clock = SimpleNamespace(monotonic=lambda: next(times), sleep=lambda _: None)
    monkeypatch.setattr(node_workers, "time", clock)
    workers._last_pong[7] = 100.0

    with pytest.raises(StopIteration):
        workers._ping()

    assert killed_pids == []


def test_only_workers_that_are_still_in_the_stopped_generation_are_killed(
    workers: NodeWorkers, killed_pids: list[int]
) -> None:
    workers._generation_by_pid.update({7: 0, 8: 3, 9: 4})

    workers._kill_remaining(3)

    assert killed_pids == [8]


def test_a_worker_whose_successor_is_ready_already_is_replaced(workers: NodeWorkers) -> None:
    """The successor reports only once that it is ready: without this report the node would never join a group again."""
    workers._on_message(7, {"hello": 7, "local_world_size": 1})
    workers._generation_by_pid[7] = 3
    workers._on_message(8, {"ready": 0})
    assert not list(workers._running_agent()._more_events())

    workers._on_disconnected(7)

    assert list(workers._running_agent()._more_events()) == [Withdrawn(), Ready()]


def test_a_leaving_node_does_not_wait_for_the_checkpoint_of_a_worker_that_is_gone(
    workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers._generation_by_pid[7] = 3
    monkeypatch.setattr(workers._server, "broadcast", lambda _: workers._on_disconnected(7))

    assert workers.flush(deadline=time.monotonic() + 1)


def test_the_log_says_why_a_worker_that_does_not_respond_is_killed(
    workers: NodeWorkers, killed_pids: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    workers._last_pong[7] = 100.0

    workers._kill_frozen(107.0)
    assert killed_pids == []
    workers._kill_frozen(109.0)

    assert killed_pids == [7]
    assert "worker 7 did not respond for 8 s: killed" in caplog.text


def test_workers_count_as_running_until_they_end(workers: NodeWorkers, tmp_path: Path) -> None:
    def are_running() -> bool:
        return workers.are_running

    workers._server.start()
    assert not are_running()

    worker = channel.connect(str(tmp_path / "agent.sock"))
    worker.send({"hello": 7})
    wait_until(are_running, "the worker is connected", 10)
    workers.end(RunEnded(finished=True, reason="8 steps"))
    assert are_running(), "the program may run code after its loop"

    worker.close()
    wait_until(lambda: not are_running(), "the worker has ended", 10)


@pytest.mark.parametrize("waits", [True, False])
def test_a_node_ends_if_a_worker_waits_for_another_that_has_ended_its_program(
    waits: bool, workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, after a `break` in one of two workers, the other one would wait forever."""
    monkeypatch.setattr(node_workers, "_run_later", lambda _, check: check())
    workers._generation_by_pid = {6: 3, 7: 3}

    workers._on_message(5, {"ended": 6})
    assert workers.failure is None, "the other worker may run the code after its loop"
    if waits:
        workers._on_message(7, {"ready": 3})

    assert (workers.failure is not None) is waits
    if waits:
        assert "a worker has ended its program before the run was complete" in str(workers.failure)


@pytest.fixture
def assigned_workers(workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch) -> NodeWorkers:
    """Return the workers of a node with one worker, 7, in generation 3."""
    monkeypatch.setattr(node_workers, "_run_later", lambda *_: None)
    workers._on_message(7, {"hello": 7, "local_world_size": 1})
    workers._on_message(7, {"ready": 0})
    workers._assign(NodeAssignment(Generation(3, ("n0-1",), "127.0.0.1:1"), 0))
    return workers


@pytest.mark.parametrize("messages", [[], [{"loop_over": True, "complete": False}]])
def test_a_node_fails_if_its_only_worker_ends_its_program_before_the_run_is_complete(
    assigned_workers: NodeWorkers, messages: list[channel.Message]
) -> None:
    """Otherwise the launcher would exit with 0, and the job would count as complete."""
    for message in messages:
        assigned_workers._on_message(7, message)

    assigned_workers._on_message(5, {"ended": 7})

    assert isinstance(assigned_workers.failure, EverstepError)
    assert "on n0 a worker has ended its program" in assigned_workers.failure.problem
    assert "run.stop()" in assigned_workers.failure.fix
    assert list(assigned_workers._running_agent()._more_events())[-1] == Withdrawn()


def test_a_worker_that_ends_its_program_does_not_end_another_that_runs_the_code_after_its_loop(
    assigned_workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_pids = list[int]()
    monkeypatch.setattr(assigned_workers._server, "workers", lambda: [8, 9])
    monkeypatch.setattr(assigned_workers._server, "send", lambda pid, _: ended_pids.append(pid))
    assigned_workers._on_message(8, {"loop_over": True, "complete": False})

    assigned_workers._on_message(5, {"ended": 7})

    assert ended_pids == [9]


def test_the_end_of_a_worker_waits_for_the_outcome_of_a_complete_run(
    assigned_workers: NodeWorkers,
) -> None:
    """Another node may have announced it: the launcher would end before the agent observes it."""
    assigned_workers._on_message(7, {"loop_over": True, "complete": True})
    outcome = RunEnded(finished=True, reason="8 steps")
    timer = threading.Timer(0.2, assigned_workers.end, [outcome])
    timer.start()

    response = assigned_workers._on_message(5, {"ended": 7})

    assert (response, assigned_workers.outcome) == ({"noted": True}, outcome)
    assert assigned_workers.failure is None
    timer.join()


def test_the_last_messages_of_a_worker_are_read_before_its_end_is_judged(
    assigned_workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They arrive on another connection than the message of its supervisor."""
    monkeypatch.setattr(node_workers, "OUTCOME_SECONDS", 0.0)
    connected_pids = iter([[7], [7]])

    def connected() -> list[int]:
        if pids := next(connected_pids, []):
            return pids
        assigned_workers._on_message(7, {"loop_over": True, "complete": True})
        return []

    monkeypatch.setattr(assigned_workers._server, "workers", connected)

    assigned_workers._on_message(5, {"ended": 7})

    assert assigned_workers.failure is None


def test_a_shell_between_the_supervisor_and_a_worker_with_a_complete_loop_does_not_fail(
    assigned_workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_workers, "OUTCOME_SECONDS", 0.0)
    assigned_workers._on_message(7, {"loop_over": True, "complete": True})

    assigned_workers._on_message(5, {"ended": 6})

    assert assigned_workers.failure is None


def test_a_program_of_a_leaving_node_may_end_before_the_run_is_complete(
    assigned_workers: NodeWorkers,
) -> None:
    assigned_workers.prepare_to_leave()

    assigned_workers._on_message(5, {"ended": 7})

    assert assigned_workers.failure is None


def test_a_program_that_joins_no_group_may_end_before_the_run_is_complete(
    workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_workers, "_run_later", lambda *_: None)
    workers._on_message(7, {"hello": 7, "local_world_size": 1})

    workers._on_message(5, {"ended": 7})

    assert workers.failure is None


def test_workers_that_end_after_the_run_do_not_fail(
    workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_workers, "_run_later", lambda _, check: check())
    workers._generation_by_pid = {6: 3, 7: 0}
    workers.end(RunEnded(finished=True, reason="8 steps"))

    workers._on_message(5, {"ended": 6})

    assert workers.failure is None


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_worker_that_fails_after_the_run_does_not_start_again(
    is_complete: bool, workers: NodeWorkers
) -> None:
    """Otherwise, after an error in the code after the loop, the launcher would end with the exit code 0."""
    workers._on_message(7, {"hello": 7, "local_world_size": 1})
    workers._on_message(7, {"ready": 0})
    workers._single_crashes.record_assignment([7])
    if is_complete:
        workers.end(RunEnded(finished=True, reason="8 steps"))

    response = workers._on_message(5, {"crashed": 7})

    assert response == {"again": not is_complete}
    assert workers.has_late_failure is is_complete


def test_a_worker_that_runs_the_code_after_its_loop_is_not_killed_with_its_group(
    workers: NodeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, after the end of the first of two workers, the other one would have only 15 s to save the model."""
    killed_pids = list[int]()
    monkeypatch.setattr(workers, "_kill", lambda pid, _: killed_pids.append(pid))
    workers._generation_by_pid = {6: 3, 7: 3}

    workers._on_message(7, {"loop_over": True})
    workers._kill_remaining(3)

    assert killed_pids == [6]
