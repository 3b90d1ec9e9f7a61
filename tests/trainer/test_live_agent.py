"""The agent of living workers and a real etcd; the test itself is the agent's worker."""

import contextlib
import itertools
from pathlib import Path

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousParameters

from everstep.elastic import channel
from everstep.elastic.crashes import CRASHES
from everstep.elastic.etcd import Etcd, EtcdOptions
from everstep.elastic.live_agent import LiveHandler
from everstep.elastic.membership_events import Ended
from everstep.elastic.rendezvous import BACKEND
from everstep.elastic.run_keys import RunKeys

pytestmark = [pytest.mark.twin, pytest.mark.timeout(60)]

runs = (f"run-{number}" for number in itertools.count())


@pytest.fixture
def run(endpoint):
    """What other agents of the run may write, by its name."""
    name = next(runs)
    with contextlib.closing(Etcd(EtcdOptions(endpoints=(endpoint,)))) as etcd:
        yield name, RunKeys(etcd, name)


@pytest.fixture
def agent(endpoint, run, tmp_path, monkeypatch):
    monkeypatch.setenv(channel.SOCKET_VARIABLE, str(tmp_path / "agent.sock"))
    monkeypatch.setenv("POD_NAME", "w0")
    handler = LiveHandler(
        RendezvousParameters(
            BACKEND, endpoint, run[0], 1, 3, local_addr="127.0.0.1", settle_seconds="0.1"
        )
    )
    handler.next_rendezvous()
    with contextlib.ExitStack() as lines:
        yield Workers(tmp_path / "agent.sock", lines)
    handler.shutdown()


# Greater than any process id, proc(5): an agent may kill a worker that does not obey.
NOBODY = 2**22


class Workers:
    """Speaks as an agent's workers do, and as their supervisors."""

    def __init__(self, path: Path, lines: contextlib.ExitStack) -> None:
        self._path, self._lines = path, lines
        self._numbers = itertools.count(NOBODY)

    def say(self, **message: object) -> tuple[int, channel.Line]:
        """A process connects with a first message; its number and its line."""
        line = self._lines.enter_context(contextlib.closing(channel.connect(str(self._path))))
        number = next(self._numbers)
        line.send({"hello": number, **message})
        return number, line

    def come(self) -> tuple[int, channel.Line]:
        """A worker warms up, and is called into a group."""
        number, line = self.say()
        line.send({"out": 0})
        hear(line, "form")
        return number, line

    def crash(self) -> bool:
        """A worker dies in its first step; whether its supervisor may start it again."""
        number, line = self.come()
        line.close()
        _, supervisor = self.say(crashed=number)
        return bool(hear(supervisor, "again")["again"])


def hear(line, kind):
    """The next message of a kind, whatever comes before it."""
    while (message := line.receive()) is not None:
        if kind in message:
            return message
    raise AssertionError(f"the agent has hung up before it said {kind!r}")


def test_a_worker_that_is_started_as_the_run_ends_hears_of_it_too(agent, run):
    _, first = agent.say()
    run[1].put_outcome(Ended(finished=True, reason="all steps are done"))
    assert hear(first, "end")["code"] == 0

    _, late = agent.say()

    assert hear(late, "end") == {"end": "the run is over: all steps are done", "code": 0}


def test_a_worker_that_dies_in_its_first_step_starts_again_alone_but_not_for_ever(agent):
    _, watcher = agent.say(crashed=NOBODY)  # a supervisor hears what workers hear

    answers = [agent.crash() for _ in range(CRASHES)]

    assert answers == [True] * (CRASHES - 1) + [False]
    said = hear(watcher, "end")
    assert said["code"] is None
    assert f"{CRASHES} times in a row before a step was done" in said["end"]


def test_a_step_forgives_the_crashes_before_it(agent):
    assert [agent.crash(), agent.crash()] == [True, True]
    _, trains = agent.come()
    trains.send({"progressed": True})
    trains.close()

    assert agent.crash()
