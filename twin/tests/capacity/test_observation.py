"""Kubernetes objects as the input of an autoscaler."""

from collections.abc import Mapping
from typing import Any

import pytest
from cloudtwin.capacity import observation
from cloudtwin.capacity.autoscaler import LabelRequirement, PeerSelector, Resources, Toleration
from cloudtwin.capacity.observation import AutoscalerPod

from twin.tests.capacity.builders import MACHINE, pool

AUTOSCALER = "registry.k8s.io/autoscaling/cluster-autoscaler"
IN_A_OR_C = {"key": "job", "operator": "In", "values": ["a", "c"]}
GPU_REQUESTS = {"cpu": "250m", "memory": "2Gi", "nvidia.com/gpu": "1"}


def kube_pod(
    name: str = "p",
    phase: str = "Pending",
    reason: str = "Unschedulable",
    node: str | None = None,
    owner: str = "",
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, str] = GPU_REQUESTS,
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "labels": labels}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner}]
    condition = {"type": "PodScheduled", "status": "False", "reason": reason}
    container = {"image": "x", "resources": {"requests": requests}}
    return {
        "metadata": metadata,
        "spec": {"containers": [container], "nodeName": node, **spec},
        "status": {"phase": phase, "conditions": [condition]},
    }


def kube_node(gpus: int = 1, unschedulable: bool = False) -> dict[str, Any]:
    allocatable = {"cpu": "2", "memory": "4Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {"spec": {"unschedulable": unschedulable}, "status": {"allocatable": allocatable}}


def autoscaler(
    *flags: str, phase: str = "Running", image: str = f"{AUTOSCALER}:v1.36.0"
) -> dict[str, Any]:
    body = kube_pod("ca", phase)
    body["spec"]["containers"][0] |= {
        "image": image,
        "command": ["./cluster-autoscaler"],
        "args": flags,
    }
    return body


def test_only_unschedulable_pods_are_pending() -> None:
    terminating_pod = kube_pod("terminating")
    terminating_pod["metadata"]["deletionTimestamp"] = "now"
    pods = [
        kube_pod("a"),
        kube_pod("b", "Running"),
        kube_pod("c", reason="SchedulerError"),
        terminating_pod,
    ]

    assert [pod.name for pod in observation.pending_pods(pods)] == ["default/a"]


def test_a_pod_requests_the_sum_of_its_containers_or_the_largest_init_container() -> None:
    pod = kube_pod(tolerations=[{"operator": "Exists"}], nodeSelector={"a": "b"})
    pod["spec"]["containers"] *= 2
    pod["spec"]["initContainers"] = [{"resources": {"limits": {"cpu": "2"}}}, {}]

    (observed,) = observation.pending_pods([pod])

    assert observed.requests == Resources(milli_cpu=2000, memory=4 << 30, gpus=2, pods=1)
    assert observed.tolerations == (Toleration(operator="Exists"),)
    assert observed.selector == {"a": "b"}


def test_a_sidecar_and_the_containers_after_it_add_up() -> None:
    def init_container(cpu: str, **fields: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **fields}

    pod = kube_pod(requests={"cpu": "500m"}, overhead={"cpu": "50m"})
    pod["spec"]["initContainers"] = [
        init_container("300m"),
        init_container("100m", restartPolicy="Always"),
    ]
    assert observation.requests_of(pod).milli_cpu == 650

    pod["spec"]["initContainers"].append(init_container("700m"))
    assert observation.requests_of(pod).milli_cpu == 850, "it runs beside the sidecar"


def test_requests_and_allocatable_resources_may_be_any_quantity() -> None:
    requests = {"cpu": "100n", "memory": "1e3", "nvidia.com/gpu": "1e0"}
    pod = kube_pod("a", "Running", node="m", requests=requests)
    offered = kube_node()
    offered["status"]["allocatable"] |= {"cpu": "2e0", "memory": "2E", "pods": "1k"}

    (node,) = observation.pool_nodes({"c/spot": pool()}, {"m": "c/spot"}, {"m": offered}, [pod], {})

    assert observation.requests_of(pod) == Resources(milli_cpu=1, memory=1000, gpus=1, pods=1)
    assert node.free_resources == Resources(
        milli_cpu=1999, memory=2 * 10**18 - 1000, gpus=0, pods=999
    )


def test_free_resources_exclude_the_requests_of_running_pods() -> None:
    pods = [kube_pod("a", "Running", node="m"), kube_pod("b", "Succeeded", node="m")]

    (node,) = observation.pool_nodes(
        {"c/spot": pool()}, {"m": "c/spot"}, {"m": kube_node()}, pods, {}
    )

    assert node.free_resources == Resources(milli_cpu=1750, memory=2 << 30, gpus=0, pods=109)


def test_a_machine_without_its_device_plugin_has_as_many_gpus_as_its_pool_declares() -> None:
    (node,) = observation.pool_nodes(
        {"c/spot": pool(gpus=4)}, {"m": "c/spot"}, {"m": kube_node(0)}, [], {}
    )

    assert node.free_resources.gpus == 4


def test_cordoned_machines_and_machines_without_a_pool_take_no_pods() -> None:
    nodes = {"cordoned": kube_node(unschedulable=True), "other": kube_node()}

    assert observation.pool_nodes({"c/spot": pool()}, {"cordoned": "c/spot"}, nodes, [], {}) == []


def test_a_new_machine_offers_the_resources_that_daemon_sets_leave_on_an_existing_machine() -> None:
    daemon = kube_pod("d", "Running", node="m", owner="DaemonSet", requests={"cpu": "100m"})
    work = kube_pod("w", "Running", node="m")
    observed = observation.resources_of_new_node(
        pool(), {"m": "c/spot"}, {"m": kube_node()}, [daemon, work]
    )

    assert observed == Resources(milli_cpu=1900, memory=4 << 30, gpus=1, pods=109)
    assert (
        observation.resources_of_new_node(pool("other"), {"m": "c/spot"}, {"m": kube_node()}, [])
        is None
    )


def test_pods_of_daemon_sets_do_not_make_a_machine_busy() -> None:
    daemon = kube_pod("d", "Running", node="m", owner="DaemonSet")

    assert not observation.is_busy("m", [daemon, kube_pod("done", "Failed", node="m")])
    assert observation.is_busy("m", [daemon, kube_pod("w", "Running", node="m")])


def test_the_autoscaler_is_found_by_its_image_and_its_flags_apply() -> None:
    flags = ("--startup-taint=a/b", "--ignore-taint=c,d", "--scale-down-unneeded-time=10m", "--v")

    observed = observation.find_autoscaler([kube_pod(), autoscaler(*flags)])

    assert observed is not None
    assert observed.ignored_taints == {"a/b", "c", "d"}
    assert observed.idle_seconds == 600
    assert observation.find_autoscaler([kube_pod(), autoscaler(phase="Pending")]) is None


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (AUTOSCALER, True),
        (f"{AUTOSCALER}@sha256:{'0' * 64}", True),
        (f"{AUTOSCALER}:v1.36.0@sha256:{'0' * 64}", True),
        ("localhost:5000/cluster-autoscaler", True),
        (f"{AUTOSCALER}-arm64@sha256:{'0' * 64}", False),
        ("cluster-autoscaler/addon-resizer:1", False),
    ],
)
def test_the_autoscaler_is_found_by_the_last_part_of_its_image_name(
    image: str, expected: bool
) -> None:
    assert (observation.find_autoscaler([autoscaler(image=image)]) is not None) is expected


