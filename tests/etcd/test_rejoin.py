"""Rejoining of an etcd member without its data, which never votes twice."""

import contextlib
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcd.gateway import EtcdError, EtcdMember, Peers, call
from etcd.no_data_server import NoDataServer
from etcd.rejoin import (
    MAX_REFUSALS,
    REPORT_POLLS,
    RETRY_SECONDS,
    AddMember,
    RemoveMember,
    StartEtcd,
    Wait,
    etcd_configuration,
    join,
    next_action,
)

INITIAL = {f"etcd-{index}": f"http://etcd-{index}:2380" for index in range(3)}


def member(index: int, *, started: bool = True, identifier: str = "") -> EtcdMember:
    return EtcdMember(
        identifier=identifier or f"id-{index}",
        peer_url=INITIAL[f"etcd-{index}"],
        started=started,
    )


ALL_MEMBERS = [member(index) for index in range(3)]


def test_a_new_cluster_starts_if_all_peers_report_that_they_have_no_data() -> None:
    action = next_action(
        "etcd-0", INITIAL, None, has_data=False, names_without_data={"etcd-1", "etcd-2"}
    )

    assert action == StartEtcd(state="new", members=INITIAL)


@pytest.mark.parametrize("names_without_data", [[], ["etcd-1"], ["etcd-2"]])
def test_missing_responses_do_not_prove_a_new_cluster(names_without_data: list[str]) -> None:
    """A second cluster, started during a DNS or network failure, would lose acknowledged writes."""
    action = next_action(
        "etcd-0", INITIAL, None, has_data=False, names_without_data=names_without_data
    )

    assert isinstance(action, Wait)
    assert set(action.silent_peers) == {"etcd-1", "etcd-2"} - set(names_without_data)


def test_a_cluster_without_started_members_is_new() -> None:
    not_started = [member(index, started=False) for index in range(3)]

    action = next_action("etcd-2", INITIAL, not_started, has_data=False)

    assert action == StartEtcd(state="new", members=INITIAL)


def test_a_member_with_data_starts_immediately() -> None:
    action = next_action("etcd-0", INITIAL, ALL_MEMBERS, has_data=True)

    assert action == StartEtcd(state="new", members=INITIAL), (
        "etcd ignores both and continues with its data"
    )


def test_a_member_without_data_is_removed_added_and_started_in_that_order() -> None:
    assert next_action("etcd-1", INITIAL, ALL_MEMBERS, has_data=False) == RemoveMember(
        identifier="id-1"
    )
    other_members = [member(0), member(2)]
    assert next_action("etcd-1", INITIAL, other_members, has_data=False) == AddMember()
    members_after_add = [*other_members, member(1, started=False, identifier="new")]
    assert next_action("etcd-1", INITIAL, members_after_add, has_data=False) == StartEtcd(
        state="existing", members=INITIAL
    )


def test_a_joining_member_names_only_members_of_the_cluster() -> None:
    members = [member(0), member(1, started=False)]

    action = next_action("etcd-1", INITIAL, members, has_data=False)

    assert isinstance(action, StartEtcd)
    assert set(action.members) == {"etcd-0", "etcd-1"}, "etcd compares the list with its peers'"


@given(
    started=st.lists(st.booleans(), min_size=3, max_size=3),
    present=st.lists(st.booleans(), min_size=3, max_size=3),
    silent=st.booleans(),
    names_without_data=st.sets(st.sampled_from(["etcd-1", "etcd-2"])),
)
def test_a_member_without_data_never_starts_under_an_identity_that_has_voted(
    started: list[bool], present: list[bool], silent: bool, names_without_data: set[str]
) -> None:
    members = [member(index, started=started[index]) for index in range(3) if present[index]]

    action = next_action(
        "etcd-0",
        INITIAL,
        None if silent else members,
        has_data=False,
        names_without_data=names_without_data,
    )

    if isinstance(action, StartEtcd) and silent:
        assert names_without_data == {"etcd-1", "etcd-2"}, (
            "every member must report that it has no data"
        )
    elif isinstance(action, StartEtcd):
        assert present[0]
        assert not started[0]


def test_the_configuration_file_has_the_types_of_etcds_options() -> None:
    flags = {"name": "etcd-0", "quota-backend-bytes": "268435456", "enable-v2": ""}
    start = StartEtcd(state="existing", members={"etcd-0": "http://a", "etcd-1": "http://b"})

    assert json.loads(json.dumps(etcd_configuration(flags, start))) == {
        "name": "etcd-0",
        "quota-backend-bytes": 268435456,
        "enable-v2": True,
        "initial-cluster": "etcd-0=http://a,etcd-1=http://b",
        "initial-cluster-state": "existing",
    }


