"""Who can reach whom in a stack: the lines that are drawn, and that there are no others."""

from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.components.declared import pod_of
from tests.unit.components.reachability import End, Network, selects
from tests.unit.components.recorder import Graph, Recorded
from tests.unit.components.some_cloud import on_some_cloud, usual

JOB, SYSTEM = "elastic-job", "everstep-system"
METADATA = End(name="metadata", address="169.254.169.254")
API = End(name="api", address="10.100.0.1")
INTERNET = End(name="internet", address="203.0.113.9")
DNS = End(name="dns", address="10.0.0.53", namespace="kube-system", labels={"k8s-app": "kube-dns"})
PROMETHEUS = End(name="prometheus", address="10.0.0.54", namespace="monitoring")
STRANGER = End(name="stranger", address="10.0.0.55", namespace=JOB, labels={"app": "other"})
OUTSIDERS = (METADATA, API, INTERNET, DNS, PROMETHEUS, STRANGER)

WORKLOADS = {
    "training-job-fashion": "worker",
    "training-etcd-members": "etcd",
    "training-controller-deployment": "controller",
    "training-data-fashion-mnist": "data",
    "training-nodes-devices-gpu": "gpu-plugin",
    "training-nodes-metrics-exporter": "exporter",
    "training-nodes-spot-watcher": "spot",
}
PORTS = {
    "TCP": (22, 53, 80, 443, 2379, 2380, 6443, 8080, 9400, 9464, 29500, 40001),
    "UDP": (53, 123),
}


def template_of(one: Recorded) -> dict[str, Any]:
    spec = one.inputs["spec"]
    found: dict[str, Any] = (spec.get("replicaSpecs", {}).get("Worker") or spec)["template"]
    return found


def ends(graph: Graph) -> list[End]:
    """Two pods of each workload, and everybody else."""
    ours = [
        End(
            name=f"{role}-{index}",
            address=f"10.1.{at}.{index}",
            namespace=graph[name].inputs["metadata"]["namespace"],
            labels=template_of(graph[name])["metadata"]["labels"],
            host_network=bool(pod_of(graph[name]).get("hostNetwork")),
        )
        for at, (name, role) in enumerate(WORKLOADS.items())
        for index in range(2)
    ]
    return [*OUTSIDERS, *ours]


def network(graph: Graph) -> Network:
    return Network(policies=[one.inputs for one in graph.of("NetworkPolicy")])


def role(end: End) -> str:
    return end.name.removesuffix("-0").removesuffix("-1")


@cache
def lines() -> frozenset[tuple[str, str, str]]:
    """All (from, to, port) that pass, among different ends, in a stack with every service."""
    graph = usual()
    policies, all_ends = network(graph), ends(graph)
    return frozenset(
        (role(source), role(target), f"{protocol}/{port}")
        for source, target in product(all_ends, repeat=2)
        for protocol, ports in PORTS.items()
        for port in ports
        if source != target and policies.lets(source, target, port, protocol)
    )


def who_reaches(target: str, port: int) -> set[str]:
    return {line[0] for line in lines() if line[1:] == (target, f"TCP/{port}")}


# Whom no policy of a namespace can bind: what is outside of the cluster, and in a node's network.
UNBOUND = {"metadata", "api", "internet", "dns", "prometheus", "spot"}


def test_etcd_is_reached_by_workers_controller_and_members_and_by_nobody_else() -> None:
    assert who_reaches("etcd", 2379) == {"worker", "controller", "etcd"}
    assert who_reaches("etcd", 2380) == {"etcd"}
    others = {line for line in lines() if line[1] == "etcd"} - {
        (source, "etcd", f"TCP/{port}")
        for port in (2379, 2380)
        for source in ("worker", "controller", "etcd")
    }
    assert not others


def test_workers_reach_each_other_on_any_port_and_are_reached_by_nobody_else() -> None:
    others = {line for line in lines() if line[1] == "worker" and line[0] != "worker"}
    assert {port for _, _, port in others} == {"TCP/9464"}, "metrics are for whoever collects them"
    for protocol, ports in PORTS.items():
        for port in ports:
            assert ("worker", "worker", f"{protocol}/{port}") in lines()


def test_what_is_ours_reaches_what_it_needs_and_nothing_else() -> None:
    dns = {("dns", "UDP/53"), ("dns", "TCP/53")}
    etcd = {("etcd", "TCP/2379")}
    # The address of an API server is the cloud's affair: any, but on two ports only.
    api = {(where, f"TCP/{port}") for where in UNBOUND - {"metadata"} for port in (443, 6443)}
    among_workers = {
        ("worker", f"{protocol}/{port}") for protocol, ports in PORTS.items() for port in ports
    }
    allowed = {
        "worker": dns | etcd | among_workers,
        "controller": dns | etcd | api,
        "etcd": dns | etcd | {("etcd", "TCP/2380")},
        "data": dns,
        "stranger": set(),
        "gpu-plugin": set(),
        "exporter": set(),
    }
    for source, targets in allowed.items():
        found = {(target, port) for one, target, port in lines() if one == source}
        assert found == targets, source


