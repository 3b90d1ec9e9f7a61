"""What the watcher does about a notice, whatever fails meanwhile."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spot.decide import ADVICE, MARGIN_SECONDS, NOTICE, Node
from spot.notice import Effect, Notice
from tests.unit.spot.world import World, pod, pods


def notice(seconds: float | None, **changes: Any) -> Notice:
    deadline = None if seconds is None else World().now + seconds
    values: dict[str, Any] = {
        "cloud": "azure",
        "reason": "Reboot",
        "effect": Effect.LEAVE,
        "identifier": "event-1",
        "may_start": True,
    }
    return Notice(**{**values, "deadline": deadline, **changes})


def preempt(seconds: float) -> Notice:
    return notice(seconds, reason="Preempt", cloud_drains=True)


def annotation(world: World) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(world.node_now.annotations[NOTICE])
    return said


def test_a_notice_is_on_the_node_and_the_node_cordoned_within_one_pass() -> None:
    world = World(announced=(preempt(30),))

    world.run(world.watcher(), 1)

    assert world.node_now.unschedulable
    assert annotation(world) == {
        "reason": "Preempt",
        "deadline": "2026-11-21T08:20:30Z",
        "cloud": "azure",
        "leaves": True,
        "cordoned": True,
        "since": "2026-11-21T08:20:00Z",
    }


def test_pods_are_evicted_at_once_where_the_cloud_does_not_drain() -> None:
    world = World(announced=(notice(30),), running=pods(pod("worker", grace_seconds=110)))

    world.run(world.watcher(), 1)

    ((_, eviction),) = world.evictions
    assert eviction.grace_seconds == 28, "longer than the machine lives, the end would be a kill"


def test_a_cloud_that_promises_to_drain_gets_a_sixth_of_the_notice_to_begin() -> None:
    world = World(announced=(preempt(30),), running=pods(pod("worker", grace_seconds=25)))
    watcher = world.watcher()

    world.run(watcher, 5)
    assert not world.evictions
    world.run(watcher, 1)

    assert [eviction.pod.name for _, eviction in world.evictions] == ["worker"]


def test_a_cloud_need_not_be_believed() -> None:
    world = World(announced=(preempt(30),), running=pods(pod("worker")))

    world.run(world.watcher(cloud_drains=False), 1)

    assert world.evictions


def test_a_pod_that_the_cloud_has_asked_is_asked_again_only_if_it_would_outlive_the_machine() -> (
    None
):
    now = World().now
    late, soon = (
        pod(name, ends_at=now + seconds, grace_seconds=600)
        for name, seconds in (("late", 600), ("soon", 20))
    )
    world = World(announced=(notice(30),), running=pods(late, soon))

    world.run(world.watcher(), 3)

    assert [eviction.pod.name for _, eviction in world.evictions] == ["late"]


def test_daemons_static_pods_and_pods_that_have_ended_stay() -> None:
    world = World(announced=(notice(30),), running=pods(pod("daemon", stays=True)))

    world.run(world.watcher(), 3)

    assert not world.evictions
    assert [identifier for identifier, _ in world.started] == ["event-1"], "the node is empty"


def test_the_cloud_is_told_once_and_only_when_the_node_is_empty() -> None:
    world = World(announced=(notice(60),), running=pods(pod("one"), pod("two", grace_seconds=10)))

    world.run(world.watcher(), 40)

    assert world.started == [("event-1", 0)]


def test_a_pod_under_a_budget_is_asked_again_and_does_not_keep_the_others() -> None:
    world = World(
        announced=(notice(30),),
        running=pods(pod("held"), pod("broken"), pod("free")),
        held_by_a_budget={"held"},
        refused={"broken"},
    )
    watcher = world.watcher()

    world.run(watcher, 2)
    assert [eviction.pod.name for _, eviction in world.evictions] == ["free"]
    world.held_by_a_budget = world.refused = ()
    world.run(watcher, 1)

    assert {eviction.pod.name for _, eviction in world.evictions} == {"free", "held", "broken"}


def test_a_notice_that_is_withdrawn_leaves_nothing_behind() -> None:
    world = World(announced=(notice(30),))
    watcher = world.watcher()

    world.run(watcher, 2)
    world.announced = ()
    world.run(watcher, 2)

    assert world.node_now == Node()


def test_a_watcher_that_starts_anew_clears_up_what_stands_from_before_the_reboot() -> None:
    world = World(announced=(notice(30),))
    world.run(world.watcher(), 2)

    world.announced = ()
    world.run(world.watcher(), 1)

    assert world.node_now == Node()


def test_a_cordon_of_somebody_elses_is_left_alone() -> None:
    world = World(announced=(notice(30),), node_now=Node(unschedulable=True))
    watcher = world.watcher()

    world.run(watcher, 2)
    world.announced = ()
    world.run(watcher, 2)

    assert world.node_now == Node(unschedulable=True)


def test_a_freeze_is_written_down_and_nothing_else() -> None:
    freeze = notice(30, reason="Freeze", effect=Effect.PAUSE, may_start=False)
    world = World(announced=(freeze,), running=pods(pod("worker")))

    world.run(world.watcher(), 5)

    assert not world.node_now.unschedulable
    assert not world.evictions
    assert (annotation(world)["reason"], annotation(world)["leaves"]) == ("Freeze", False)


def test_advice_stands_under_a_name_of_its_own() -> None:
    advice = Notice(cloud="aws", reason="rebalance", effect=Effect.ADVICE)
    world = World(announced=(advice,), running=pods(pod("worker")))

    world.run(world.watcher(), 5)

    assert world.node_now == Node(annotations={ADVICE: "rebalance"})
    assert not world.evictions


def test_a_node_without_news_costs_the_api_server_nothing() -> None:
    world = World()
    watcher = world.watcher()
    world.run(watcher, 1)

    before = world.calls
    world.run(watcher, 600)

    assert world.calls == before, "a call a second from each node would be a load of its own"


def test_silence_is_no_all_clear() -> None:
    world = World(announced=(notice(60),), running=pods(pod("worker")))
    watcher = world.watcher()
    world.run(watcher, 1)

    world.metadata_answers = False
    world.run(watcher, 20)

    assert world.node_now.unschedulable
    assert NOTICE in world.node_now.annotations


def test_a_notice_heard_once_is_acted_on_though_the_service_has_fallen_silent() -> None:
    world = World(announced=(notice(60),), running=pods(pod("worker")), api_answers=False)
    watcher = world.watcher()
    world.run(watcher, 1)

    world.metadata_answers, world.api_answers = False, True
    world.run(watcher, 1)

    assert world.node_now.unschedulable
    assert world.evictions, "a service stalls just when many machines are taken"


def test_what_stood_on_the_node_before_a_restart_outlasts_a_silent_service() -> None:
    world = World(announced=(notice(60),))
    world.run(world.watcher(), 1)

    world.metadata_answers = False
    world.run(world.watcher(), 5)

    assert world.node_now.unschedulable


def test_the_watch_goes_on_through_an_outage_of_the_api_server() -> None:
    world = World(announced=(notice(60),), running=pods(pod("worker")), api_answers=False)
    watcher = world.watcher()

    world.run(watcher, 20)
    world.api_answers = True
    world.run(watcher, 1)

    assert world.node_now.unschedulable
    ((_, eviction),) = world.evictions
    assert eviction.grace_seconds == 30, "38 s are left, more than it asks for"


spans = st.lists(st.tuples(st.integers(0, 90), st.integers(1, 15)), max_size=3)


@given(data=st.data())
def test_whatever_fails_and_however_long_the_promises_hold(data: st.DataObject) -> None:
    announce, withdraw = data.draw(st.integers(0, 20)), data.draw(st.none() | st.integers(21, 60))
    kind = data.draw(st.sampled_from([notice, preempt]))
    lasts = data.draw(st.sampled_from([2, 30, 60, 120]))
    outages, stalls = data.draw(spans), data.draw(spans)
    foreign = data.draw(st.booleans())
    graces = data.draw(st.lists(st.integers(0, 200), max_size=4))
    world = World(
        node_now=Node(unschedulable=foreign, annotations={"of": "others"}),
        running=pods(*(pod(f"pod-{at}", grace_seconds=g) for at, g in enumerate(graces))),
    )
    watcher, standing, heard = world.watcher(), None, False
    for second in range(100):
        if second == announce:
            standing, heard = replace(kind(0), deadline=world.now + lasts), False
        if second == withdraw:
            standing, heard = None, False
        world.announced = (standing,) if standing else ()
        world.api_answers = not any(at <= second < at + length for at, length in outages)
        world.metadata_answers = not any(at <= second < at + length for at, length in stalls)
        watcher.step()
        heard = heard or (world.metadata_answers and world.api_answers)
        if heard:
            check_node(world, standing, foreign=foreign)
        world.pass_time()
    check_history(world, announce, None if withdraw is None else withdraw, lasts)


def check_node(world: World, standing: Notice | None, *, foreign: bool) -> None:
    assert world.node_now.unschedulable == (foreign or standing is not None)
    assert (NOTICE in world.node_now.annotations) == (standing is not None)
    assert world.node_now.annotations["of"] == "others"


def check_history(world: World, announced: int, withdrawn: int | None, lasts: int) -> None:
    began = World().now + announced
    for when, eviction in world.evictions:
        assert when >= began, "nobody had said anything yet"
        assert eviction.grace_seconds <= max(1, began + lasts - MARGIN_SECONDS - when)
        assert eviction.grace_seconds <= max(eviction.pod.grace_seconds, 0)
    assert len(world.started) <= 1
    assert all(left == 0 for _, left in world.started), "machines must not go before their pods"
    if withdrawn is None and world.metadata_answers and world.api_answers:
        assert all(pod.ends_at is not None for pod in world.running.values())
