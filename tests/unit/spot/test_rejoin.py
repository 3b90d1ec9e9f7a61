"""How an etcd member without its data finds its way back; and that it never votes twice."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spot.rejoin import (
    Add,
    Member,
    Peers,
    Remove,
    Start,
    configuration,
    decide,
    read_members,
    settle,
)
from spot.wire import NoAnswer

INITIAL = {f"etcd-{index}": f"http://etcd-{index}:2380" for index in range(3)}


def member(index: int, *, started: bool = True, identifier: str = "") -> Member:
    return Member(
        identifier=identifier or f"id-{index}",
        peer_url=INITIAL[f"etcd-{index}"],
        started=started,
    )


ALL = [member(index) for index in range(3)]


def test_where_nobody_answers_a_cluster_begins() -> None:
    assert decide("etcd-0", INITIAL, None, has_data=False) == Start(state="new", members=INITIAL)


def test_a_cluster_that_is_just_beginning_is_begun_with() -> None:
    nobody_yet = [member(index, started=False) for index in range(3)]

    step = decide("etcd-2", INITIAL, nobody_yet, has_data=False)

    assert step == Start(state="new", members=INITIAL)


def test_a_member_that_still_has_its_data_just_starts() -> None:
    assert isinstance(decide("etcd-0", INITIAL, ALL, has_data=True), Start)


def test_a_member_without_its_data_is_taken_out_let_in_and_started_in_that_order() -> None:
    assert decide("etcd-1", INITIAL, ALL, has_data=False) == Remove(identifier="id-1")
    without = [member(0), member(2)]
    assert decide("etcd-1", INITIAL, without, has_data=False) == Add()
    let_in = [*without, member(1, started=False, identifier="new")]
    assert decide("etcd-1", INITIAL, let_in, has_data=False) == Start(
        state="existing", members=INITIAL
    )


def test_only_members_of_the_cluster_are_named_when_joining_it() -> None:
    two = [member(0), member(1, started=False)]

    step = decide("etcd-1", INITIAL, two, has_data=False)

    assert isinstance(step, Start)
    assert set(step.members) == {"etcd-0", "etcd-1"}, "etcd compares the list with its peers'"


@given(
    started=st.lists(st.booleans(), min_size=3, max_size=3),
    present=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_an_empty_member_never_starts_under_an_identity_that_has_voted(
    started: list[bool], present: list[bool]
) -> None:
    seen = [member(index, started=started[index]) for index in range(3) if present[index]]

    step = decide("etcd-0", INITIAL, seen, has_data=False)

    if isinstance(step, Start) and seen:
        assert present[0]
        assert not started[0]


def test_etcds_list_is_read_with_those_that_have_no_name_yet() -> None:
    said = {
        "members": [
            {"ID": "1", "name": "etcd-0", "peerURLs": ["http://etcd-0:2380"], "clientURLs": ["c"]},
            {"ID": "2", "peerURLs": ["http://etcd-1:2380"]},
        ]
    }

    assert read_members(said) == [
        member(0, identifier="1"),
        member(1, identifier="2", started=False),
    ]
    assert read_members({}) == []


def test_the_configuration_says_what_the_flags_say() -> None:
    flags = {"name": "etcd-0", "quota-backend-bytes": "268435456", "enable-v2": ""}
    start = Start(state="existing", members={"etcd-0": "http://a", "etcd-1": "http://b"})

    assert json.loads(json.dumps(configuration(flags, start))) == {
        "name": "etcd-0",
        "quota-backend-bytes": 268435456,
        "enable-v2": True,
        "initial-cluster": "etcd-0=http://a,etcd-1=http://b",
        "initial-cluster-state": "existing",
    }


class Scripted(Peers):
    """Peers that answer what a test says."""

    def __init__(self, *answers: list[Member] | None, quorum_after: int = 0) -> None:
        super().__init__(addresses=["http://etcd-1", "http://etcd-2"])
        self.__dict__.update(answers=list(answers), changes=[], left=quorum_after)

    def members(self) -> list[Member] | None:
        answers: list[list[Member] | None] = self.__dict__["answers"]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def change(self, what: str, body: object) -> None:
        self.__dict__["left"] -= 1
        if self.__dict__["left"] >= 0:
            raise NoAnswer("no leader")
        self.__dict__["changes"].append((what, body))


def test_silence_is_believed_only_after_a_while() -> None:
    pauses: list[float] = []
    peers = Scripted(None, None, ALL, [member(1), member(2)], [member(0, started=False), *ALL[1:]])

    start = settle("etcd-0", INITIAL, peers, has_data=False, sleep=pauses.append)

    assert start.state == "existing", "names take a moment to be known; a new cluster would split"
    assert [what for what, _ in peers.__dict__["changes"]] == ["remove", "add"]


def test_a_change_waits_for_a_leader_and_not_for_ever() -> None:
    peers = Scripted(ALL, ALL, ALL[1:], [member(0, started=False), *ALL[1:]], quorum_after=1)
    assert settle("etcd-0", INITIAL, peers, has_data=False, sleep=lambda _: None)

    without_quorum = Scripted(ALL, quorum_after=10_000)
    with pytest.raises(NoAnswer, match="no leader"):
        settle("etcd-0", INITIAL, without_quorum, has_data=False, sleep=lambda _: None)