def test_eks_pools_scale_with_an_autoscaler_pod_and_aks_pools_if_enabled() -> None:
    pools = [pool("eks"), pool("aks", cloud="azure", autoscaled=True), pool("no", cloud="azure")]
    offers = {p.key: MACHINE for p in pools}
    autoscaler_pod = AutoscalerPod(
        namespace="kube-system", flags={"scale-down-unneeded-time": ("2m",)}
    )

    pools_without_pod = observation.scalable_pools(pools, offers, None, {}, {})
    pools_with_pod = observation.scalable_pools(
        pools, offers, autoscaler_pod, {"c/eks": 7}, {"c/eks": 1}, time_factor=60
    )

    assert [t.pool.name for t in pools_without_pod] == ["aks"]
    assert [t.pool.name for t in pools_with_pod] == ["eks", "aks"]
    eks = pools_with_pod[0]
    assert (eks.priority, eks.out_of_capacity, eks.pool.idle_seconds) == (7, True, 2)


@pytest.mark.parametrize(("values", "seconds"), [(("0s",), 0), (("5m",), 300), ((), 600)])
def test_the_idle_time_of_the_autoscaler_replaces_the_pools_time_even_if_it_is_zero(
    values: tuple[str, ...], seconds: float
) -> None:
    autoscaler_pod = AutoscalerPod(
        namespace="kube-system", flags={"scale-down-unneeded-time": values} if values else {}
    )

    (scalable,) = observation.scalable_pools([pool()], {"c/spot": MACHINE}, autoscaler_pod, {}, {})

    assert scalable.pool.idle_seconds == seconds


def test_a_pool_of_fixed_size_is_not_scaled() -> None:
    fixed_pool = pool(cloud="azure", autoscaled=True, min_size=3, max_size=3)

    assert observation.scalable_pools([fixed_pool], {"c/spot": MACHINE}, None, {}, {}) == []


