"""The agent of a node in live mode, with a real etcd; the tests act as the workers."""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousParameters

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.membership import node_workers, rendezvous
from everstep.elastic.membership.crashes import MAX_CRASHES_WITHOUT_STEP
from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.events import MembershipSnapshot, RunEnded
from everstep.elastic.membership.generations import Generation, Member
from everstep.elastic.membership.rendezvous import BACKEND, EtcdV3Handler
from everstep.elastic.membership.run_keys import RunKeys
from everstep.elastic.transport import channel
from tests.waiting import wait_until

pytestmark = pytest.mark.twin


@pytest.fixture
def run(endpoint: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, RunKeys]]:
    """Yield the name of a run and its keys in etcd, with which a test writes as other agents do."""
    name = request.node.name
    with contextlib.closing(Etcd(EtcdOptions(endpoints=(endpoint,)))) as etcd:
        yield name, RunKeys(etcd, name)


@pytest.fixture
def workers(
    endpoint: str, run: tuple[str, RunKeys], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator["Workers"]:
    """Yield clients of a running agent."""
    monkeypatch.setenv(AGENT_VARIABLE, str(tmp_path / "agent.sock"))
    monkeypatch.setenv("POD_NAME", "w0")
    # Other members of these tests have no agent, so their turns to propose must pass quickly.
    limits = rendezvous._limits
    monkeypatch.setattr(
        rendezvous, "_limits", lambda settings: replace(limits(settings), turn_seconds=0.1)
    )
    handler = EtcdV3Handler(
        RendezvousParameters(
            BACKEND, endpoint, run[0], 1, 3, local_addr="127.0.0.1", join_window_seconds="0.1"
        )
    )
    handler.next_rendezvous()
    with contextlib.ExitStack() as connections:
        yield Workers(tmp_path / "agent.sock", connections)
    handler.shutdown()


# Greater than any process ID, see proc(5): an agent may kill a worker that does not respond.
UNUSED_PROCESS_ID = 2**22


class Workers:
    """Clients that send the messages of workers and of their supervisors."""

    def __init__(self, path: Path, connections: contextlib.ExitStack) -> None:
        self._path, self._connections = path, connections
        self._process_ids = itertools.count(UNUSED_PROCESS_ID)

    def connect(self, **message: object) -> tuple[int, channel.MessageStream]:
        """Connect with a first message; return the process id and the connection."""
        connection = self._connections.enter_context(
            contextlib.closing(channel.connect(str(self._path)))
        )
        process_id = next(self._process_ids)
        connection.send({"hello": process_id, **message})
        return process_id, connection

    def join(self) -> tuple[int, channel.MessageStream]:
        """Connect a worker that warms up and joins a group."""
        process_id, connection = self.connect()
        connection.send({"ready": 0})
        receive(connection, "form")
        return process_id, connection

    def crash(self) -> bool:
        """Crash a worker in its first step; return True if its supervisor may restart it."""
        process_id, connection = self.join()
        connection.close()
        _, supervisor = self.connect(crashed=process_id)
        return bool(receive(supervisor, "again")["again"])


def snapshot(keys: RunKeys) -> MembershipSnapshot:
    return next(update for update in keys.read() if isinstance(update, MembershipSnapshot))


def generation_revision(keys: RunKeys) -> int:
    return snapshot(keys).revision


def member_identities(keys: RunKeys) -> list[str]:
    return [member.identity for member in snapshot(keys).members]


def receive(connection: channel.MessageStream, kind: str) -> channel.Message:
    """Return the next message of a kind, and skip others."""
    while (message := connection.receive()) is not None:
        if kind in message:
            return message
    raise AssertionError(f"the agent closed the connection before it sent {kind!r}")


def test_a_worker_that_starts_after_the_end_of_the_run_is_informed(
    workers: Workers, run: tuple[str, RunKeys]
) -> None:
    _, first_worker = workers.connect()
    run[1].put_outcome(RunEnded(finished=True, reason="all steps are done"), None)
    assert receive(first_worker, "end")["code"] == 0

    _, late_worker = workers.connect()

    assert receive(late_worker, "end") == {"end": "the run is over: all steps are done", "code": 0}


def test_a_worker_that_crashes_in_its_first_step_may_restart_a_limited_number_of_times(
    workers: Workers,
) -> None:
    # A supervisor gets the same messages as workers.
    _, supervisor = workers.connect(crashed=UNUSED_PROCESS_ID)

    restarts_allowed = [workers.crash() for _ in range(MAX_CRASHES_WITHOUT_STEP)]

    assert restarts_allowed == [True] * (MAX_CRASHES_WITHOUT_STEP - 1) + [False]
    message = receive(supervisor, "end")
    assert message["code"] is None
    assert (
        f"{MAX_CRASHES_WITHOUT_STEP} consecutive times before completing a new step"
        in message["end"]
    )


def test_a_node_whose_workers_only_crash_withdraws_and_does_not_end_the_run(
    workers: Workers, run: tuple[str, RunKeys]
) -> None:
    other_member = Member("other-1", "other", "127.0.0.1", after=99)
    run[1].put_member(other_member, 0)
    _, supervisor = workers.connect(crashed=UNUSED_PROCESS_ID)

    restarts_allowed = [workers.crash() for _ in range(MAX_CRASHES_WITHOUT_STEP)]

    assert restarts_allowed == [True] * (MAX_CRASHES_WITHOUT_STEP - 1) + [False]
    assert "on w0 the workers ended" in receive(supervisor, "end")["end"]
    updates = [update for update in run[1].read() if isinstance(update, RunEnded)]
    assert updates == [], "one faulty node must not end the run"


def test_a_worker_that_cannot_be_killed_makes_its_node_withdraw(
    workers: Workers, run: tuple[str, RunKeys], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a hung mount, for example, SIGKILL has no effect, and the process keeps its connections."""
    monkeypatch.setattr(node_workers, "LEAVE_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(node_workers, "UNKILLABLE_SECONDS", 0.5)
    workers.join()

    run[1].propose(Generation(9, ("other-1",), "none:1"), generation_revision(run[1]))

    wait_until(lambda: not member_identities(run[1]), "the others need not wait for this node", 100)


def test_a_step_resets_the_count_of_crashes(workers: Workers) -> None:
    assert [workers.crash(), workers.crash()] == [True, True]
    _, training_worker = workers.join()
    training_worker.send({"progressed": 1, "step": 1})
    training_worker.close()

    assert workers.crash()
