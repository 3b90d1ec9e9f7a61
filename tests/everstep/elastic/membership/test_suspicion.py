"""Suspicion of silent members, with heartbeats that are late, lost or go one way only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.membership.arrivals import (
    LATE_SECONDS,
    MARGIN_SECONDS,
    MAX_SUSPICIONS,
    MIN_BEATS,
    MIN_SILENCE_SECONDS,
    SUSPICIONS_SECONDS,
    Arrivals,
    FalseSuspicions,
)
from everstep.elastic.membership.suspicion import HeartbeatMessage, ObservedGroup, Suspicion

STEP_SECONDS = 0.05
TRAINING_STEP_SECONDS = 0.2


@dataclass
class Fleet:
    """Members that exchange heartbeats in simulated time; a fence removes a key immediately.

    Attributes:
        names: members by rank.
        silent_names: members that neither send nor run.
        cut_links: sender and receiver of each lost direction.
        fence_times: members whose keys were removed, with the time.
        trains: whether the workers complete a training step every TRAINING_STEP_SECONDS.
    """

    names: Sequence[str]
    silent_names: set[str] = field(default_factory=set)
    cut_links: set[tuple[str, str]] = field(default_factory=set)
    fence_times: dict[str, float] = field(default_factory=dict)
    trains: bool = False
    trained_at: float | None = None
    now: float = 0.0

    def __post_init__(self) -> None:
        self.cores = {name: Suspicion() for name in self.names}
        self.inboxes: dict[str, list[HeartbeatMessage]] = {name: [] for name in self.names}
        self.follow()

    def follow(self) -> None:
        present_nodes = {
            name: f"node-{name}" for name in self.names if name not in self.fence_times
        }
        for name, core in self.cores.items():
            is_present = name in present_nodes
            core.follow(
                ObservedGroup(name, tuple(self.names), present_nodes) if is_present else None
            )

    def run(self, seconds: float) -> None:
        end_at = self.now + seconds
        while self.now < end_at - 1e-9:
            self.now += STEP_SECONDS
            if self.trains and self.now - (self.trained_at or 0.0) >= TRAINING_STEP_SECONDS:
                self.trained_at = self.now
            for name in self.names:
                if name not in self.silent_names:
                    self.step(name)

    def step(self, name: str) -> None:
        core, messages = self.cores[name], self.inboxes[name]
        self.inboxes[name] = []
        for sending in core.step(messages, self.now, self.trained_at):
            if (name, sending.recipient) not in self.cut_links:
                self.inboxes[sending.recipient].append(sending.message)
        for suspect in core.to_fence() if name not in self.fence_times else ():
            self.fence_times.setdefault(suspect, self.now)
            self.follow()


def fleet(size: int) -> Fleet:
    """Return members that have exchanged heartbeats for a while."""
    members = Fleet([f"m{number}" for number in range(size)])
    members.run(3.0)
    assert not members.fence_times
    return members


@pytest.mark.parametrize("size", [2, 3, 5, 9, 10, 40])
@pytest.mark.parametrize("lost_rank", [0, 1])
def test_a_silent_member_is_fenced_within_seven_tenths_of_a_second(
    size: int, lost_rank: int
) -> None:
    members = fleet(size)
    silent_since = members.now
    members.silent_names.add(f"m{lost_rank}")

    members.run(2.0)

    assert list(members.fence_times) == [f"m{lost_rank}"], "no other member is fenced"
    assert members.fence_times[f"m{lost_rank}"] - silent_since <= MIN_SILENCE_SECONDS + 0.2


def test_the_first_observer_may_be_lost_together_with_the_member() -> None:
    members = fleet(4)
    members.silent_names.update(["m0", "m1"])

    members.run(1.0)

    assert set(members.fence_times) == {"m0", "m1"}, "the next observers take their turn"


@pytest.mark.parametrize("lost_ranks", [range(8), range(20, 28)])
def test_a_large_group_survives_the_loss_of_a_rack(lost_ranks: Iterable[int]) -> None:
    members = fleet(40)
    members.silent_names.update(f"m{number}" for number in lost_ranks)

    members.run(1.0)

    assert set(members.fence_times) == members.silent_names


def test_a_member_that_one_observer_does_not_hear_is_not_fenced() -> None:
    members = fleet(4)
    members.cut_links.add(("m1", "m2"))

    members.run(60.0)

    assert not members.fence_times, "two others hear it"


@pytest.mark.parametrize(("size", "is_fenced"), [(5, False), (4, True)])
def test_the_majority_of_the_observers_that_report_decides(size: int, is_fenced: bool) -> None:
    members = fleet(size)
    last_member = f"m{size - 1}"
    members.cut_links.update([(last_member, "m0"), (last_member, "m1")])

    members.run(10.0)

    assert bool(members.fence_times) == is_fenced, f"two miss it, and {size - 3} hear it"


def test_in_a_group_of_three_a_member_that_hears_no_other_fences_no_peer() -> None:
    members = fleet(3)
    members.cut_links.update([("m1", "m0"), ("m2", "m0")])

    members.run(60.0)

    assert not members.fence_times, "no witness confirms what m0 suspects"


def test_a_member_that_no_other_hears_is_fenced() -> None:
    members = fleet(3)
    members.cut_links.update([("m0", "m1"), ("m0", "m2")])

    members.run(1.0)

    assert list(members.fence_times) == ["m0"]


def test_if_two_halves_lose_each_other_one_continues() -> None:
    members = fleet(4)
    halves = (["m0", "m1"], ["m2", "m3"])
    members.cut_links.update((a, b) for x, y in (halves, halves[::-1]) for a in x for b in y)

    members.run(5.0)

    assert sorted(members.fence_times) in halves, "otherwise no member or two groups would be left"


def test_where_heartbeats_never_pass_only_leases_decide() -> None:
    members = Fleet(["m0", "m1", "m2"])
    members.cut_links.update((a, b) for a in members.names for b in members.names)
    members.run(5.0)
    members.silent_names.add("m1")

    members.run(5.0)

    assert not members.fence_times


def training_fleet_with_a_silent_agent(size: int) -> Fleet:
    members = fleet(size)
    members.trains = True
    members.silent_names.add("m1")
    return members


@pytest.mark.parametrize("size", [2, 3, 10])
def test_a_silent_agent_next_to_workers_that_train_is_not_fenced(size: int) -> None:
    members = training_fleet_with_a_silent_agent(size)

    members.run(60.0)

    assert not members.fence_times, "each step contains the share of its workers"


@pytest.mark.parametrize("size", [2, 3, 10])
def test_a_member_is_fenced_once_neither_its_heartbeats_nor_steps_arrive(size: int) -> None:
    members = training_fleet_with_a_silent_agent(size)
    members.run(10.0)
    members.trains, stopped_at = False, members.now

    members.run(2.0)

    assert list(members.fence_times) == ["m1"]
    assert members.fence_times["m1"] - stopped_at <= MIN_SILENCE_SECONDS + 0.2


def test_a_step_clears_a_suspicion() -> None:
    members = fleet(3)
    members.cut_links.update([("m0", "m2"), ("m1", "m2")])  # no witness: m2 fences no member
    members.run(1.0)
    assert members.cores["m2"].suspects == ("m0", "m1")

    members.trains = True
    members.run(TRAINING_STEP_SECONDS)

    assert not members.cores["m2"].suspects


@given(pause=st.floats(0.3, 600.0))
def test_an_observer_that_was_frozen_suspects_no_peer(pause: float) -> None:
    members = fleet(2)
    members.now += pause
    members.inboxes["m0"].clear()  # the heartbeats of m1 were lost meanwhile

    members.run(0.2)

    assert not members.cores["m0"].suspects, "it has observed no silence"
    assert not members.fence_times


@given(st.lists(st.floats(0.01, 0.16), min_size=MIN_BEATS, max_size=300))
def test_heartbeats_that_are_hardly_late_are_never_suspicious(gaps: list[float]) -> None:
    arrivals, now = Arrivals(), 0.0
    for gap in gaps:
        now += gap
        assert arrivals.level(now) < 1
        arrivals.record(now)


@given(st.lists(st.floats(0.0, 0.6), min_size=MIN_BEATS, max_size=100), st.floats(0.0, 10.0))
def test_suspicion_grows_with_silence_and_is_slower_for_a_less_punctual_member(
    gaps: list[float], silence: float
) -> None:
    punctual, irregular, now = Arrivals(), Arrivals(), 0.0
    for gap in gaps:
        now += gap
        irregular.record(now)
    for number in range(MIN_BEATS + 1):
        punctual.record(now - 0.1 * (MIN_BEATS - number))

    level = irregular.level(now + silence)

    assert level <= irregular.level(now + silence + 0.1)
    assert level <= punctual.level(now + silence) + 1e-9
    limit = max(MIN_SILENCE_SECONDS, MARGIN_SECONDS + max(gaps))
    if silence >= limit + 1e-6:
        assert level >= 1, "a constant margin after the longest gap"
    if silence < gaps[-1] + MARGIN_SECONDS - 1e-6:
        assert level < 1, "not within the margin after the latest gap"


def test_a_false_suspicion_doubles_the_silence_before_the_next_for_some_minutes() -> None:
    suspicions = FalseSuspicions()
    suspicions.record_suspicion(10.0)
    suspicions.record_return(10.5)

    assert suspicions.threshold(100.0) == 2.0
    assert suspicions.threshold(400.0) == 1.0, "it is forgotten"


def test_a_node_that_was_really_lost_is_not_given_more_time() -> None:
    suspicions = FalseSuspicions()
    suspicions.record_suspicion(10.0)
    suspicions.record_return(10.0 + LATE_SECONDS + 0.1)

    assert suspicions.threshold(11.0) == 1.0


@given(st.lists(st.floats(0.0, 1000.0), max_size=100))
def test_a_node_is_suspected_at_most_three_times_a_minute(moments: list[float]) -> None:
    suspicions, suspicion_times = FalseSuspicions(), list[float]()
    for now in sorted(moments):
        if suspicions.threshold(now) <= 1:
            suspicions.record_suspicion(now)
            suspicion_times.append(now)

    for start in suspicion_times:
        nearby_times = [
            time for time in suspicion_times if start <= time < start + SUSPICIONS_SECONDS
        ]
        assert len(nearby_times) <= MAX_SUSPICIONS, "it would leave and join endlessly"


def test_a_suspect_that_registers_again_immediately_was_suspected_by_mistake() -> None:
    members = fleet(3)
    members.silent_names.add("m2")
    members.run(0.7)
    assert list(members.fence_times) == ["m2"]
    core = members.cores["m0"]
    core.follow(ObservedGroup("m0", ("m0", "m1"), {"m0": "0", "m1": "1", "new": "node-m2"}))

    assert core._suspicions_of("node-m2").threshold(core._active_seconds) == 2.0


def test_a_fence_waits_for_a_witness() -> None:
    core = Suspicion()
    group = ObservedGroup("a", ("a", "b", "c"), dict(zip("abc", "abc", strict=True)))
    core.follow(group)
    now = 0.0
    while not core.suspects:
        now += 0.1
        senders = ["b", "c"] if now < 1.5 else ["b"]
        core.step([HeartbeatMessage(name) for name in senders], now)

    assert core.suspects == ("c",)
    assert core.to_fence() == ()

    core.step([HeartbeatMessage("b", heard_members=("c",), is_response=True)], now + 0.1)
    assert core.to_fence() == (), "b hears it"

    core.step([HeartbeatMessage("b", suspects=("c",), is_response=True)], now + 0.2)
    assert core.to_fence() == ("c",)


def test_a_query_about_a_suspect_is_answered_and_a_response_is_not() -> None:
    members = fleet(3)
    core = members.cores["m0"]

    query = HeartbeatMessage("m1", suspects=("m2",))
    responses = [s.message for s in core.step([query], members.now) if s.message.is_response]
    assert responses == [HeartbeatMessage("m0", heard_members=("m2",), is_response=True)]

    response = HeartbeatMessage("m1", suspects=("m2",), is_response=True)
    assert not [s for s in core.step([response], members.now) if s.message.is_response]


@given(st.integers(2, 60), st.integers(0, 59))
def test_observers_and_observed_are_the_same_relation(size: int, rank: int) -> None:
    names = tuple(f"m{number}" for number in range(size))
    nodes = dict.fromkeys(names, "")
    name = names[rank % size]
    group = ObservedGroup(name, names, nodes)
    observers = group.observers(name)

    assert set(group.observed_members()) == {
        other for other in names if name in group.observers(other)
    }
    assert len(set(observers)) == len(observers) >= min(size - 1, 3)
    assert name not in observers


def test_a_member_without_a_key_that_sends_a_heartbeat_has_resumed() -> None:
    core = Suspicion()
    core.follow(ObservedGroup("a", ("a", "b", "c"), {"a": "node-a", "c": "node-c"}))

    assert core.is_alert, "each message about a removed member matters to the next group"
    core.step([HeartbeatMessage(name) for name in ("b", "c", "stranger")], 0.1)
    assert core.take_resumed() == {"b"}
    assert core.take_resumed() == frozenset()