def test_priorities_match_the_names_of_machine_groups_in_the_cloud() -> None:
    text = "10:\n- .*\n50:\n- ^eks-a-.*\n- aks-t4-\n"
    pools = [pool("a"), pool("t4", cloud="azure"), pool("b")]

    assert observation.priorities_of({"data": {"priorities": text}}, pools) == {
        "c/a": 50,
        "c/t4": 50,
        "c/b": 10,
    }
    assert observation.priorities_of({}, pools) == {}


@pytest.mark.parametrize(
    "text", ["10: [", "ten: [.*]", "10: ['(']", "10: 5", "10: [1]", "[10]", "text", "10:"]
)
def test_an_invalid_config_map_of_priorities_is_ignored(text: str) -> None:
    assert observation.priorities_of({"data": {"priorities": text}}, [pool("t4")]) == {}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600), ("1h30m", 5400), ("1.5s", 1.5), ("200ms", 0.2), ("0", 0), ("0s", 0), (".5s", 0.5), ("1.s", 1),
        ("500us", 0.0005), ("500µs", 0.0005), ("100ns", 1e-7), ("+5m", 300), ("-1m30s", -90),
    ],
)  # fmt: skip
def test_durations_are_parsed_as_in_go(text: str, seconds: float) -> None:
    assert observation.duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "10", "m10", "10x", "10m!", "1.2.3s", "-", "00", ".s", "1m 2s"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid duration"):
        observation.duration_seconds(text)


def test_a_pod_that_shares_a_zone_with_others_must_run_in_a_zone_of_the_running_ones() -> None:
    term = {
        "topologyKey": "topology.kubernetes.io/zone",
        "labelSelector": {"matchLabels": {"job": "a"}},
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    waiting_pod = kube_pod("waiting", labels={"job": "a"}, affinity=affinity)
    pod_of_another_namespace = kube_pod("n", "Running", node="two", labels={"job": "a"})
    pod_of_another_namespace["metadata"]["namespace"] = "other"
    pods = [
        waiting_pod,
        kube_pod("peer", "Running", node="one", labels={"job": "a"}),
        kube_pod("stranger", "Running", node="two", labels={"job": "b"}),
        kube_pod("ended", "Failed", node="two", labels={"job": "a"}),
        pod_of_another_namespace,
    ]
    (constrained_pod,) = observation.pending_pods(pods, {"one": "us-east-1a", "two": "us-east-1b"})
    (unconstrained_pod,) = observation.pending_pods([waiting_pod])

    job = LabelRequirement(key="job", operator="In", values=("a",))
    assert constrained_pod.peers == PeerSelector(
        namespaces=frozenset({"default"}), requirements=(job,)
    )
    assert (constrained_pod.zones, unconstrained_pod.zones) == (
        frozenset({"us-east-1a"}),
        frozenset(),
    )


@pytest.mark.parametrize(
    ("term", "zones"),
    [
        ({"labelSelector": {"matchExpressions": [IN_A_OR_C]}}, {"z-a", "z-c"}),
        (
            {"labelSelector": {"matchLabels": {"job": "a"}, "matchExpressions": [IN_A_OR_C]}},
            {"z-a"},
        ),
        ({"labelSelector": {}}, {"z-a", "z-b", "z-c"}),
        ({}, set()),
        ({"labelSelector": {"matchLabels": {"job": "d"}}, "namespaces": ["other"]}, {"z-d"}),
    ],
    ids=["expression", "expression and label", "empty", "none", "namespace"],
)
def test_peers_are_the_pods_that_the_whole_selector_selects(
    term: dict[str, Any], zones: set[str]
) -> None:
    required = [{"topologyKey": "topology.kubernetes.io/zone", **term}]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    peers = [kube_pod(job, "Running", node=job, labels={"job": job}) for job in "abcd"]
    peers[-1]["metadata"]["namespace"] = "other"

    (pod,) = observation.pending_pods(
        [kube_pod("waiting", affinity=affinity), *peers], {job: f"z-{job}" for job in "abcd"}
    )

    assert pod.zones == zones


def test_a_pod_has_the_terms_of_its_required_node_affinity() -> None:
    expression = {"key": "capacity", "operator": "NotIn", "values": ["on-demand"]}
    by_name = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    terms = [{"matchExpressions": [expression]}, {"matchFields": [by_name]}]
    required_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
    }
    preferred_affinity = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"preference": terms[0]}]
    }

    (constrained_pod,) = observation.pending_pods(
        [kube_pod(affinity={"nodeAffinity": required_affinity})]
    )
    (unconstrained_pod,) = observation.pending_pods(
        [kube_pod(affinity={"nodeAffinity": preferred_affinity})]
    )

    assert constrained_pod.node_terms == (
        (LabelRequirement(key="capacity", operator="NotIn", values=("on-demand",)),),
        (LabelRequirement(key="metadata.name", operator="In", values=("a",)),),
    )
    assert unconstrained_pod.node_terms == ()