def test_only_what_stands_in_the_nodes_network_reaches_the_metadata_service() -> None:
    reach = {source for source, target, _ in lines() if target == "metadata"}

    assert reach & set(WORKLOADS.values()) == {"spot"}, "it hands out the node's credentials"
    assert "stranger" not in reach


def test_nobody_but_the_controller_reaches_the_api_server() -> None:
    reach = {source for source, target, _ in lines() if target == "api"}

    assert reach - UNBOUND == {"controller"}


def test_metrics_can_be_read_by_whoever_collects_them() -> None:
    assert "prometheus" in who_reaches("exporter", 9400)
    assert "prometheus" in who_reaches("controller", 8080)
    assert "prometheus" in who_reaches("worker", 9464)
    assert {(target, port) for source, target, port in lines() if source == "prometheus"} - {
        ("exporter", "TCP/9400"),
        ("controller", "TCP/8080"),
        ("worker", "TCP/9464"),
    } <= {(target, port) for _, target, port in lines() if target in UNBOUND}


def test_nothing_is_shut_out_where_a_stack_wants_no_policies() -> None:
    graph = on_some_cloud(platform={"networkPolicies": False, "gpuPlugin": {"enabled": True}})

    assert not graph.of("NetworkPolicy")


def test_silence_comes_before_the_first_pod() -> None:
    for name in WORKLOADS:
        guard = "training-nodes-network" if "-nodes-" in name else "training-network"
        assert f"{guard}-default-deny" in usual().ancestors(name)


# The evaluator itself, held to the API's definition.

ANY = {"metadata": {"namespace": JOB}, "spec": {"podSelector": {}}}
CLOSED = {**ANY, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}
A = End(name="a", address="10.0.1.1", namespace=JOB, labels={"app": "a"})
B = End(name="b", address="10.0.1.2", namespace=JOB, labels={"app": "b"})


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": JOB}, "spec": {"podSelector": {}, **spec}}


@pytest.mark.parametrize(
    ("policies", "passes"),
    [
        ([], True),
        ([ANY], False),  # no types and no egress: about incoming traffic
        ([CLOSED], False),
        ([policy(policyTypes=["Egress"])], False),
        ([CLOSED, policy(ingress=[{}], egress=[{}])], True),
        ([CLOSED, policy(ingress=[{}], policyTypes=["Ingress"])], False),
        ([policy(ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}]}])], True),
        ([policy(ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "c"}}}]}])], False),
        ([policy(ingress=[{"from": [{"namespaceSelector": {}}]}])], True),
        ([policy(ingress=[{"ports": [{"port": 79, "endPort": 81}]}])], True),
        ([policy(ingress=[{"ports": [{"port": 81}]}])], False),
        ([policy(ingress=[{"ports": [{"port": 80, "protocol": "UDP"}]}])], False),
        ([policy(ingress=[{"from": [{"ipBlock": {"cidr": "10.0.1.0/24"}}]}])], True),
        (
            [
                policy(
                    ingress=[
                        {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.1.0/24"]}}]}
                    ]
                )
            ],
            False,
        ),
    ],
)
def test_policies_mean_what_kubernetes_says(policies: list[dict[str, Any]], passes: bool) -> None:
    assert Network(policies=policies).lets(A, B, 80) is passes


def test_a_pod_in_its_nodes_network_is_bound_by_nothing_and_found_by_no_selector() -> None:
    host = End(name="h", address="10.9.0.1", namespace=JOB, labels={"app": "a"}, host_network=True)

    assert Network(policies=[policy(policyTypes=["Egress"])]).lets(host, B, 80)
    assert not Network(policies=[policy(ingress=[{"from": [{"podSelector": {}}]}])]).lets(
        host, B, 80
    )


def test_a_port_with_a_name_is_refused_rather_than_guessed() -> None:
    with pytest.raises(ValueError, match="has a name"):
        Network(policies=[policy(ingress=[{"ports": [{"port": "http"}]}])]).lets(A, B, 80)


@given(
    keys=st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
    key=st.sampled_from("abc"),
    values=st.sets(st.sampled_from("xy")),
)
def test_opposite_expressions_select_opposite_pods(
    keys: dict[str, str], key: str, values: set[str]
) -> None:
    def found(operator: str) -> bool:
        expression = {"key": key, "operator": operator, "values": sorted(values)}
        return selects({"matchExpressions": [expression]}, keys)

    assert found("In") is not found("NotIn")
    assert found("Exists") is not found("DoesNotExist")
    assert selects({}, keys)


rules = st.fixed_dictionaries(
    {},
    optional={
        "from": st.lists(
            st.sampled_from([{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.1.0/30"}}]), max_size=2
        ),
        "ports": st.lists(st.sampled_from([{"port": 80}, {"port": 443}]), max_size=2),
    },
)


@given(
    first=st.lists(rules, max_size=3), more=st.lists(rules, max_size=2), port=st.integers(79, 81)
)
def test_policies_only_ever_add_up(
    first: list[dict[str, Any]], more: list[dict[str, Any]], port: int
) -> None:
    some = [policy(ingress=first)]

    if Network(policies=some).lets(A, B, port):
        assert Network(policies=[*some, policy(ingress=more)]).lets(A, B, port)
