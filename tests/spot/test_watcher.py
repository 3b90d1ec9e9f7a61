"""Reactions of the watcher to notices, with failures of both services."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.catalog.names import ADVICE_ANNOTATION, NOTICE_ANNOTATION
from everstep.catalog.timing import NODE_MARGIN_SECONDS
from spot.annotation import WatchedNode
from spot.drain import NodePod
from spot.http import RefusedError, UnavailableError
from spot.notice import Effect, Notice
from tests.spot.simulation import START, Simulation, by_name, pod


def notice(seconds: float | None, **changes: Any) -> Notice:
    deadline = None if seconds is None else START + seconds
    values: dict[str, Any] = {
        "cloud": "azure",
        "reason": "Reboot",
        "effect": Effect.STOP,
        "identifier": "event-1",
        "may_start": True,
    }
    return Notice(**{**values, "deadline": deadline, **changes})


def preemption(seconds: float) -> Notice:
    return notice(seconds, reason="Preempt", cloud_drains=True)


def annotation(node: Simulation) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(node.current_node.annotations[NOTICE_ANNOTATION])
    return content


def test_one_pass_cordons_the_node_and_records_the_notice() -> None:
    node = Simulation(notices=(preemption(30),))

    node.run(node.watcher(), 1)

    assert node.current_node.unschedulable
    assert annotation(node) == {
        "reason": "Preempt",
        "deadline": "2026-11-21T08:20:30Z",
        "cloud": "azure",
        "leaves": True,
        "cordoned": True,
        "since": "2026-11-21T08:20:00Z",
    }


def test_pods_are_evicted_immediately_if_the_cloud_does_not_drain() -> None:
    node = Simulation(notices=(notice(30),), running_pods=by_name(pod("worker", grace_seconds=110)))

    node.run(node.watcher(), 1)

    ((_, eviction),) = node.evictions
    assert eviction.grace_seconds == 28, "a longer grace period would outlast the machine"


def test_a_cloud_that_promises_to_drain_gets_a_sixth_of_the_notice_time() -> None:
    node = Simulation(
        notices=(preemption(30),), running_pods=by_name(pod("worker", grace_seconds=25))
    )
    watcher = node.watcher()

    node.run(watcher, 5)
    assert not node.evictions
    node.run(watcher, 1)

    assert [eviction.pod.name for _, eviction in node.evictions] == ["worker"]


@pytest.mark.parametrize("failure", [RefusedError, UnavailableError])
def test_a_node_that_cannot_be_annotated_is_drained_no_later(
    failure: type[UnavailableError],
) -> None:
    node = Simulation(
        failure=failure,
        notices=(preemption(30),),
        running_pods=by_name(pod("worker", grace_seconds=25)),
        node_is_refused=True,
    )
    watcher = node.watcher()

    node.run(watcher, 5)
    assert not node.evictions, "the cloud has a sixth of the notice time to drain the node"
    node.run(watcher, 1)
    assert [eviction.pod.name for _, eviction in node.evictions] == ["worker"]

    node.node_is_refused = False
    node.run(watcher, 1)
    assert annotation(node)["since"] == "2026-11-21T08:20:00Z"


def test_the_watcher_can_be_configured_not_to_wait_for_the_cloud() -> None:
    node = Simulation(notices=(preemption(30),), running_pods=by_name(pod("worker")))

    node.run(node.watcher(cloud_drains=False), 1)

    assert node.evictions


def test_a_terminating_pod_is_evicted_again_only_if_it_would_outlive_the_machine() -> None:
    now = START
    long_grace, short_grace = (
        pod(name, ends_at=now + seconds, grace_seconds=600)
        for name, seconds in (("late", 600), ("soon", 20))
    )
    node = Simulation(notices=(notice(30),), running_pods=by_name(long_grace, short_grace))

    node.run(node.watcher(), 3)

    assert [eviction.pod.name for _, eviction in node.evictions] == ["late"]


def test_ignored_pods_are_not_evicted() -> None:
    node = Simulation(notices=(notice(30),), running_pods=by_name(pod("daemon", is_ignored=True)))

    node.run(node.watcher(), 3)

    assert not node.evictions
    assert [identifier for identifier, _ in node.started_events] == ["event-1"], "the node is empty"


def test_the_event_is_started_once_and_only_when_the_node_is_empty() -> None:
    node = Simulation(
        notices=(notice(60),), running_pods=by_name(pod("one"), pod("two", grace_seconds=10))
    )

    node.run(node.watcher(), 40)

    assert node.started_events == [("event-1", 0)]


def test_an_event_that_the_cloud_does_not_start_is_retried_and_does_not_block_the_others() -> None:
    first = notice(600)
    node = Simulation(
        notices=(first, replace(first, identifier="event-2")), refused_events={"event-1"}
    )
    watcher = node.watcher()

    node.run(watcher, 2)
    assert node.started_events == [("event-2", 0)]
    node.refused_events = ()
    node.run(watcher, 1)

    assert node.started_events == [("event-2", 0), ("event-1", 0)]


@pytest.mark.parametrize("failure", [RefusedError, UnavailableError])
def test_a_pod_with_a_disruption_budget_is_retried_and_does_not_block_the_others(
    failure: type[UnavailableError],
) -> None:
    node = Simulation(
        failure=failure,
        notices=(notice(30),),
        running_pods=by_name(pod("protected"), pod("refused"), pod("free")),
        protected_pods={"protected"},
        refused_pods={"refused"},
    )
    watcher = node.watcher()

    node.run(watcher, 2)
    assert [eviction.pod.name for _, eviction in node.evictions] == ["free"]
    node.protected_pods = node.refused_pods = ()
    node.run(watcher, 1)

    assert {eviction.pod.name for _, eviction in node.evictions} == {"free", "protected", "refused"}


def test_a_canceled_notice_restores_the_node() -> None:
    node = Simulation(notices=(notice(30),))
    watcher = node.watcher()

    node.run(watcher, 2)
    node.notices = ()
    node.run(watcher, 2)

    assert node.current_node == WatchedNode()


def test_a_restarted_watcher_removes_the_notice_from_before_the_reboot() -> None:
    node = Simulation(notices=(notice(30),))
    node.run(node.watcher(), 2)

    node.notices = ()
    node.run(node.watcher(), 1)

    assert node.current_node == WatchedNode()


def test_a_cordon_set_by_others_is_not_lifted() -> None:
    node = Simulation(notices=(notice(30),), current_node=WatchedNode(unschedulable=True))
    watcher = node.watcher()

    node.run(watcher, 2)
    node.notices = ()
    node.run(watcher, 2)

    assert node.current_node == WatchedNode(unschedulable=True)


def test_a_freeze_is_only_recorded() -> None:
    freeze = notice(30, reason="Freeze", effect=Effect.PAUSE, may_start=False)
    node = Simulation(notices=(freeze,), running_pods=by_name(pod("worker")))

    node.run(node.watcher(), 5)

    assert not node.current_node.unschedulable
    assert not node.evictions
    assert (annotation(node)["reason"], annotation(node)["leaves"]) == ("Freeze", False)


def test_advice_has_a_separate_annotation() -> None:
    advice = Notice(cloud="aws", reason="rebalance", effect=Effect.ADVICE)
    node = Simulation(notices=(advice,), running_pods=by_name(pod("worker")))

    node.run(node.watcher(), 5)

    assert node.current_node == WatchedNode(annotations={ADVICE_ANNOTATION: "rebalance"})
    assert not node.evictions


def test_without_new_notices_the_api_server_is_not_called() -> None:
    node = Simulation()
    watcher = node.watcher()
    node.run(watcher, 1)

    initial_calls = node.calls
    node.run(watcher, 600)

    assert node.calls == initial_calls, (
        "one call per second from each node would be a considerable load"
    )


def test_a_silent_metadata_service_does_not_cancel_a_notice() -> None:
    node = Simulation(notices=(notice(60),), running_pods=by_name(pod("worker")))
    watcher = node.watcher()
    node.run(watcher, 1)

    node.metadata_available = False
    node.run(watcher, 20)

    assert node.current_node.unschedulable
    assert NOTICE_ANNOTATION in node.current_node.annotations


def test_a_received_notice_is_handled_although_the_service_has_stalled_since() -> None:
    node = Simulation(
        notices=(notice(60),), running_pods=by_name(pod("worker")), api_available=False
    )
    watcher = node.watcher()
    node.run(watcher, 1)

    node.metadata_available, node.api_available = False, True
    node.run(watcher, 1)

    assert node.current_node.unschedulable
    assert node.evictions, "the service tends to stall when many machines are interrupted"


def test_a_recorded_notice_survives_a_restart_with_a_silent_service() -> None:
    node = Simulation(notices=(notice(60),))
    node.run(node.watcher(), 1)

    node.metadata_available = False
    node.run(node.watcher(), 5)

    assert node.current_node.unschedulable


def test_the_watcher_continues_after_an_outage_of_the_api_server() -> None:
    node = Simulation(
        notices=(notice(60),), running_pods=by_name(pod("worker")), api_available=False
    )
    watcher = node.watcher()

    node.run(watcher, 20)
    node.api_available = True
    node.run(watcher, 1)

    assert node.current_node.unschedulable
    ((_, eviction),) = node.evictions
    assert eviction.grace_seconds == 30, "38 s remain, more than the pod's own grace period"


spans = st.lists(st.tuples(st.integers(0, 90), st.integers(1, 15)), max_size=3)


@given(data=st.data())
def test_the_guarantees_hold_despite_outages(data: st.DataObject) -> None:
    announced_second = data.draw(st.integers(0, 20))
    withdrawn_second = data.draw(st.none() | st.integers(21, 60))
    kind = data.draw(st.sampled_from([notice, preemption]))
    notice_seconds = data.draw(st.sampled_from([2, 30, 60, 120]))
    api_outages, metadata_outages = data.draw(spans), data.draw(spans)
    cordoned_before = data.draw(st.booleans())
    grace_periods = data.draw(st.lists(st.integers(0, 200), max_size=4))
    node = Simulation(
        current_node=WatchedNode(unschedulable=cordoned_before, annotations={"owner": "others"}),
        running_pods=by_name(
            *(
                pod(f"pod-{index}", grace_seconds=grace, is_worker=index % 2 == 0)
                for index, grace in enumerate(grace_periods)
            )
        ),
    )
    watcher, current_notice, received = node.watcher(), None, False
    for second in range(100):
        if second == announced_second:
            current_notice, received = replace(kind(0), deadline=node.now + notice_seconds), False
        if second == withdrawn_second:
            current_notice, received = None, False
        node.notices = (current_notice,) if current_notice else ()
        node.api_available = not any(
            start <= second < start + length for start, length in api_outages
        )
        node.metadata_available = not any(
            start <= second < start + length for start, length in metadata_outages
        )
        watcher.step()
        received = received or (node.metadata_available and node.api_available)
        if received:
            check_node(node, current_notice, cordoned_before=cordoned_before)
        node.advance()
    check_history(node, announced_second, withdrawn_second, notice_seconds)


def check_node(node: Simulation, current_notice: Notice | None, *, cordoned_before: bool) -> None:
    assert node.current_node.unschedulable == (cordoned_before or current_notice is not None)
    assert (NOTICE_ANNOTATION in node.current_node.annotations) == (current_notice is not None)
    assert node.current_node.annotations["owner"] == "others"


def check_history(
    node: Simulation, announced_second: int, withdrawn_second: int | None, notice_seconds: int
) -> None:
    notice_time = START + announced_second
    for evicted_at, eviction in node.evictions:
        assert evicted_at >= notice_time, "no eviction before the notice"
        assert eviction.grace_seconds <= max(
            1, notice_time + notice_seconds - NODE_MARGIN_SECONDS - evicted_at
        )
        assert eviction.grace_seconds <= max(eviction.pod.grace_seconds, 0)
    assert len(node.started_events) <= 1
    assert all(remaining == 0 for _, remaining in node.started_events), (
        "the machine must not stop before its pods"
    )
    if withdrawn_second is None and node.metadata_available and node.api_available:
        assert all(pod.ends_at is not None for pod in node.running_pods.values())


def worker(name: str = "worker", **values: Any) -> NodePod:
    return pod(name, is_worker=True, grace_seconds=110, **values)


def test_a_worker_gets_the_deadline_while_the_cloud_may_still_drain() -> None:
    node = Simulation(notices=(preemption(30),), running_pods=by_name(worker()))

    node.run(node.watcher(), 1)

    assert node.running_pods["worker"].deadline == "2026-11-21T08:20:30Z"
    assert not node.evictions


def test_a_worker_is_evicted_one_pass_after_it_gets_the_deadline() -> None:
    node = Simulation(notices=(notice(30),), running_pods=by_name(worker(), pod("other")))
    watcher = node.watcher()

    node.run(watcher, 1)
    assert [eviction.pod.name for _, eviction in node.evictions] == ["other"]
    node.run(watcher, 1)

    ((evicted_at, eviction),) = [timed for timed in node.evictions if timed[1].pod.name == "worker"]
    assert (evicted_at - START, eviction.grace_seconds) == (1, 27)


@pytest.mark.parametrize("failure", [RefusedError, UnavailableError])
def test_a_worker_that_cannot_be_annotated_is_still_evicted(
    failure: type[UnavailableError],
) -> None:
    node = Simulation(
        failure=failure,
        notices=(notice(30),),
        running_pods=by_name(worker()),
        refused_pods={"worker"},
    )
    watcher = node.watcher()
    node.run(watcher, 2)

    node.refused_pods = ()
    node.run(watcher, 1)

    assert node.evictions, "a missing permission must not prevent the drain"


def test_a_canceled_notice_removes_the_deadline_from_its_workers() -> None:
    node = Simulation(notices=(preemption(60),), running_pods=by_name(worker()))
    watcher = node.watcher()
    node.run(watcher, 1)

    node.notices = ()
    node.run(watcher, 2)

    assert node.running_pods["worker"].deadline is None, "a later drain has the full grace period"


def test_a_moved_deadline_reaches_the_workers() -> None:
    node = Simulation(notices=(preemption(60),), running_pods=by_name(worker()))
    watcher = node.watcher()
    node.run(watcher, 1)

    node.notices = (preemption(40),)
    node.run(watcher, 1)

    assert node.running_pods["worker"].deadline == "2026-11-21T08:20:40Z"


def test_workers_of_an_event_that_has_started_keep_their_deadline() -> None:
    node = Simulation(
        notices=(preemption(60),),
        running_pods=by_name(worker()),
        protected_pods={"worker"},
    )
    watcher = node.watcher()
    node.run(watcher, 1)
    deadline = node.running_pods["worker"].deadline
    assert deadline

    started = notice(None, reason="Preempt", cloud_drains=True, may_start=False)
    node.notices = (started,)
    node.run(watcher, 2)

    assert node.running_pods["worker"].deadline == deadline
