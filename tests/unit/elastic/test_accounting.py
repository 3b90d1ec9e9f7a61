from hypothesis import given
from hypothesis.strategies import floats, lists, sampled_from, tuples

from everstep.elastic.accounting import Accounting, Name


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_second_belongs_to_what_was_begun_last():
    clock = Clock()
    accounting = Accounting(clock)
    clock.now += 2
    accounting.begin(Name.IDLE)
    clock.now += 3

    assert accounting.spent() == {"start_up": 2, "idle": 3}


def test_a_step_in_vain_is_work_to_be_done_again_and_waiting_for_the_lost():
    clock = Clock()
    accounting = Accounting(clock)
    for first in (True, False):
        accounting.begin_step()
        clock.now += 1
        accounting.begin(Name.COMPUTE)
        clock.now += 2
        accounting.begin(Name.EXCHANGE)
        clock.now += 4
        if first:
            accounting.end_step()
    accounting.break_step(kept=False)

    assert accounting.spent() == {
        "data": 1, "compute": 2, "exchange": 4, "redo": 3, "detect": 4,
    }  # fmt: skip


def test_what_is_kept_of_a_broken_step_was_not_in_vain():
    clock = Clock()
    accounting = Accounting(clock)
    accounting.begin_step()
    clock.now += 1
    accounting.begin(Name.COMPUTE)
    clock.now += 3
    accounting.begin(Name.EXCHANGE)
    clock.now += 2
    accounting.break_step(kept=True)

    assert accounting.spent() == {"data": 1, "compute": 3, "detect": 2}


def test_a_step_that_has_ended_is_not_in_vain_when_the_group_breaks_after_it():
    clock = Clock()
    accounting = Accounting(clock)
    accounting.begin_step()
    clock.now += 5
    accounting.end_step()
    accounting.break_step(kept=False)

    assert accounting.spent() == {"data": 5}


def test_a_recovery_lasts_from_the_wait_for_the_lost_to_the_next_step():
    clock = Clock()
    accounting = Accounting(clock, Name.START_UP)
    for name in (Name.IDLE, Name.FORM, Name.COPY):
        accounting.begin(name)
        clock.now += 1
    accounting.begin_step()
    assert accounting.last_recovery is None, "nothing was there to recover from"
    clock.now += 1
    accounting.begin(Name.EXCHANGE)
    clock.now += 2
    accounting.break_step(kept=False)
    clock.now += 0.5
    accounting.begin(Name.COPY)
    clock.now += 0.25
    accounting.begin_step()

    assert accounting.last_recovery == 2.75


def test_a_group_that_was_given_up_after_a_step_recovers_from_there_on():
    clock = Clock()
    accounting = Accounting(clock)
    accounting.begin_step()
    accounting.begin(Name.COMPUTE)
    clock.now += 3
    accounting.end_step()
    accounting.begin(Name.FORM)
    clock.now += 0.5
    accounting.begin_step()

    assert accounting.last_recovery == 0.5


def test_a_warm_up_is_start_up_whatever_it_does():
    clock = Clock()
    accounting = Accounting(clock)
    with accounting.all_as(Name.START_UP):
        accounting.begin(Name.DATA)
        clock.now += 2
        accounting.begin(Name.COMPUTE)
        clock.now += 3
    accounting.begin(Name.IDLE)
    clock.now += 1

    assert accounting.spent() == {"start_up": 5, "idle": 1}


def test_a_worker_says_what_it_spent_now_and_then_and_only_after_a_step():
    clock, said = Clock(), []
    accounting = Accounting(clock)
    accounting.tell(lambda: said.append(clock.now))
    clock.now += 60
    for seconds in (1, 4, 4, 2):
        accounting.begin_step()
        clock.now += seconds
        accounting.end_step()

    assert said == [161, 169], "after the first step's end, and when the word was 5 s old again"


MOVES = lists(
    tuples(sampled_from([*Name, "step", "void"]), floats(0, 100, allow_nan=False)), max_size=40
)


def make(accounting, what):
    if what == "step":
        accounting.begin_step()
    elif what == "void":
        accounting.break_step(kept=False)
    else:
        accounting.begin(what)


@given(moves=MOVES)
def test_the_names_add_up_to_the_wall_clock_whatever_happens(moves):
    clock = Clock()
    accounting = Accounting(clock)
    for what, seconds in moves:
        make(accounting, what)
        clock.now += seconds

    spent = accounting.spent()

    assert abs(sum(spent.values()) - (clock.now - 100)) < 0.01
    assert all(seconds >= 0 for seconds in spent.values())


@given(moves=MOVES)
def test_what_prometheus_counts_never_falls(moves):
    clock = Clock()
    accounting = Accounting(clock)
    before = {}
    for what, seconds in moves:
        make(accounting, what)
        clock.now += seconds
        after = accounting.settled()
        assert all(after[name] >= counted for name, counted in before.items())
        before = after
