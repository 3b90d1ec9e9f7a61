"""Decisions of an autoscaler to grow and shrink pools."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from cloudtwin.capacity import autoscaler
from cloudtwin.capacity.autoscaler import (
    LabelRequirement,
    PeerSelector,
    PendingPod,
    PoolNode,
    Resources,
    ScalablePool,
    Toleration,
)
from cloudtwin.nodes.model import Taint
from hypothesis import given, settings
from hypothesis.strategies import builds, fixed_dictionaries, integers, lists, sampled_from

from twin.tests.capacity.builders import MACHINE, node, pending_pod, pool, scalable_pool

SPOT = Taint("everstep.dev/spot", "true")
AGENT = Taint("fsx.csi.aws.com/agent-not-ready", "", "NoExecute")
TOLERATIONS = (Toleration(key="everstep.dev/spot", operator="Exists"),)
FASHION = PeerSelector(
    namespaces=frozenset({"default"}),
    requirements=(LabelRequirement(key="job-name", operator="In", values=("fashion",)),),
)
PREFERRED, FALLBACK = pool("a-spot"), pool("b-demand", capacity="on-demand")


def sizes(
    pools: Sequence[ScalablePool],
    nodes: Sequence[PoolNode] = (),
    pods: Sequence[PendingPod] = (),
) -> Mapping[str, int]:
    return autoscaler.decide(pools, nodes, pods).sizes


def test_a_pool_grows_by_as_many_machines_as_pending_pods_need() -> None:
    assert sizes([scalable_pool()], pods=[pending_pod(), pending_pod(), pending_pod()]) == {
        "c/spot": 3
    }


def test_machines_that_are_still_starting_are_filled_before_a_pool_grows() -> None:
    assert sizes([scalable_pool(pool(desired_size=2))], pods=[pending_pod(), pending_pod()]) == {}


def test_free_resources_of_present_machines_are_used_first() -> None:
    nodes = [node("spot-0"), node("spot-1", free_resources=Resources(pods=100))]

    assert sizes([scalable_pool(pool(desired_size=2))], nodes, [pending_pod()]) == {}
    assert sizes([scalable_pool(pool(desired_size=2))], nodes, [pending_pod(), pending_pod()]) == {
        "c/spot": 3
    }


def test_the_pool_with_the_highest_priority_grows() -> None:
    pools = [scalable_pool(PREFERRED, priority=10), scalable_pool(FALLBACK, priority=50)]

    assert sizes(pools, pods=[pending_pod()]) == {"c/b-demand": 1}


def test_a_pool_without_capacity_is_skipped_in_favor_of_the_next() -> None:
    pools = [
        scalable_pool(PREFERRED, priority=50, out_of_capacity=True),
        scalable_pool(FALLBACK, priority=10),
    ]

    assert sizes(pools, pods=[pending_pod()]) == {"c/b-demand": 1}


def test_a_pod_that_selects_a_zone_gets_a_machine_of_a_pool_in_that_zone() -> None:
    preferred = scalable_pool(pool("near", zone="us-east-1a"), priority=20)
    other = scalable_pool(pool("far", zone="us-east-1b"), priority=10)
    selecting_pod = pending_pod(selector={"topology.kubernetes.io/zone": "us-east-1b"})

    assert sizes([preferred, other], pods=[selecting_pod]) == {"c/far": 1}


def test_a_pod_that_excludes_a_label_gets_no_machine_of_a_pool_with_that_label() -> None:
    # Spot workers of a job with its own on-demand fallback exclude the machines of the on-demand pool.
    spot = scalable_pool(PREFERRED, priority=50, out_of_capacity=True)
    on_demand = scalable_pool(replace(FALLBACK, labels={"capacity": "on-demand"}), priority=10)
    requirement = LabelRequirement(key="capacity", operator="NotIn", values=("on-demand",))

    assert sizes([spot, on_demand], pods=[pending_pod(node_terms=((requirement,),))]) == {}
    assert sizes([spot, on_demand], pods=[pending_pod()]) == {"c/b-demand": 1}
    nodes = [node("b-demand-0", "c/b-demand")]
    used_pool = replace(on_demand, pool=replace(on_demand.pool, desired_size=1))
    assert sizes(
        [used_pool, scalable_pool(PREFERRED)], nodes, [pending_pod(node_terms=((requirement,),))]
    ) == {"c/a-spot": 1}


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ("4",), {"4"}),
        ("NotIn", ("4",), {"5", "many", None}),
        ("Exists", (), {"4", "5", "many"}),
        ("DoesNotExist", (), {None}),
        ("Gt", ("4",), {"5"}),
        ("Lt", ("5",), {"4"}),
    ],
)
def test_a_node_affinity_supports_the_operators_of_kubernetes(
    operator: str, values: tuple[str, ...], expected: set[str | None]
) -> None:
    requirement = LabelRequirement(key="gpus", operator=operator, values=values)
    values_of_label = ("4", "5", "many", None)
    labels = {value: {} if value is None else {"gpus": value} for value in values_of_label}

    assert {
        value for value, value_labels in labels.items() if requirement.matches(value_labels)
    } == expected


def test_one_term_of_a_node_affinity_is_enough_and_an_empty_term_matches_no_pool() -> None:
    fast_disk = LabelRequirement(key="disk", operator="In", values=("fast",))
    no_disk = LabelRequirement(key="disk", operator="DoesNotExist")

    assert sizes([scalable_pool()], pods=[pending_pod(node_terms=((fast_disk,), (no_disk,)))]) == {
        "c/spot": 1
    }
    assert sizes([scalable_pool()], pods=[pending_pod(node_terms=((fast_disk, no_disk),))]) == {}
    assert sizes([scalable_pool()], pods=[pending_pod(node_terms=((),))]) == {}


def test_pods_that_must_share_a_zone_are_never_split_across_two_zones() -> None:
    preferred = scalable_pool(pool("near", zone="us-east-1a", max_size=2), priority=20)
    fallback = scalable_pool(pool("far", zone="us-east-1b"), priority=10)
    pods = [pending_pod(f"default/{index}", peers=FASHION) for index in range(3)]

    assert sizes([preferred, fallback], pods=pods) == {"c/near": 2}
    assert sizes([preferred, fallback], pods=[pending_pod() for _ in pods]) == {
        "c/near": 2,
        "c/far": 1,
    }


def test_pods_join_the_zone_of_their_running_peers_or_any_zone_if_no_peer_runs() -> None:
    preferred = scalable_pool(pool("near", zone="us-east-1a"), priority=20, out_of_capacity=True)
    fallback = scalable_pool(pool("far", zone="us-east-1b"), priority=10)
    pod = pending_pod(peers=FASHION)
    constrained_pod = pending_pod(peers=FASHION, zones=frozenset({"us-east-1a"}))

    assert sizes([preferred, fallback], pods=[constrained_pod]) == {}
    assert sizes([preferred, fallback], pods=[pod]) == {"c/far": 1}


def test_jobs_of_two_namespaces_with_the_same_labels_need_not_share_a_zone() -> None:
    near = scalable_pool(pool("near", zone="us-east-1a", max_size=1), priority=20)
    far = scalable_pool(pool("far", zone="us-east-1b"), priority=10)
    other_job = replace(FASHION, namespaces=frozenset({"other"}))
    pods = [pending_pod(peers=FASHION), pending_pod("other/p", peers=other_job)]

    assert sizes([near, far], pods=pods) == {"c/near": 1, "c/far": 1}


def test_a_full_pool_is_skipped_in_favor_of_the_next() -> None:
    full_pool = scalable_pool(pool("a-spot", desired_size=1, max_size=1), priority=50)

    new_sizes = sizes(
        [full_pool, scalable_pool(FALLBACK)],
        [node("x", "c/a-spot", free_resources=Resources())],
        [pending_pod()],
    )

    assert new_sizes == {"c/b-demand": 1}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"selector": {"disk": "fast"}}, "no label disk=fast"),
        ({"requests": Resources(gpus=2, pods=1)}, "offers"),
        ({"tolerations": ()}, "does not tolerate everstep.dev/spot=true:NoSchedule"),
    ],
)
def test_a_pod_that_fits_no_pool_stays_pending_with_a_reason(
    fields: dict[str, Any], reason: str
) -> None:
    tainted_pool = scalable_pool(pool(taints=(SPOT,)))
    pod = pending_pod(**{"tolerations": TOLERATIONS, **fields})

    decision = autoscaler.decide([tainted_pool], [], [pod])

    assert decision.sizes == {}
    assert reason in decision.reasons[0]


def test_a_startup_taint_keeps_pods_off_unless_the_autoscaler_ignores_it() -> None:
    tainted_pool = pool(startup_taints=(AGENT,))

    assert sizes([scalable_pool(tainted_pool)], pods=[pending_pod()]) == {}
    assert sizes(
        [scalable_pool(tainted_pool, ignored_taints=frozenset({AGENT.key}))], pods=[pending_pod()]
    ) == {"c/spot": 1}


def test_a_selector_matches_labels_that_the_cloud_adds() -> None:
    pods = [pending_pod(selector={"eks.amazonaws.com/capacityType": "SPOT"})]

    assert sizes([scalable_pool()], pods=pods) == {"c/spot": 1}


def test_machines_idle_for_long_enough_are_removed_down_to_the_minimum() -> None:
    target = scalable_pool(pool(desired_size=3, min_size=1, idle_seconds=60))
    nodes = [node("a", idle_seconds=61), node("b", idle_seconds=90), node("c", idle_seconds=70)]

    assert autoscaler.decide([target], nodes, []).remove == ("b", "c")


def test_a_busy_or_recently_idle_machine_stays() -> None:
    target = scalable_pool(pool(desired_size=2, idle_seconds=60))

    decision = autoscaler.decide([target], [node("a"), node("b", idle_seconds=59)], [])
    decision_without_delay = autoscaler.decide(
        [scalable_pool(pool(desired_size=1, idle_seconds=0))], [node("a")], []
    )

    assert decision.remove == ()
    assert decision_without_delay.remove == (), "a busy machine has been idle for 0 s"


def test_no_machine_is_removed_while_a_pod_is_pending() -> None:
    target = scalable_pool(pool(desired_size=1, idle_seconds=60))
    nodes = [node("a", idle_seconds=90, free_resources=Resources())]

    assert autoscaler.decide([target], nodes, [pending_pod()]).remove == ()


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="everstep.dev/spot", value="true"), True),
        (Toleration(key="everstep.dev/spot", value="false"), False),
        (Toleration(key="everstep.dev/spot", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="everstep.dev/spot", operator="Exists", effect="NoExecute"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(), False),
    ],
)
def test_tolerations_match_as_in_kubernetes(toleration: Toleration, expected: bool) -> None:
    assert toleration.tolerates(SPOT) is expected


REQUESTS = builds(
    Resources,
    milli_cpu=integers(0, 3000),
    memory=integers(0, 6 << 30),
    gpus=integers(0, 2),
    pods=integers(1, 1),
)
PODS = lists(
    builds(
        PendingPod,
        name=integers().map(str),
        requests=REQUESTS,
        selector=sampled_from([{}, {"kind": "a"}, {"kind": "none"}]),
    ),
    max_size=12,
    unique_by=lambda pod: pod.name,
)


@settings(max_examples=50)
@given(pods=PODS, sizes_now=fixed_dictionaries({"a": integers(0, 4), "b": integers(0, 4)}))
def test_no_pool_exceeds_its_maximum_and_a_pod_stays_pending_only_if_no_machine_could_run_it(
    pods: list[PendingPod], sizes_now: dict[str, int]
) -> None:
    pools = {
        name: pool(name, desired_size=size, max_size=4, labels={"kind": name})
        for name, size in sizes_now.items()
    }

    decision = autoscaler.decide([scalable_pool(p) for p in pools.values()], [], pods)

    new_sizes = {name: decision.sizes.get(p.key, p.desired_size) for name, p in pools.items()}
    assert all(sizes_now[name] <= new_sizes[name] <= 4 for name in pools)
    growth = sum(new_sizes.values()) - sum(sizes_now.values())
    pending_names = {
        name
        for name, separator, _ in (r.partition(" stays pending: ") for r in decision.reasons)
        if separator
    }
    assert len(decision.reasons) == growth + len(pending_names), "a reason for each change"
    placed_pods = [p for p in pods if p.name not in pending_names]
    assert growth <= len(placed_pods), "no machine without a pod"
    for field in fields(Resources):
        requested = sum(getattr(p.requests, field.name) for p in placed_pods)
        assert requested <= sum(new_sizes.values()) * getattr(MACHINE, field.name)
    for pod in pods:
        suitable_pools = [p for p in pools.values() if pod.selector.items() <= p.labels.items()]
        if not suitable_pools or not MACHINE.covers(pod.requests):
            assert pod.name in pending_names
        elif pod.name in pending_names:
            assert all(new_sizes[p.name] == 4 for p in suitable_pools), (
                "a suitable pool could start another machine"
            )


def test_of_two_pools_with_the_same_name_only_the_pool_with_capacity_grows() -> None:
    full, free = (
        scalable_pool(pool(cluster=cluster, max_size=1), out_of_capacity=cluster == "a")
        for cluster in ("a", "b")
    )

    assert sizes([full, free], pods=[pending_pod()]) == {"b/spot": 1}
