"""Costs of machine changes: histories with known results, and properties of all histories."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.goodput import (
    NO_COST,
    ChangeCause,
    ChangeCost,
    MachineChange,
    assumptions,
    live_design,
    replay,
    restart_design,
)
from tests.effort import examples

FREE_DESIGN = replace(
    live_design(state_bytes=0, step_seconds=0, bytes_per_second=1, checkpoint_seconds=10),
    loss=NO_COST,
    notice=NO_COST,
    join=NO_COST,
    start_up=NO_COST,
    begin=NO_COST,
)


def cost(seconds: float) -> ChangeCost:
    return ChangeCost(seconds, "of this test")


def loss(time: float, machines: int = 1) -> MachineChange:
    return MachineChange(time, ChangeCause.LOSS, machines)


def join(time: float, machines: int = 1) -> MachineChange:
    return MachineChange(time, ChangeCause.JOIN, machines)


def test_without_costs_of_changes_only_the_time_of_lost_machines_is_lost() -> None:
    outcome = replay(3, [loss(40), join(60)], 100, FREE_DESIGN)

    assert outcome.goodput == outcome.machine_goodput == 1
    assert outcome.machine_seconds == 40 * 3 + 20 * 2 + 40 * 3


def test_a_loss_costs_the_remaining_machines_a_pause_and_the_step_in_flight() -> None:
    design = replace(FREE_DESIGN, loss=cost(2), repeated=cost(0.5))

    outcome = replay(3, [loss(45)], 100, design)

    assert outcome.lost_seconds == pytest.approx(2.5)
    assert outcome.machine_seconds - outcome.productive_machine_seconds == pytest.approx(
        2 * 2 + 0.5 * 3
    ), "two machines wait, but three had worked on the step"


def test_overlapping_pauses_end_with_the_later_one() -> None:
    design = replace(FREE_DESIGN, loss=cost(10), notice=cost(1))

    outcome = replay(3, [loss(50), MachineChange(55, ChangeCause.NOTICE)], 100, design)

    assert outcome.lost_seconds == pytest.approx(10)


def test_a_starting_machine_costs_only_its_own_time() -> None:
    design = replace(FREE_DESIGN, start_up=cost(12), join=cost(1))

    outcome = replay(2, [join(50)], 100, design)

    assert outcome.lost_seconds == pytest.approx(1)
    assert outcome.machine_seconds - outcome.productive_machine_seconds == pytest.approx(12 + 3)


def test_the_loss_of_the_last_machine_loses_the_work_since_the_checkpoint() -> None:
    design = replace(FREE_DESIGN, begin=cost(3))

    outcome = replay(2, [loss(47, 2), join(80)], 100, design)

    assert outcome.seconds == 67, "time without any machine is not elapsed time"
    assert outcome.redone_seconds == pytest.approx(7), "the last checkpoint was at 40 s"
    assert outcome.lost_seconds == pytest.approx(7 + 3)


def test_a_design_with_restarts_returns_to_the_checkpoint_at_every_change() -> None:
    design = replace(
        restart_design(10), loss=cost(5), join=cost(4), start_up=NO_COST, begin=NO_COST
    )

    outcome = replay(3, [loss(27), join(59)], 100, design)

    # 27 s: back to 20. Continues at 32, so the next checkpoints are at 42 and 52, and 59 goes back to 52.
    assert outcome.redone_seconds == pytest.approx(7 + 7)
    assert outcome.lost_seconds == pytest.approx(7 + 5 + 7 + 4)


def test_a_crashed_process_costs_as_much_as_a_lost_machine() -> None:
    design = replace(FREE_DESIGN, loss=cost(5))

    outcome = replay(3, [loss(50, machines=0)], 100, design)

    assert outcome.lost_seconds == pytest.approx(5)
    assert outcome.machine_seconds == 300


def test_checkpoints_by_work_are_more_frequent_with_more_machines() -> None:
    design = replace(restart_design(0, checkpoint_work=60), loss=NO_COST)

    redone_on_two, redone_on_three = (
        replay(n, [loss(50)], 100, design).redone_seconds for n in (2, 3)
    )

    assert redone_on_two == pytest.approx(20)
    assert redone_on_three == pytest.approx(10)


def test_a_checkpoint_stall_reduces_every_interval() -> None:
    design = replace(FREE_DESIGN, checkpoint_seconds=9, stall=cost(1))

    assert replay(1, [], 1000, design).goodput == pytest.approx(0.9)


CHANGES = st.lists(
    st.builds(
        MachineChange,
        st.floats(0, 900, allow_nan=False),
        st.sampled_from(list(ChangeCause)),
        st.integers(0, 4),
    ),
    max_size=12,
).map(lambda changes: sorted(changes, key=lambda change: change.at_seconds))


@settings(max_examples=examples(60))
@given(changes=CHANGES, machines=st.integers(1, 6), interval_seconds=st.floats(1, 400))
def test_times_never_exceed_the_elapsed_time_and_all_designs_have_the_same_machine_time(
    changes: list[MachineChange], machines: int, interval_seconds: float
) -> None:
    without_restarts = live_design(
        state_bytes=5e8,
        step_seconds=0.4,
        bytes_per_second=1.25e9,
        checkpoint_seconds=interval_seconds,
    )
    outcomes = [
        replay(machines, changes, 1000, design)
        for design in (FREE_DESIGN, without_restarts, restart_design(interval_seconds))
    ]

    for outcome in outcomes:
        assert outcome.productive_seconds > -1e-6
        assert outcome.productive_seconds <= outcome.seconds + 1e-6
        assert outcome.productive_machine_seconds <= outcome.machine_seconds + 1e-6
        assert outcome.seconds <= 1000 + 1e-6
        assert outcome.machine_seconds == pytest.approx(outcomes[0].machine_seconds)


def test_every_figure_of_a_design_has_its_source() -> None:
    for design in (restart_design(30), FREE_DESIGN):
        assert all(figure.source for _, figure in design.costs())


def test_the_assumptions_name_each_cost_in_words_and_omit_those_that_are_zero() -> None:
    design = replace(
        FREE_DESIGN, loss=ChangeCost(42.5, "measured"), start_up=ChangeCost(2, "estimated")
    )

    lines = assumptions(design)

    assert lines[:2] == ["loss 42.5 s: measured", "start up 2 s: estimated"]
    assert len(lines) == 3, "the last line is the interval of checkpoints"
