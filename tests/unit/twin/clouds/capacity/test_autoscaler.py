"""When an autoscaler grows and shrinks pools."""

import pytest
from hypothesis import given, settings
from hypothesis.strategies import builds, fixed_dictionaries, integers, lists, sampled_from

from tests.unit.twin.clouds.capacity.builders import MACHINE, ONE, node, pool, template, waiting
from twin.clouds.capacity import autoscaler
from twin.clouds.capacity.autoscaler import Pod, Room, Toleration
from twin.nodes.model import Taint

SPOT = Taint("everstep/spot", "true")
AGENT = Taint("fsx.csi.aws.com/agent-not-ready", "", "NoExecute")
TOLERATES = (Toleration(key="everstep/spot", operator="Exists"),)
PREFERRED, FALLBACK = pool("a-spot"), pool("b-demand", capacity="on-demand")


def sizes(templates, nodes=(), pods=()):
    return autoscaler.decide(templates, nodes, pods).sizes


def test_a_pool_grows_by_as_many_machines_as_waiting_pods_need():
    assert sizes([template()], pods=[waiting(), waiting(), waiting()]) == {"spot": 3}


def test_machines_that_are_coming_take_pods_before_new_ones_are_wanted():
    assert sizes([template(pool(desired=2))], pods=[waiting(), waiting()]) == {}


def test_room_on_machines_that_are_there_is_used_first():
    there = [node("spot-0"), node("spot-1", free=Room(pods=100))]

    assert sizes([template(pool(desired=2))], there, [waiting()]) == {}
    assert sizes([template(pool(desired=2))], there, [waiting(), waiting()]) == {"spot": 3}


def test_the_pool_of_the_highest_priority_grows():
    templates = [template(PREFERRED, priority=10), template(FALLBACK, priority=50)]

    assert sizes(templates, pods=[waiting()]) == {"b-demand": 1}


def test_a_pool_without_capacity_is_passed_over_for_the_next():
    templates = [template(PREFERRED, priority=50, short=True), template(FALLBACK, priority=10)]

    assert sizes(templates, pods=[waiting()]) == {"b-demand": 1}


def test_a_full_pool_is_passed_over_for_the_next():
    full = template(pool("a-spot", desired=1, maximum=1), priority=50)

    grown = sizes([full, template(FALLBACK)], [node("x", "a-spot", free=Room())], [waiting()])

    assert grown == {"b-demand": 1}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"selector": {"disk": "fast"}}, "no label disk=fast"),
        ({"wants": Room(gpus=2, pods=1)}, "offers"),
        ({"tolerations": ()}, "does not tolerate everstep/spot=true:NoSchedule"),
    ],
)
def test_a_pod_that_no_machine_would_take_waits_and_is_told_why(fields, why):
    tainted = template(pool(taints=(SPOT,)))
    pod = waiting(**{"tolerations": TOLERATES, **fields})

    decision = autoscaler.decide([tainted], [], [pod])

    assert decision.sizes == {}
    assert why in decision.reasons[0]


def test_a_start_up_taint_keeps_pods_off_unless_the_autoscaler_knows_that_it_passes():
    tainted = pool(startup_taints=(AGENT,))

    assert sizes([template(tainted)], pods=[waiting()]) == {}
    assert sizes([template(tainted, ignored=frozenset({AGENT.key}))], pods=[waiting()]) == {
        "spot": 1
    }


def test_the_labels_that_the_cloud_adds_count():
    pods = [waiting(selector={"eks.amazonaws.com/capacityType": "SPOT"})]

    assert sizes([template()], pods=pods) == {"spot": 1}


def test_machines_idle_for_long_enough_go_down_to_the_minimum():
    sized = template(pool(desired=3, minimum=1, idle_seconds=60))
    there = [node("a", idle_seconds=61), node("b", idle_seconds=90), node("c", idle_seconds=70)]

    assert autoscaler.decide([sized], there, []).remove == ("b", "c")


def test_a_machine_at_work_or_idle_for_a_moment_stays():
    sized = template(pool(desired=2, idle_seconds=60))

    decision = autoscaler.decide([sized], [node("a"), node("b", idle_seconds=59)], [])

    assert decision.remove == ()


def test_nothing_goes_while_a_pod_waits():
    sized = template(pool(desired=1, idle_seconds=60))
    there = [node("a", idle_seconds=90, free=Room())]

    assert autoscaler.decide([sized], there, [waiting()]).remove == ()


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        (Toleration(key="everstep/spot", value="true"), True),
        (Toleration(key="everstep/spot", value="false"), False),
        (Toleration(key="everstep/spot", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="everstep/spot", operator="Exists", effect="NoExecute"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(), False),
    ],
)
def test_tolerations_are_those_of_kubernetes(toleration, covered):
    assert toleration.covers(SPOT) is covered


ROOMS = builds(
    Room,
    milli_cpu=integers(0, 3000),
    memory=integers(0, 6 << 30),
    gpus=integers(0, 2),
    pods=integers(1, 1),
)
PODS = lists(
    builds(
        Pod,
        name=sampled_from(["p", "q"]),
        wants=ROOMS,
        selector=sampled_from([{}, {"kind": "a"}, {"kind": "none"}]),
    ),
    max_size=12,
)


@settings(max_examples=50, deadline=None)
@given(pods=PODS, sizes_now=fixed_dictionaries({"a": integers(0, 4), "b": integers(0, 4)}))
def test_no_pool_outgrows_its_maximum_and_every_pod_is_placed_or_has_a_reason(pods, sizes_now):
    pools = [
        pool(name, desired=size, maximum=4, labels={"kind": name})
        for name, size in sizes_now.items()
    ]

    decision = autoscaler.decide([template(p) for p in pools], [], pods)

    for one in pools:
        assert one.desired <= decision.sizes.get(one.name, one.desired) <= one.maximum
    grown = sum(decision.sizes.get(p.name, p.desired) - p.desired for p in pools)
    assert grown <= len(pods), "never more machines than pods that wait"
    waits = [reason for reason in decision.reasons if "has to wait" in reason]
    hopeless = [p for p in pods if p.selector == {"kind": "none"} or not MACHINE.holds(p.wants)]
    assert len(waits) >= len(hopeless)
    assert len(decision.reasons) == grown + len(waits)
    assert ONE.without(ONE) == Room()
