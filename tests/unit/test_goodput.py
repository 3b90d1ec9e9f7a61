"""What changes of machines cost: histories small enough to reckon by hand, and rules that hold for all."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.goodput import NOTHING, Cause, Change, Cost, live, replay, restart

FREE = replace(
    live(state_bytes=0, step_seconds=0, bytes_per_second=1, checkpoint_seconds=10),
    loss=NOTHING,
    notice=NOTHING,
    join=NOTHING,
    start_up=NOTHING,
    begin=NOTHING,
)


def cost(seconds):
    return Cost(seconds, "of this test")


def lost(at, machines=1):
    return Change(at, Cause.LOSS, machines)


def joined(at, machines=1):
    return Change(at, Cause.JOIN, machines)


def test_where_changes_cost_nothing_nothing_is_lost_but_the_machines():
    outcome = replay(3, [lost(40), joined(60)], 100, FREE)

    assert outcome.goodput == outcome.machine_goodput == 1
    assert outcome.machine_seconds == 40 * 3 + 20 * 2 + 40 * 3


def test_a_loss_costs_those_who_stay_a_pause_and_the_step_in_flight():
    design = replace(FREE, loss=cost(2), repeated=cost(0.5))

    outcome = replay(3, [lost(45)], 100, design)

    assert outcome.lost_seconds == pytest.approx(2.5)
    assert outcome.machine_seconds - outcome.productive_machine_seconds == pytest.approx(
        2 * 2 + 0.5 * 3
    ), "two machines wait, but three had worked on the step"


def test_a_pause_that_falls_into_another_ends_with_the_later_of_the_two():
    design = replace(FREE, loss=cost(10), notice=cost(1))

    outcome = replay(3, [lost(50), Change(55, Cause.NOTICE)], 100, design)

    assert outcome.lost_seconds == pytest.approx(10)


def test_a_machine_that_starts_costs_its_own_time_and_not_that_of_the_others():
    design = replace(FREE, start_up=cost(12), join=cost(1))

    outcome = replay(2, [joined(50)], 100, design)

    assert outcome.lost_seconds == pytest.approx(1)
    assert outcome.machine_seconds - outcome.productive_machine_seconds == pytest.approx(12 + 3)


def test_when_the_last_machine_goes_what_the_checkpoint_lacks_goes_too():
    design = replace(FREE, begin=cost(3))

    outcome = replay(2, [lost(47, 2), joined(80)], 100, design)

    assert outcome.seconds == 67, "time without any machine counts for nobody"
    assert outcome.redone_seconds == pytest.approx(7), "the last checkpoint was at 40 s"
    assert outcome.lost_seconds == pytest.approx(7 + 3)


def test_a_design_that_restarts_goes_back_to_the_checkpoint_at_every_change_joins_included():
    design = replace(restart(10), loss=cost(5), join=cost(4), start_up=NOTHING, begin=NOTHING)

    outcome = replay(3, [lost(27), joined(59)], 100, design)

    # 27 s: back to 20. Goes on at 32, so the next checkpoints are at 42 and 52, and 59 goes back to 52.
    assert outcome.redone_seconds == pytest.approx(7 + 7)
    assert outcome.lost_seconds == pytest.approx(7 + 5 + 7 + 4)


def test_a_process_that_dies_on_a_machine_that_stays_costs_as_a_loss_does():
    design = replace(FREE, loss=cost(5))

    outcome = replay(3, [lost(50, machines=0)], 100, design)

    assert outcome.lost_seconds == pytest.approx(5)
    assert outcome.machine_seconds == 300


def test_checkpoints_by_work_come_more_often_the_more_machines_there_are():
    design = replace(restart(0, checkpoint_work=60), loss=NOTHING)

    few, many = (replay(n, [lost(50)], 100, design).redone_seconds for n in (2, 3))

    assert (few, many) == (pytest.approx(20), pytest.approx(10))


def test_a_stall_takes_its_share_of_every_interval():
    design = replace(FREE, checkpoint_seconds=9, stall=cost(1))

    assert replay(1, [], 1000, design).goodput == pytest.approx(0.9)


CHANGES = st.lists(
    st.builds(
        Change,
        st.floats(0, 900, allow_nan=False),
        st.sampled_from(list(Cause)),
        st.integers(0, 4),
    ),
    max_size=12,
).map(lambda found: sorted(found, key=lambda change: change.at))


@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, machines=st.integers(1, 6), every=st.floats(1, 400))
def test_no_history_makes_more_of_time_than_there_is_and_all_designs_get_the_same_machines(
    changes, machines, every
):
    lives = live(
        state_bytes=5e8, step_seconds=0.4, bytes_per_second=1.25e9, checkpoint_seconds=every
    )
    outcomes = [replay(machines, changes, 1000, one) for one in (FREE, lives, restart(every))]

    for outcome in outcomes:
        assert outcome.productive_seconds > -1e-6
        assert outcome.productive_seconds <= outcome.seconds + 1e-6
        assert outcome.productive_machine_seconds <= outcome.machine_seconds + 1e-6
        assert outcome.seconds <= 1000 + 1e-6
        assert outcome.machine_seconds == pytest.approx(outcomes[0].machine_seconds)


def test_every_figure_of_a_design_has_its_source():
    for design in (restart(30), FREE):
        assert all(figure.source for _, figure in design.costs())
