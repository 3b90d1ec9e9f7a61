"""A worker whose process survives changes of its group, with a real store; the test acts as its agent."""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import TCPStore

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.checkpoint.files import MANIFEST_FILE
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.data_order.leftover import Span
from everstep.elastic.recovery import copying, live_worker
from everstep.elastic.recovery.live_worker import LiveGroup, attach_live
from everstep.elastic.recovery.restore_watch import watch_storage
from everstep.elastic.recovery.state_machine import StateReport, StepProgress
from everstep.elastic.recovery.worker import Votes
from everstep.elastic.training.interrupt import make_interruptible
from everstep.elastic.transport import channel
from everstep.elastic.transport.abortable_group import AbortableGroup
from everstep.elastic.transport.group import PeerLostError, RankAssignment
from everstep.elastic.transport.stalls import Stall
from tests.waiting import wait_until

CPU = torch.device("cpu")
WAIT_SECONDS = 100.0  # limit on a busy machine; all waits end much earlier
STEP_WITHOUT_RESPONSE = 98  # step whose commit gets no response from the agent


class TrainingState:
    """A training state of ten numbers that records its calls."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(10)
        self.calls: list[object] = []
        self.spans: tuple[Span, ...] = ()
        self.changed = threading.Condition()
        self.responded_at: Callable[[], float] = lambda: 0.0
        self.timeout_seconds = 60.0

    def identity(self) -> dict[str, str]:
        return {"program": "a"}

    def shared_tensors(self) -> list[torch.Tensor]:
        return [self.tensor]

    def restore(self, committed: StepProgress) -> int:
        self.calls.append(("restore", committed))
        return 40

    def restored_generation(self) -> int:
        raise AssertionError("only workers with a shard of the model call this")

    def restore_shard(self, step: int, generation: int) -> None:
        raise AssertionError("only workers with a shard of the model call this")

    def watch_reading(
        self, on_hung: Callable[[str], object]
    ) -> contextlib.AbstractContextManager[None]:
        return watch_storage(self.responded_at, self.timeout_seconds, on_hung)

    def adopt(self, step: int, computed_units: tuple[Span, ...], *, keeps_units: bool) -> None:
        self.calls.append(("adopt", step, computed_units, keeps_units))

    def computed_units(self) -> tuple[Span, ...]:
        return self.spans

    def roll_back(self) -> bool:
        self.calls.append("roll back")
        return bool(self.spans)

    def save_detached(self) -> None:
        with self.changed:
            self.calls.append("save")
            self.changed.notify_all()

    def flush(self) -> None:
        """Do nothing: no write is ever in progress."""

    def note_stall(self, stall: Stall) -> None:
        self.calls.append(stall)


class AgentStub:
    """A stand-in for the agent of a worker: its side of the connection."""

    def __init__(self, path: Path) -> None:
        self.messages: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self.late_response: dict[str, Any] = {}  # sent before the next response to a commit
        self.server = channel.AgentServer(path, self._receive)
        self.server.start()
        timeout = timedelta(seconds=WAIT_SECONDS)
        self.store = TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False, timeout=timeout
        )

    def _receive(self, pid: int, message: channel.Message) -> channel.Message | None:
        del pid
        with self.changed:
            self.messages.append(dict(message))
            self.changed.notify_all()
        if "commit" not in message or message["step"] == STEP_WITHOUT_RESPONSE:
            return None
        self.server.broadcast(self.late_response)
        return {"answer": message["step"] < 100, "request": message["request"]}

    def wait_for(self, *messages: dict[str, Any]) -> None:
        """Wait until messages with at least these fields have arrived."""

        def have_arrived() -> bool:
            return all(any(m.items() <= a.items() for a in self.messages) for m in messages)

        with self.changed:
            has_arrived = self.changed.wait_for(have_arrived, WAIT_SECONDS)
        assert has_arrived, f"received only {self.messages}"

    def form(self, number: int, *, nodes: int = 1) -> None:
        self.server.broadcast(
            {
                "form": number,
                "node": 0,
                "nodes": nodes,
                "host": "127.0.0.1",
                "port": self.store.port,
                "committed": [1, 30, "f"],
            }
        )


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentStub]:
    agent = AgentStub(tmp_path / "agent.sock")
    monkeypatch.setenv(AGENT_VARIABLE, str(tmp_path / "agent.sock"))
    # The listener would end this process when the test's agent closes.
    monkeypatch.setattr("everstep.elastic.recovery.live_worker.end_process", lambda *_, **__: None)
    yield agent
    agent.server.close()
    for thread in threading.enumerate():
        if thread.name == "everstep-group":
            thread.join(WAIT_SECONDS)


@pytest.fixture
def group(agent: AgentStub) -> LiveGroup:
    group = attach_live(CPU)
    assert isinstance(group, LiveGroup)
    agent.wait_for({"hello": os.getpid(), "local_world_size": 1})
    return group


def join_generation(
    agent: AgentStub, group: LiveGroup, state: TrainingState, number: int = 5
) -> RankAssignment:
    agent.form(number)
    return group.join(state)


def test_a_single_worker_joins_and_restores_the_checkpoint(
    agent: AgentStub, group: LiveGroup
) -> None:
    state = TrainingState()

    assignment = join_generation(agent, group, state)

    agent.wait_for({"ready": 0})
    assert (assignment.rank, assignment.world_size, group.generation) == (0, 1, 5)
    assert assignment.sources == (0,), "the group continues from its state"
    assert state.calls == [("restore", StepProgress(1, 30)), ("adopt", 40, (), True)]


def test_each_step_is_applied_and_the_first_of_a_generation_is_reported(
    agent: AgentStub, group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_worker, "PROGRESS_INTERVAL_SECONDS", float("inf"))
    join_generation(agent, group, TrainingState())
    applied_values: list[int] = []

    assert not group.after_all_reduce(Votes(), lambda: applied_values.append(1))
    assert not group.after_all_reduce(Votes(), lambda: applied_values.append(2))

    assert applied_values == [1, 2]
    assert group.commit(5, 1)  # its request follows all reports, since the connection is ordered
    assert agent.messages.count({"progressed": 5, "step": 41}) == 1


def test_later_steps_are_reported_after_an_interval(
    agent: AgentStub, group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_worker, "PROGRESS_INTERVAL_SECONDS", 0.0)
    join_generation(agent, group, TrainingState())

    for _ in range(3):
        group.after_all_reduce(Votes(), lambda: None)

    assert group.commit(5, 1)
    steps = [message["step"] for message in agent.messages if "progressed" in message]
    assert steps == [41, 42, 43]


def test_a_vote_ends_the_generation_and_the_next_one_keeps_the_state(
    agent: AgentStub, group: LiveGroup
) -> None:
    state = TrainingState()
    join_generation(agent, group, state)

    assert group.after_all_reduce(Votes(regroup=1), lambda: None)
    agent.wait_for({"ready": 5})
    join_generation(agent, group, state, 6)

    assert group.generation == 6
    assert state.calls[2:] == [("adopt", 41, (), True)], "nothing is restored or rolled back"


def test_a_lost_peer_rolls_the_step_back(agent: AgentStub, group: LiveGroup) -> None:
    state = TrainingState()
    join_generation(agent, group, state)

    group.handle_group_loss("peer")

    assert state.calls[-1] == "roll back"
    agent.wait_for({"ready": 5})


def test_gradients_of_the_step_in_flight_are_kept_in_the_next_group(
    agent: AgentStub, group: LiveGroup
) -> None:
    state = TrainingState()
    join_generation(agent, group, state)
    state.spans = ((0, 4), (6, 8))

    group.handle_group_loss("peer")
    join_generation(agent, group, state, 6)

    assert state.calls[2:] == ["roll back", ("adopt", 40, ((0, 4), (6, 8)), True)]


def test_a_disk_that_hangs_while_a_checkpoint_is_read_is_reported(
    agent: AgentStub,
    group: LiveGroup,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("everstep.elastic.recovery.restore_watch.POLL_SECONDS", 0.01)
    monkeypatch.setattr("everstep.elastic.recovery.restore_watch.REPORT_SECONDS", 0.05)
    state = TrainingState()

    def hang(committed: StepProgress) -> int:
        wait_until(lambda: "all workers wait" in caplog.text, "a report", WAIT_SECONDS)
        return committed.step

    monkeypatch.setattr(state, "restore", hang)

    join_generation(agent, group, state)

    assert "still reading the checkpoint after" in caplog.text


def keep_checking(group: LiveGroup) -> None:
    """Check a group as a training loop does at each layer, until it ends."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        group.check()
        time.sleep(0.01)