class ScriptedPeers(Peers):
    """Peers with scripted responses; the last response repeats.

    Attributes:
        changes: successful changes of the membership.
    """

    def __init__(
        self,
        *responses: Sequence[EtcdMember] | None,
        refusals: int = 0,
        names_without_data: Sequence[set[str]] = (),
    ) -> None:
        super().__init__(addresses=["http://etcd-1", "http://etcd-2"])
        self._script = iter([*responses[:-1]])
        self._last_response = responses[-1]
        self._refusals = iter(range(refusals))
        self._without_data = iter(names_without_data)
        self.changes: list[str] = []

    def names_without_data(self, own_name: str) -> set[str]:
        del own_name
        return next(self._without_data, set())

    def members(self) -> list[EtcdMember] | None:
        response = next(self._script, self._last_response)
        return None if response is None else list(response)

    def remove(self, identifier: str) -> None:
        self._record(f"remove {identifier}")

    def add(self, peer_url: str) -> None:
        self._record(f"add {peer_url}")

    def _record(self, change: str) -> None:
        if next(self._refusals, None) is not None:
            raise EtcdError("no leader")
        self.changes.append(change)


def test_silent_polls_do_not_start_a_new_cluster() -> None:
    members_after_add = [member(0, started=False), *ALL_MEMBERS[1:]]
    peers = ScriptedPeers(*[None] * 100, ALL_MEMBERS, ALL_MEMBERS[1:], members_after_add)

    start = join("etcd-0", INITIAL, peers, has_data=False, sleep=lambda _: None)

    assert start.state == "existing", "DNS may lag behind; a new cluster would split the old one"
    assert peers.changes == ["remove id-0", "add http://etcd-0:2380"]


def test_a_change_of_the_membership_is_tried_again_a_limited_number_of_times() -> None:
    members_after_add = [member(0, started=False), *ALL_MEMBERS[1:]]
    script = [*[ALL_MEMBERS] * (MAX_REFUSALS + 1), ALL_MEMBERS[1:], members_after_add]
    peers = ScriptedPeers(*script, refusals=MAX_REFUSALS)
    join("etcd-0", INITIAL, peers, has_data=False, sleep=lambda _: None)
    assert peers.changes == ["remove id-0", "add http://etcd-0:2380"]

    without_quorum, pauses = ScriptedPeers(ALL_MEMBERS, refusals=10_000), list[float]()
    with pytest.raises(EtcdError, match="no leader"):
        join("etcd-0", INITIAL, without_quorum, has_data=False, sleep=pauses.append)
    assert pauses == [RETRY_SECONDS] * MAX_REFUSALS


def test_a_member_without_a_quorum_logs_how_to_start_a_new_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Otherwise two of three members that lose their data together would restart with only a traceback in the log."""
    without_quorum = ScriptedPeers(ALL_MEMBERS, refusals=10_000)

    with pytest.raises(EtcdError):
        join("etcd-0", INITIAL, without_quorum, has_data=False, sleep=lambda _: None)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == MAX_REFUSALS / REPORT_POLLS
    assert (
        "no leader; if most members have lost their data, delete the pods of all members"
        in lines[0]
    )


def test_each_peer_needs_to_report_only_once_that_it_has_no_data() -> None:
    """The first member that has all responses starts etcd, and does not respond until there is a quorum."""
    peers = ScriptedPeers(None, names_without_data=[{"etcd-2"}, set(), {"etcd-1"}])

    assert join("etcd-0", INITIAL, peers, has_data=False, sleep=lambda _: None).state == "new"


def test_three_members_without_data_start_one_new_cluster() -> None:
    """With real servers, no member starts before each member has the responses of all."""
    with contextlib.ExitStack() as stack:
        servers = {name: NoDataServer(name, "127.0.0.1", 0) for name in INITIAL}
        addresses = {name: f"http://127.0.0.1:{server.port}" for name, server in servers.items()}
        pool = stack.enter_context(ThreadPoolExecutor(3))
        starts = [
            pool.submit(
                join,
                name,
                INITIAL,
                Peers(addresses=[url for peer, url in addresses.items() if peer != name]),
                has_data=False,
                sleep=lambda _: time.sleep(0.01),
                serve=lambda own_name: servers[own_name].serve(),
            )
            for name in INITIAL
        ]

        assert [start.result(timeout=100).state for start in starts] == ["new"] * 3


def test_a_member_without_data_serves_no_etcd_client() -> None:
    server = NoDataServer("etcd-0", "127.0.0.1", 0)
    with server.serve(), pytest.raises(EtcdError, match="etcd has not started") as refusal:
        call(f"http://127.0.0.1:{server.port}", "kv/range", {})
    assert server.readers == set()
    assert "html" not in str(refusal.value)
