"""Decisions of the drill, which depend only on the recorded run."""

import pytest

from everstep.cli.drill import SETTLE_STEPS, SURVIVOR_STEPS, decide
from everstep.cli.report.run_record import RunRecord
from tests.everstep.cli.recorded_run import RecordedRun

ALL_NODES = ("gpu-0", "gpu-1", "gpu-2")


def test_a_drill_starts_with_undisturbed_training(recorded_run: RecordedRun) -> None:
    assert decide(recorded_run.run()).action == ""
    assert decide(recorded_run.form(*ALL_NODES).train(5).run()).action == ""


def test_the_first_loss_is_the_drain_of_a_node_without_rank_0(recorded_run: RecordedRun) -> None:
    decision = decide(recorded_run.form("gpu-1", "gpu-0", "gpu-2").train(60).run())

    assert (decision.action, decision.node) == ("drain", "gpu-0")


def test_a_drained_node_returns_after_the_others_have_continued_training(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(60).event("drain", "gpu-1").wait(4).form("gpu-0", "gpu-2")
    assert decide(recorded_run.run()).action == ""

    decision = decide(recorded_run.train(SURVIVOR_STEPS).run())
    assert (decision.action, decision.node) == ("return", "gpu-1")


def test_the_second_loss_waits_for_the_first_node_to_train_again(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(60).event("drain", "gpu-1").wait(4).form(
        "gpu-0", "gpu-2"
    ).train(9)
    recorded_run.event("return", "gpu-1").train(SETTLE_STEPS + 5)
    assert decide(recorded_run.run()).action == "", "the group is not complete with two workers"

    recorded_run.form("gpu-2", "gpu-0", "gpu-1").train(SETTLE_STEPS)
    decision = decide(recorded_run.run())
    assert (decision.action, decision.node) == ("vanish", "gpu-2"), (
        "the loss of rank 0 is the harder case"
    )


def test_the_machine_that_was_lost_last_is_returned_first(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(60).event("drain", "gpu-1").wait(4)
    recorded_run.event("return", "gpu-1").wait(4).event("vanish", "gpu-2").wait(4)
    recorded_run.event("drain", "gpu-1").wait(4).form("gpu-0").train(SURVIVOR_STEPS)

    assert decide(recorded_run.run()).node == "gpu-1"


def test_no_machine_is_removed_without_time_for_its_return(recorded_run: RecordedRun) -> None:
    decision = decide(recorded_run.form(*ALL_NODES).train(290).run())

    assert decision.finished


def test_a_job_with_one_worker_is_not_drilled(recorded_run: RecordedRun) -> None:
    assert decide(recorded_run.form("gpu-0").train(60).run()).finished


def test_the_drill_ends_when_both_machines_have_returned(drill_run: RecordedRun) -> None:
    assert decide(drill_run.run()).finished


def test_a_drill_removes_one_machine_at_a_time_and_returns_each() -> None:
    recorded_run, missing_node, events = RecordedRun(total_steps=400).form(*ALL_NODES), "", []
    for _ in range(300):
        decision = decide(recorded_run.run())
        if decision.finished:
            break
        if decision.action in ("drain", "vanish"):
            assert not missing_node, "with two machines missing there may be no worker left"
            missing_node = decision.node
            events.append(decision.action)
            remaining_nodes = [node for node in ALL_NODES if node != missing_node]
            recorded_run.event(decision.action, missing_node).wait(3).form(*remaining_nodes)
        elif decision.action == "return":
            assert decision.node == missing_node
            missing_node = ""
            recorded_run.event("return", decision.node).train(3).wait(2).form(*ALL_NODES)
        recorded_run.train(1)

    assert decide(recorded_run.run()).finished
    assert events == ["drain", "vanish"]
    assert not missing_node


@pytest.mark.parametrize("count", range(1, 300, 11))
def test_an_interrupted_drill_continues_where_it_stopped(
    count: int, drill_run: RecordedRun
) -> None:
    complete_run = drill_run.run()
    entries = complete_run.entries[:count]
    events = [event for event in complete_run.events if event.at <= entries[-1].at]

    decision = decide(RunRecord(entries, tuple(events)))

    next_action = ("drain", "return", "vanish", "return", "")[len(events)]
    assert decision.action in ("", next_action), "an action is neither repeated nor skipped"
    if decision.action == "return":
        assert decision.node == events[-1].node