def test_a_worker_whose_checkpoint_cannot_be_read_gives_up_so_that_another_node_reads(
    agent: AgentStub, group: LiveGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first byte of a pipe without a writer never comes, as from a hung mount."""
    pipe = tmp_path / "step-00000008" / MANIFEST_FILE
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    store, state = FolderStore(tmp_path), TrainingState()
    state.responded_at, state.timeout_seconds = lambda: store.responded_at, 0.5

    def read(committed: StepProgress) -> int:
        with contextlib.suppress(ValueError):
            store.check("step-00000008")
        return committed.step

    monkeypatch.setattr(state, "restore", read)
    join_thread = threading.Thread(target=join_generation, args=(agent, group, state), daemon=True)
    join_thread.start()

    with agent.changed:
        assert agent.changed.wait_for(
            lambda: any("hung" in m for m in agent.messages), WAIT_SECONDS
        )
    (message,) = [message for message in agent.messages if "hung" in message]
    assert "has not responded for" in message["hung"]
    assert join_thread.is_alive(), "the worker itself waits in the kernel"
    with pytest.raises(PeerLostError):  # its peers must not wait: the connections are shut down
        keep_checking(group)
    pipe.open("wb").close()
    agent.wait_for({"ready": 5})  # `end_process` is patched, so it waits for the next group
    pipe.unlink()
    agent.form(6)
    join_thread.join(WAIT_SECONDS)
    assert not join_thread.is_alive()


def test_a_worker_does_not_give_up_on_a_slow_disk_that_responds(
    agent: AgentStub, group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.elastic.recovery.restore_watch.POLL_SECONDS", 0.01)
    state = TrainingState()
    polls = list[float]()

    def responded_at() -> float:
        polls.append(time.monotonic())
        return polls[-1]

    state.responded_at, state.timeout_seconds = responded_at, 0.05

    def read(committed: StepProgress) -> int:
        wait_until(lambda: len(polls) > 10, "more than ten polls", WAIT_SECONDS)
        return committed.step

    monkeypatch.setattr(state, "restore", read)

    join_generation(agent, group, state)

    assert not any("hung" in message for message in agent.messages)


def test_a_leaving_worker_whose_state_no_group_receives_saves_it(
    agent: AgentStub, group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.elastic.recovery.live_worker.DETACHED_SAVE_SECONDS", 0.05)
    state = TrainingState()
    join_generation(agent, group, state)
    group.after_all_reduce(Votes(), lambda: None)
    group.handle_group_loss("peer")  # with one node left there are fewer than the minimum
    join_thread = threading.Thread(target=group.join, args=(state,), daemon=True)
    join_thread.start()
    with state.changed:
        assert not state.changed.wait_for(lambda: "save" in state.calls, 0.2), (
            "a node that stays keeps the state in memory"
        )

    agent.server.broadcast({"node_leaves": True, "newest_commit": [1, 30, "", False]})

    with state.changed:
        assert state.changed.wait_for(lambda: "save" in state.calls, WAIT_SECONDS), (
            "the only state would be lost"
        )
        assert not state.changed.wait_for(lambda: state.calls.count("save") > 1, 0.2), (
            "it is saved already"
        )
    agent.form(6)
    join_thread.join(WAIT_SECONDS)
    assert group.generation == 6, "a group that forms regardless has the state"


def test_a_leaving_worker_reports_again_once_its_state_is_committed(
    agent: AgentStub, group: LiveGroup
) -> None:
    state = TrainingState()
    join_generation(agent, group, state)
    group.after_all_reduce(Votes(), lambda: None)
    group.handle_group_loss("peer")
    agent.wait_for({"ready": 5, "only_copy": True})
    join_thread = threading.Thread(target=group.join, args=(state,), daemon=True)
    join_thread.start()

    agent.server.broadcast({"node_leaves": True, "newest_commit": [5, 40, "", False]})
    agent.server.broadcast({"newest_commit": [5, 41, "", False]})

    agent.wait_for({"ready": 5, "only_copy": False})
    agent.form(6)
    join_thread.join(WAIT_SECONDS)
    assert "save" not in state.calls


def test_the_last_worker_that_leaves_reports_again_after_its_write(
    agent: AgentStub, group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, is_written = TrainingState(), threading.Event()
    monkeypatch.setattr(state, "flush", is_written.wait)
    join_generation(agent, group, state)
    agent.server.broadcast({"regroup": "this leaves", "generation": 5, "leaving": True})
    assert group.commit(5, 1)  # its response follows the request

    assert group.regroup_votes() == (1, 1)
    assert group.after_all_reduce(Votes(regroup=1, leavers=1), lambda: None)

    agent.wait_for({"ready": 5, "only_copy": False, "writes": True})
    join_thread = threading.Thread(target=group.join, args=(state,), daemon=True)
    join_thread.start()
    assert not any(m.get("ready") == 5 and not m["writes"] for m in agent.messages)
    is_written.set()
    agent.wait_for({"ready": 5, "only_copy": False, "writes": False})
    agent.form(6)
    join_thread.join(WAIT_SECONDS)


@pytest.mark.parametrize("other_leavers", [0, 1])
def test_a_worker_that_learns_after_its_vote_that_its_node_leaves_may_be_the_only_copy(
    agent: AgentStub, group: LiveGroup, other_leavers: int
) -> None:
    join_generation(agent, group, TrainingState())
    assert group.regroup_votes() == (0, 0)
    agent.server.broadcast({"regroup": "this leaves", "generation": 5, "leaving": True})
    assert group.commit(5, 1)  # its response follows the request

    group.after_all_reduce(Votes(regroup=1, leavers=other_leavers), lambda: None)

    assert group.leaving
    agent.wait_for({"ready": 5, "only_copy": True})


def test_an_aborted_group_is_reported_only_after_the_requested_minimum_age(
    agent: AgentStub, group: LiveGroup
) -> None:
    join_generation(agent, group, TrainingState())
    agent.server.broadcast({"stop": "lost b", "generation": 5})

    with pytest.raises(PeerLostError, match="lost b"):
        keep_checking(group)
    group.check(min_age_seconds=60)


def test_a_stop_interrupts_the_forward_pass_between_layers(
    agent: AgentStub, group: LiveGroup
) -> None:
    join_generation(agent, group, TrainingState())
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    make_interruptible(model, group.check)
    model(torch.ones(1, 2)).sum().backward()
    agent.server.broadcast({"stop": "lost b", "generation": 5})

    def compute_until_stopped() -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            model(torch.ones(1, 2)).sum().backward()

    with pytest.raises(PeerLostError, match="lost b"):
        compute_until_stopped()


def test_a_generation_that_was_canceled_before_it_formed_is_skipped(
    agent: AgentStub, group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, built_generations = AbortableGroup._build, list[int]()

    def build_and_record(process_group: AbortableGroup) -> None:
        built_generations.append(process_group._address.generation)
        build(process_group)

    monkeypatch.setattr(AbortableGroup, "_build", build_and_record)
    agent.form(7, nodes=2)
    agent.server.broadcast({"stop": "lost b", "generation": 7})
    agent.form(8)
    agent.server.broadcast({"ping": 1})
    agent.wait_for({"pong": 1})  # the worker has received the messages before it

    group.join(TrainingState())

    assert built_generations == [8]
    assert group.generation == 8
    agent.wait_for({"ready": 7})


def test_a_late_stop_of_an_earlier_generation_does_not_end_the_current_one(
    agent: AgentStub, group: LiveGroup
) -> None:
    join_generation(agent, group, TrainingState())

    agent.server.broadcast({"stop": "lost b", "generation": 4})
    agent.server.broadcast({"ping": 1})
    agent.wait_for({"pong": 1})  # the worker has received the stop before it

    group.check()


def test_a_worker_that_receives_the_state_of_another_one_discards_its_own_gradients(
    agent: AgentStub, group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = TrainingState()
    join_generation(agent, group, state)
    state.spans = ((0, 4),)
    group.handle_group_loss("peer")
    ahead = StateReport(StepProgress(5, 41), checksums=(1,), computed_units=((6, 8),))
    monkeypatch.setattr(copying, "compare", lambda _, report, __: (report, ahead))
    monkeypatch.setattr(copying, "copy", lambda *_: None)

    assignment = join_generation(agent, group, state, 6)

    assert assignment.sources == (1,)
    assert state.calls[-1] == ("adopt", 41, ((6, 8),), False)


def test_a_regroup_request_applies_to_one_generation(agent: AgentStub, group: LiveGroup) -> None:
    state = TrainingState()
    join_generation(agent, group, state)
    agent.server.broadcast({"regroup": "d joins", "generation": 5, "leaving": False})
    assert group.commit(5, 1)  # its response follows the request, since the connection is ordered
    was_requested = group.is_regroup_requested
    assert was_requested

    group.after_all_reduce(Votes(regroup=1), lambda: None)
    join_generation(agent, group, state, 6)

    assert not group.is_regroup_requested
    assert not group.leaving


@pytest.fixture
def ends(agent: AgentStub, monkeypatch: pytest.MonkeyPatch) -> "queue.SimpleQueue[tuple[Any, ...]]":
    """Record the calls that would end this process."""
    del agent  # it replaces the same function
    ends: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    monkeypatch.setattr(
        "everstep.elastic.recovery.live_worker.end_process",
        lambda *end, starts_again=True: ends.put((*end, *([] if starts_again else ["not again"]))),
    )
    return ends


def test_a_worker_that_waits_for_a_group_ends_with_the_run(
    agent: AgentStub, group: LiveGroup, ends: "queue.SimpleQueue[tuple[Any, ...]]"
) -> None:
    """Otherwise the worker would wait for a group that never forms, and the node for its worker."""
    joining = threading.Thread(target=group.join, args=(TrainingState(),), daemon=True)
    joining.start()
    agent.wait_for({"ready": 0})

    agent.server.broadcast({"end": "the run is over: 8 steps", "code": 0})

    assert ends.get(timeout=WAIT_SECONDS) == ("the run is over: 8 steps", 0)
    agent.form(5)
    joining.join(WAIT_SECONDS)


def test_a_worker_that_trains_when_the_run_is_complete_ends_before_the_next_group(
    agent: AgentStub, group: LiveGroup, ends: "queue.SimpleQueue[tuple[Any, ...]]"
) -> None:
    """It may be evaluating its model; only a failed run ends it immediately."""
    state = TrainingState()
    join_generation(agent, group, state)
    agent.server.broadcast({"end": "the run is over: 8 steps", "code": 0})
    agent.server.broadcast({"ping": 1})
    agent.wait_for({"pong": 1})
    assert ends.empty()

    group.handle_agreement(0)
    agent.form(6)
    group.join(state)

    assert ends.get(timeout=WAIT_SECONDS) == ("the run is over: 8 steps", 0)
    agent.server.broadcast({"end": "the run is over: no data", "code": None})
    assert ends.get(timeout=WAIT_SECONDS) == ("the run is over: no data", "not again")


@pytest.mark.parametrize(
    ("leaves", "reason"), [(True, "this node leaves"), (False, "the node's agent is gone")]
)
def test_a_worker_whose_agent_ends_does_not_promise_to_start_again(
    agent: AgentStub,
    group: LiveGroup,
    ends: "queue.SimpleQueue[tuple[Any, ...]]",
    leaves: bool,
    reason: str,
) -> None:
    """Every orderly departure ends with this line."""
    if leaves:
        agent.server.broadcast({"node_leaves": True})
        agent.server.broadcast({"ping": 1})
        agent.wait_for({"pong": 1})

    agent.server.close()

    assert ends.get(timeout=WAIT_SECONDS) == (reason, "not again")
    assert group.leaving == leaves


def test_a_commit_needs_the_permission_of_the_agent(agent: AgentStub, group: LiveGroup) -> None:
    join_generation(agent, group, TrainingState())

    assert group.commit(5, 99)
    assert not group.commit(5, 100)
    agent.wait_for({"commit": 5, "snapshot_generation": 5, "step": 99, "run": "", "request": 1})


def test_a_late_response_counts_only_for_its_own_step(
    agent: AgentStub, group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_generation(agent, group, TrainingState())
    monkeypatch.setattr("everstep.elastic.transport.channel.RESPONSE_SECONDS", 0.05)
    assert not group.commit(5, STEP_WITHOUT_RESPONSE), "without a response a commit is not allowed"
    monkeypatch.setattr("everstep.elastic.transport.channel.RESPONSE_SECONDS", WAIT_SECONDS)
    agent.late_response = {"answer": True, "request": 1}

    assert not group.commit(5, 100), "the permission was for step 98; step 100 is refused"


def test_a_snapshot_from_before_the_state_was_replaced_is_not_committed(
    agent: AgentStub, group: LiveGroup
) -> None:
    join_generation(agent, group, TrainingState())  # restored in generation 5

    assert not group.commit(4, 1)
    assert not any("commit" in message for message in agent.messages), (
        "no request is sent to the agent"
    )


def test_without_an_agent_there_is_no_live_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)

    assert attach_live(CPU) is None
