"""The number of workers follows the machines: what is waited for, what is asked, and what never happens."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scaling import Asked, Capacity, Memory, Patience, Trial, follow
from tests.controller.unit.worlds import NOW

PATIENCE = Patience(down_seconds=120, up_seconds=10, ask_seconds=300)
ASKED = Asked(replicas=3, least=1, most=4)


def at(seconds: float):
    return NOW + timedelta(seconds=seconds)


def seen(placed: int, *waiting: float, room: int = 0) -> Capacity:
    """What there is; `waiting`: the seconds at which pods without a machine were made."""
    return Capacity(placed=placed, waiting=tuple(at(moment) for moment in waiting), room=room)


def known(wanted: int, **more) -> Memory:
    return Memory(**({"wanted": wanted, "since": NOW, "replicas": ASKED.replicas} | more))


def decide(capacity: Capacity, memory: Memory | None, seconds: float, asked: Asked = ASKED):
    return follow(asked, capacity, memory, at(seconds), PATIENCE)


def test_a_new_job_begins_with_what_its_spec_asks_for():
    memory, wake = decide(seen(0), None, 0)

    assert (memory.wanted, memory.reason) == (3, "the spec asks for 3")
    assert wake == at(300), "with fewer than may be it asks for more one day"


def test_a_worker_without_a_machine_is_given_up_after_a_while_and_not_before():
    early, wake = decide(seen(2, 0), known(3), 119)
    late, _ = decide(seen(2, 0), early, 120)

    assert (early.wanted, wake) == (3, at(120))
    assert (late.wanted, late.reason) == (2, "1 of 3 found no machine")


def test_with_too_few_machines_to_train_nobody_is_wanted():
    asked = replace(ASKED, least=2)

    memory, _ = decide(seen(1, 0, 0), known(3), 120, asked)

    assert memory.wanted == 0
    assert "2 are needed to train" in memory.reason


def test_room_must_stay_for_a_while():
    first, wake = decide(seen(2, room=1), known(2), 50)
    gone, _ = decide(seen(2), first, 55)
    again, _ = decide(seen(2, room=1), gone, 58)
    stayed, _ = decide(seen(2, room=1), again, 68)

    assert wake == at(60)
    assert [memory.wanted for memory in (first, gone, again, stayed)] == [2, 2, 2, 3]
    assert stayed.trial is Trial.ROOM


def test_a_job_set_aside_goes_on_when_there_is_room_for_as_many_as_it_needs():
    asked = replace(ASKED, least=2)

    one, _ = decide(seen(0, room=1), known(0), 100, asked)
    two, wake = decide(seen(0, room=2), one, 110, asked)
    on, _ = decide(seen(0, room=2), two, 120, asked)

    assert (one.room_since, wake) == (None, at(120))
    assert on.wanted == 2


def test_without_any_room_it_asks_now_and_then_since_autoscalers_hear_only_of_pods_that_wait():
    quiet, _ = decide(seen(2), known(2), 299)
    asks, _ = decide(seen(2), quiet, 300)
    in_vain, _ = decide(seen(2, 300), asks, 420)

    assert [memory.wanted for memory in (quiet, asks, in_vain)] == [2, 3, 2]
    assert in_vain.disappointments == 0, "an ask that found nothing promised nothing"


def test_from_nothing_it_asks_for_as_many_as_it_needs():
    memory, _ = decide(seen(0), known(0), 300, replace(ASKED, least=2))

    assert memory.wanted == 2


def test_room_that_was_none_is_believed_in_ever_later():
    memory, now = known(2), 0.0
    waited = []
    for _ in range(4):
        began = now
        while memory.wanted == 2:
            memory, wake = decide(seen(2, room=1), memory, now)
            now = (wake - NOW).total_seconds() if memory.wanted == 2 else now
        waited.append(now - began)
        memory, _ = decide(seen(2, now, room=1), memory, now + 120)
        now += 120

    assert waited == [10, 20, 40, 80]


def test_a_worker_that_found_its_place_restores_the_belief():
    tried = known(3, trial=Trial.ROOM, disappointments=3)

    memory, _ = decide(seen(3), tried, 5)

    assert (memory.trial, memory.disappointments) == (Trial.NONE, 0)


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (replace(ASKED, replicas=1), 1),
        (replace(ASKED, replicas=4), 4),
        (replace(ASKED, most=2, replicas=2), 2),
        (replace(ASKED, most=2), 2),
        (replace(ASKED, least=4), 4),
    ],
)
def test_an_edit_counts_at_once(edit, wanted):
    assert decide(seen(3), known(3), 1, edit)[0].wanted == wanted


def test_a_bound_does_not_wake_a_job_that_was_set_aside():
    assert decide(seen(0), known(0), 1, replace(ASKED, least=2))[0].wanted == 0


def test_whoever_has_a_machine_stays_wanted_while_an_edit_sends_others_away():
    memory, _ = decide(seen(3, 0, 0), known(5, replicas=5), 200)

    assert memory.wanted == 3


def test_what_is_remembered_is_read_back_as_it_was():
    memory = known(2, room_since=at(5), trial=Trial.ASK, disappointments=2, reason="why")

    assert Memory.read(memory.write()) == memory
    assert Memory.read(known(0).write()) == known(0)
    assert Memory.read(None) is None


# --- a world of machines


@dataclass
class World:
    """Machines that hold one worker each, a scheduler that sees them, and a job that follows them.

    Attributes:
        hidden: machines that look free and take no worker, for a reason the policy cannot see.
        changes: each number that was wanted, and when.
    """

    asked: Asked
    machines: int
    hidden: int = 0
    now: float = 0.0
    placed: int = 0
    waiting: list[float] = field(default_factory=list)
    memory: Memory | None = None
    changes: list[tuple[float, int]] = field(default_factory=list)
    lost_healthy: int = 0

    def run(self, seconds: float, step: float = 10.0) -> None:
        end = self.now + seconds
        self.schedule()  # sooner than the controller hears of another machine
        while self.now < end:
            self.one_pass()
            self.schedule()
            self.one_pass()
            self.now += step

    def one_pass(self) -> None:
        before = self.memory
        capacity = Capacity(
            placed=self.placed,
            waiting=tuple(at(moment) for moment in self.waiting),
            room=max(self.machines + self.hidden - self.placed, 0),
        )
        self.memory, wake = follow(self.asked, capacity, before, at(self.now), PATIENCE)
        wanted = self.memory.wanted
        assert wanted == 0 or self.asked.least <= wanted <= self.asked.most
        assert wake is None or wake > at(self.now)
        if before is None or wanted != before.wanted:
            self.changes.append((self.now, wanted))
            if before is not None and before.wanted < wanted:
                assert self.placed <= wanted, "more workers never cost one that runs"
        self.staff(wanted)

    def staff(self, wanted: int) -> None:
        """As the controller does: who waits goes first, and only then who runs."""
        while self.placed + len(self.waiting) > wanted:
            if self.waiting:
                self.waiting.pop()
            else:
                self.placed -= 1
                self.lost_healthy += 1
        while self.placed + len(self.waiting) < wanted:
            self.waiting.append(self.now)

    def schedule(self) -> None:
        gone = max(self.placed - self.machines, 0)
        self.placed -= gone
        self.waiting += [self.now] * gone
        while self.waiting and self.placed < self.machines:
            self.waiting.pop(0)
            self.placed += 1


BOUNDS = st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 5)).map(
    lambda drawn: Asked(
        least=drawn[0],
        most=drawn[0] + drawn[1],
        replicas=drawn[0] + min(drawn[2], drawn[1]),
    )
)


@settings(deadline=None, max_examples=25)
@given(
    asked=BOUNDS, schedule=st.lists(st.tuples(st.integers(0, 8), st.integers(10, 600)), max_size=8)
)
def test_it_stays_within_its_bounds_and_costs_no_worker_that_can_train(asked, schedule):
    world = World(asked, machines=asked.most)
    for machines, seconds in schedule:
        world.machines = machines
        could_train = machines >= asked.least
        before = world.lost_healthy
        world.run(seconds)
        assert world.lost_healthy == before or not could_train


@settings(deadline=None, max_examples=25)
@given(
    asked=BOUNDS, schedule=st.lists(st.tuples(st.integers(0, 8), st.integers(10, 600)), max_size=6)
)
def test_once_the_machines_stay_the_job_has_all_that_it_can_use(asked, schedule):
    world = World(asked, machines=0)
    for machines, seconds in schedule:
        world.machines = machines
        world.run(seconds)

    world.run(2 * (PATIENCE.ask_seconds + PATIENCE.down_seconds))

    possible = min(world.machines, asked.most)
    if possible >= asked.least:
        assert world.placed == possible
    else:
        assert world.placed < asked.least, "it may just be asking for more"


@settings(deadline=None, max_examples=25)
@given(
    asked=BOUNDS, flips=st.lists(st.tuples(st.booleans(), st.sampled_from([5, 10])), max_size=60)
)
def test_room_that_comes_and_goes_faster_than_it_is_believed_changes_nothing(asked, flips):
    """Down needs a pod that waited 120 s, up room that stayed 10 s: between them lies what is ignored."""
    world = World(asked, machines=asked.most)
    world.run(400)
    settled = len(world.changes)
    for there, seconds in flips:
        world.machines = asked.most if there else asked.most - 1
        world.run(seconds)
        if world.waiting and world.now - world.waiting[0] > PATIENCE.down_seconds - 20:
            world.machines = asked.most
            world.run(5)

    assert len(world.changes) == settled


@settings(deadline=None, max_examples=25)
@given(hidden=st.integers(1, 4), machines=st.integers(1, 4))
def test_room_that_only_seems_to_be_there_is_tried_seldom(hidden, machines):
    world = World(Asked(replicas=8, least=1, most=8), machines=machines, hidden=hidden)

    world.run(7200)

    late = [wanted for moment, wanted in world.changes if moment > 3600]
    once = PATIENCE.ask_seconds + PATIENCE.down_seconds
    assert len(late) <= 2 * (3600 / once + 1)
    assert world.placed == machines
    assert world.lost_healthy == 0
