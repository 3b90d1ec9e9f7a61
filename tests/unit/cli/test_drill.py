"""What the drill decides, and that it needs no memory."""

import pytest

from everstep.cli.drill import ALONE_STEPS, SETTLE_STEPS, decide
from tests.unit.cli.story import Story

ALL = ("gpu-0", "gpu-1", "gpu-2")


def test_it_trains_in_peace_first(story):
    assert decide(story.run()).verb == ""
    assert decide(story.form(*ALL).train(5).run()).verb == ""


def test_the_first_act_drains_a_node_that_is_not_rank_0s(story):
    decision = decide(story.form("gpu-1", "gpu-0", "gpu-2").train(60).run())

    assert (decision.verb, decision.node) == ("drain", "gpu-0")


def test_a_drained_node_comes_back_once_the_others_have_trained_on(story):
    story.form(*ALL).train(60).event("drain", "gpu-1").wait(4).form("gpu-0", "gpu-2")
    assert decide(story.run()).verb == ""

    decision = decide(story.train(ALONE_STEPS).run())
    assert (decision.verb, decision.node) == ("return", "gpu-1")


def test_the_second_act_waits_for_the_first_node_to_train_again(story):
    story.form(*ALL).train(60).event("drain", "gpu-1").wait(4).form("gpu-0", "gpu-2").train(9)
    story.event("return", "gpu-1").train(SETTLE_STEPS + 5)
    assert decide(story.run()).verb == "", "two workers training steadily are not the whole group"

    story.form("gpu-2", "gpu-0", "gpu-1").train(SETTLE_STEPS)
    decision = decide(story.run())
    assert (decision.verb, decision.node) == ("vanish", "gpu-2"), "rank 0's node is the harder one"


def test_no_machine_is_taken_when_there_is_no_time_left_to_see_it_come_back(story):
    decision = decide(story.form(*ALL).train(290).run())

    assert decision.over


def test_a_lone_worker_is_not_drilled(story):
    assert decide(story.form("gpu-0").train(60).run()).over


def test_it_is_over_when_both_machines_are_back(drilled):
    assert decide(drilled.run()).over


def test_a_whole_drill_takes_one_machine_at_a_time_and_brings_each_back():
    story, away, taken = Story(total_steps=400).form(*ALL), "", []
    for _ in range(300):
        decision = decide(story.run())
        if decision.over:
            break
        if decision.verb in ("drain", "vanish"):
            assert not away, "two machines away at once may leave nobody"
            away = decision.node
            taken.append(decision.verb)
            rest = [node for node in ALL if node != away]
            story.event(decision.verb, away).wait(3).form(*rest)
        elif decision.verb == "return":
            assert decision.node == away
            away = ""
            story.event("return", decision.node).train(3).wait(2).form(*ALL)
        story.train(1)

    assert taken == ["drain", "vanish"]
    assert not away


@pytest.mark.parametrize("count", range(0, 300, 11))
def test_a_drill_that_was_cut_short_goes_on_from_what_is_written(count, drilled):
    whole = drilled.run()
    run = type(whole)(whole.lines[:count], whole.events)

    decide(run)  # from any prefix: nothing is remembered, and nothing fails
