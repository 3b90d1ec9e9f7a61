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
    accounting.void_step()

    assert accounting.spent() == {
        "data": 1, "compute": 2, "exchange": 4, "redo": 3, "detect": 4,
    }  # fmt: skip


def test_a_step_that_has_ended_is_not_in_vain_when_the_group_breaks_after_it():
    clock = Clock()
    accounting = Accounting(clock)
    accounting.begin_step()
    clock.now += 5
    accounting.end_step()
    accounting.void_step()

    assert accounting.spent() == {"data": 5}


@given(
    moves=lists(
        tuples(sampled_from([*Name, "step", "void"]), floats(0, 100, allow_nan=False)), max_size=40
    )
)
def test_the_names_add_up_to_the_wall_clock_whatever_happens(moves):
    clock = Clock()
    accounting = Accounting(clock)
    for what, seconds in moves:
        if what == "step":
            accounting.begin_step()
        elif what == "void":
            accounting.void_step()
        else:
            accounting.begin(what)
        clock.now += seconds

    spent = accounting.spent()

    assert abs(sum(spent.values()) - (clock.now - 100)) < 0.01
    assert all(seconds >= 0 for seconds in spent.values())
