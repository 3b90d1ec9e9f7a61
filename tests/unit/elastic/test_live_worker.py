"""A living worker, with an agent's end of the line held by the test and a real store to meet at."""

import os
import threading
import time
from datetime import timedelta

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import TCPStore

from everstep.elastic import channel
from everstep.elastic.group import PeerLostError
from everstep.elastic.leftover import Span
from everstep.elastic.live_worker import LiveGroup, attach_live, interruptible
from everstep.elastic.recovery import Standing

CPU = torch.device("cpu")


class State:
    """Ten numbers, and what was asked of them."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(10)
        self.asked: list[object] = []
        self.computed: tuple[Span, ...] = ()

    def identity(self) -> str:
        return "a"

    def parts(self) -> list[torch.Tensor]:
        return [self.tensor]

    def restore(self, committed: Standing) -> int:
        self.asked.append(("restore", committed))
        return 40

    def adopt(self, step: int, kept: tuple[Span, ...], *, keeps: bool) -> None:
        self.asked.append(("adopt", step, kept, keeps))

    def kept(self) -> tuple[Span, ...]:
        return self.computed

    def roll_back(self) -> bool:
        self.asked.append("roll back")
        return bool(self.computed)


class Agent:
    """The agent's end."""

    def __init__(self, path) -> None:
        self.heard: list[dict] = []
        self.news = threading.Condition()
        self.exchange = channel.Exchange(path, self._hear)
        self.exchange.start()
        wait = timedelta(seconds=20)
        self.store = TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False, timeout=wait
        )

    def _hear(self, pid: int, message: channel.Message) -> channel.Message | None:
        del pid
        with self.news:
            self.heard.append(dict(message))
            self.news.notify_all()
        return {"answer": message["step"] < 100} if "commit" in message else None

    def wait_for(self, *messages: dict) -> None:
        with self.news:
            arrived = self.news.wait_for(
                lambda: all(message in self.heard for message in messages), 20
            )
        assert arrived, f"heard only {self.heard}"

    def form(self, number: int, *, nodes: int = 1) -> None:
        self.exchange.broadcast(
            {
                "form": number,
                "node": 0,
                "nodes": nodes,
                "host": "127.0.0.1",
                "port": self.store.port,
                "committed": [1, 30],
            }
        )


@pytest.fixture
def agent(tmp_path, monkeypatch):
    agent = Agent(tmp_path / "agent.sock")
    monkeypatch.setenv(channel.SOCKET_VARIABLE, str(tmp_path / "agent.sock"))
    # The listener would end this very process when the test's agent goes.
    monkeypatch.setattr("everstep.elastic.live_worker.end_process", lambda *_: None)
    yield agent
    agent.exchange.close()
    for thread in threading.enumerate():
        if thread.name == "everstep-group":
            thread.join(20)


@pytest.fixture
def group(agent):
    group = attach_live(CPU)
    assert isinstance(group, LiveGroup)
    agent.wait_for({"hello": os.getpid(), "local_world_size": 1})
    return group


def joined(agent: Agent, group: LiveGroup, state: State, number: int = 5):
    agent.form(number)
    return group.join(state)


def test_a_worker_asks_in_and_the_only_one_takes_up_the_checkpoint(agent, group):
    state = State()

    seat = joined(agent, group, state)

    agent.wait_for({"out": 0})
    assert (seat.rank, seat.world_size, group.generation) == (0, 1, 5)
    assert state.asked == [("restore", Standing(1, 30)), ("adopt", 40, (), True)]


def test_a_step_is_applied_and_told_of_once(agent, group):
    joined(agent, group, State())
    applied: list[int] = []

    assert not group.after_sum(0, lambda: applied.append(1))
    assert not group.after_sum(0, lambda: applied.append(2))

    assert applied == [1, 2]
    agent.wait_for({"progressed": True})
    assert agent.heard.count({"progressed": True}) == 1


def test_a_vote_ends_the_generation_and_the_next_one_keeps_the_state(agent, group):
    state = State()
    joined(agent, group, state)

    assert group.after_sum(1, lambda: None)
    agent.wait_for({"out": 5})
    joined(agent, group, state, 6)

    assert group.generation == 6
    assert state.asked[2:] == [("adopt", 41, (), True)], "nothing is restored or rolled back"


def test_a_lost_peer_rolls_the_step_back(agent, group):
    state = State()
    joined(agent, group, state)

    group.lost("peer")

    assert state.asked[-1] == "roll back"
    agent.wait_for({"out": 5})


def test_what_was_computed_of_the_step_in_flight_goes_on_in_the_next_group(agent, group):
    state = State()
    joined(agent, group, state)
    state.computed = ((0, 4), (6, 8))

    group.lost("peer")
    joined(agent, group, state, 6)

    assert state.asked[2:] == ["roll back", ("adopt", 40, ((0, 4), (6, 8)), True)]


def test_a_group_that_is_no_more_is_told_of_when_patience_ends(agent, group):
    joined(agent, group, State())
    agent.exchange.broadcast({"stop": "lost b", "generation": 5})

    def until_it_is_told() -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            group.check()

    with pytest.raises(PeerLostError, match="lost b"):
        until_it_is_told()
    group.check(patience=60)


def test_a_stop_reaches_a_layer_of_the_forward_pass(agent, group):
    joined(agent, group, State())
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    interruptible(model, group.check)
    model(torch.ones(1, 2)).sum().backward()
    agent.exchange.broadcast({"stop": "lost b", "generation": 5})

    def until_it_ends() -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            model(torch.ones(1, 2)).sum().backward()

    with pytest.raises(PeerLostError, match="lost b"):
        until_it_ends()


def test_a_generation_that_was_called_off_before_it_was_met_is_passed_over(agent, group):
    agent.form(7, nodes=2)
    agent.exchange.broadcast({"stop": "lost b", "generation": 7})
    agent.form(8)

    group.join(State())

    assert group.generation == 8
    agent.wait_for({"out": 7})


def test_a_wish_to_regroup_is_for_one_generation(agent, group):
    state = State()
    joined(agent, group, state)
    agent.exchange.broadcast({"regroup": "d joins", "generation": 5, "leaving": False})
    assert group.commit(5, 1)  # answered after the wish: the line keeps its order
    assert group.regroup_wanted

    group.after_sum(1, lambda: None)
    joined(agent, group, state, 6)

    assert not group.regroup_wanted
    assert not group.leaving


def test_a_commit_is_the_agent_s_to_allow(agent, group):
    joined(agent, group, State())

    assert group.commit(5, 99)
    assert not group.commit(5, 100)
    agent.wait_for({"commit": 5, "taken_in": 5, "step": 99})


def test_a_snapshot_from_before_the_state_was_another_s_is_not_committed(agent, group):
    joined(agent, group, State())  # restored in generation 5

    assert not group.commit(4, 1)
    assert not any("commit" in message for message in agent.heard), "the agent is not even asked"


def test_without_an_agent_there_is_no_living_group(monkeypatch):
    monkeypatch.delenv(channel.SOCKET_VARIABLE, raising=False)

    assert attach_live(CPU) is None
