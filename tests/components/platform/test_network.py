"""The network policies of a stack allow the connections that its pods need, and no others."""

from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.platform.pods import DATA_PREPARATION
from tests.components.aws.eks_stack import declare_training
from tests.components.existing.existing_stack import declare_existing, pod_of
from tests.components.fake_cloud import default_graph, fake_cloud_graph
from tests.components.network_policy_model import Endpoint, Network, selects
from tests.components.recorder import Graph, RecordedResource

JOB = "elastic-job"
METADATA = Endpoint(name="metadata", address="169.254.169.254")
IDENTITY_AGENT = Endpoint(name="identity-agent", address="169.254.170.23")
API = Endpoint(name="api", address="10.100.0.1")
INTERNET = Endpoint(name="internet", address="203.0.113.9")
DNS = Endpoint(
    name="dns", address="10.0.0.53", namespace="kube-system", labels={"k8s-app": "kube-dns"}
)
PROMETHEUS = Endpoint(name="prometheus", address="10.0.0.54", namespace="monitoring")
OTHER_POD = Endpoint(name="other-pod", address="10.0.0.55", namespace=JOB, labels={"app": "other"})
OTHER_ENDPOINTS = (METADATA, API, INTERNET, DNS, PROMETHEUS, OTHER_POD)

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
    "UDP": (53, 123, 40001),  # 40001 as an example: each agent chooses its port for heartbeats
}


def template_of(resource: RecordedResource) -> dict[str, Any]:
    spec = resource.inputs["spec"]
    template: dict[str, Any] = (spec.get("replicaSpecs", {}).get("Worker") or spec)["template"]
    return template


def endpoints(graph: Graph) -> list[Endpoint]:
    """Return two pods of each workload, and all other endpoints."""
    pods = [
        Endpoint(
            name=f"{role}-{index}",
            address=f"10.1.{block}.{index}",
            namespace=graph[name].inputs["metadata"]["namespace"],
            labels=template_of(graph[name])["metadata"]["labels"],
            host_network=bool(pod_of(graph[name]).get("hostNetwork")),
        )
        for block, (name, role) in enumerate(WORKLOADS.items())
        for index in range(2)
    ]
    return [*OTHER_ENDPOINTS, *pods]


def network(graph: Graph) -> Network:
    return Network(policies=[resource.inputs for resource in graph.of_type("NetworkPolicy")])


def role(endpoint: Endpoint) -> str:
    return endpoint.name.removesuffix("-0").removesuffix("-1")


@cache
def connections() -> frozenset[tuple[str, str, str]]:
    """Return all allowed (source, target, port) between different endpoints in a stack with every service."""
    graph = default_graph()
    policies, all_endpoints = network(graph), endpoints(graph)
    return frozenset(
        (role(source), role(target), f"{protocol}/{port}")
        for source, target in product(all_endpoints, repeat=2)
        for protocol, ports in PORTS.items()
        for port in ports
        if source != target and policies.allows(source, target, port, protocol)
    )


def sources_of(target: str, port: int) -> set[str]:
    return {
        connection[0] for connection in connections() if connection[1:] == (target, f"TCP/{port}")
    }


# Endpoints to which no policy applies: outside the cluster, in another namespace, or with host networking.
UNRESTRICTED_ENDPOINTS = {"metadata", "api", "internet", "dns", "prometheus", "spot"}


def test_only_workers_controller_and_members_reach_etcd() -> None:
    assert sources_of("etcd", 2379) == {"worker", "controller", "etcd"}
    assert sources_of("etcd", 2380) == {"etcd"}
    others = {connection for connection in connections() if connection[1] == "etcd"} - {
        (source, "etcd", f"TCP/{port}")
        for port in (2379, 2380)
        for source in ("worker", "controller", "etcd")
    }
    assert not others


def test_only_workers_reach_each_other_on_any_port() -> None:
    others = {
        connection
        for connection in connections()
        if connection[1] == "worker" and connection[0] != "worker"
    }
    assert {port for _, _, port in others} == {"TCP/9464"}, (
        "only the metrics port is open to others"
    )
    for protocol, ports in PORTS.items():
        for port in ports:
            assert ("worker", "worker", f"{protocol}/{port}") in connections()


def test_workloads_reach_only_the_endpoints_that_they_need() -> None:
    dns = {("dns", "UDP/53"), ("dns", "TCP/53")}
    etcd = {("etcd", "TCP/2379")}
    # The address of an API server depends on the cloud: any address is allowed, on two ports. The metadata service,
    # which returns the node's credentials, uses port 80.
    api = {(target, f"TCP/{port}") for target in UNRESTRICTED_ENDPOINTS for port in (443, 6443)}
    among_workers = {
        ("worker", f"{protocol}/{port}") for protocol, ports in PORTS.items() for port in ports
    }
    allowed = {
        "worker": dns | etcd | among_workers,
        "controller": dns | etcd | api | {("worker", "TCP/9464")},
        "etcd": dns | etcd | {("etcd", "TCP/2380")},
        "data": dns,
        "other-pod": set(),
        "gpu-plugin": set(),
        "exporter": set(),
    }
    for source, targets in allowed.items():
        actual = {(target, port) for origin, target, port in connections() if origin == source}
        assert actual == targets, source


@pytest.mark.parametrize(
    "policy",
    [
        "training-network-controller-to-api-server",
        "training-network-etcd-credentials-to-api-server",
    ],
)
def test_an_api_server_on_a_node_is_reached_with_cilium_which_matches_no_node_by_address(
    policy: str,
) -> None:
    graph = declare_existing(etcd={"persistence": "memory", "authentication": "users"})

    (rule,) = graph[policy].inputs["spec"]["egress"]

    assert set(rule) == {"ports"}


def test_the_data_preparation_reaches_its_source_only_if_it_has_one() -> None:
    graph = declare_training(data={"dataset": "imagefolder", "source": "s3://my-photos"})
    policies = network(graph)
    labels = template_of(graph["training-data-imagefolder"])["metadata"]["labels"]
    data = Endpoint(name="data", address="10.1.9.1", namespace=JOB, labels=labels)

    assert policies.allows(data, INTERNET, 443), "S3 has no fixed addresses"
    assert policies.allows(data, IDENTITY_AGENT, 80), "it hands out the credentials of the role"
    assert not policies.allows(data, INTERNET, 80)
    assert not policies.allows(data, METADATA, 80), "it hands out the credentials of the node"
    assert not policies.allows(data, METADATA, 443)
    assert ("data", "internet", "TCP/443") not in connections()


def test_prometheus_reaches_every_metrics_port() -> None:
    assert "prometheus" in sources_of("exporter", 9400)
    assert "prometheus" in sources_of("controller", 8080)
    assert "prometheus" in sources_of("worker", 9464)
    assert {(target, port) for source, target, port in connections() if source == "prometheus"} - {
        ("exporter", "TCP/9400"),
        ("controller", "TCP/8080"),
        ("worker", "TCP/9464"),
    } <= {(target, port) for _, target, port in connections() if target in UNRESTRICTED_ENDPOINTS}


def test_network_policies_can_be_disabled() -> None:
    graph = fake_cloud_graph(platform={"networkPolicies": False, "gpuPlugin": {"enabled": True}})

    assert not graph.of_type("NetworkPolicy")


def test_default_deny_precedes_the_first_pod() -> None:
    for name in WORKLOADS:
        component = "training-nodes-network" if "-nodes-" in name else "training-network"
        assert f"{component}-default-deny" in default_graph().ancestors(name)


def test_only_pods_of_the_cluster_reach_the_data_preparation_and_only_its_metrics() -> None:
    data = {"dataset": "imagefolder", "source": "uploads/photos.tar"}
    policies = network(declare_existing(data=data))
    preparation = Endpoint(
        name="preparation", address="10.1.0.1", namespace=JOB, labels=DATA_PREPARATION
    )

    sources_by_port = {
        port: {
            source.name for source in OTHER_ENDPOINTS if policies.allows(source, preparation, port)
        }
        for port in PORTS["TCP"]
    }
    assert sources_by_port.pop(9464) == {"dns", "prometheus"}, "Prometheus may be in any namespace"
    assert set().union(*sources_by_port.values()) == set()


# The model itself, checked against the definition of the API.

SELECT_ALL = {"metadata": {"namespace": JOB}, "spec": {"podSelector": {}}}
DENY_ALL = {**SELECT_ALL, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}
POD_A = Endpoint(name="a", address="10.0.1.1", namespace=JOB, labels={"app": "a"})
POD_B = Endpoint(name="b", address="10.0.1.2", namespace=JOB, labels={"app": "b"})


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": JOB}, "spec": {"podSelector": {}, **spec}}


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([], True),
        ([SELECT_ALL], False),  # without types and egress, a policy applies to ingress
        ([DENY_ALL], False),
        ([policy(policyTypes=["Egress"])], False),
        ([DENY_ALL, policy(ingress=[{}], egress=[{}])], True),
        ([DENY_ALL, policy(ingress=[{}], policyTypes=["Ingress"])], False),
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
def test_the_model_follows_the_definition_of_kubernetes(
    policies: list[dict[str, Any]], expected: bool
) -> None:
    assert Network(policies=policies).allows(POD_A, POD_B, 80) is expected


def test_a_pod_with_host_networking_is_subject_to_no_policy_and_matched_by_no_selector() -> None:
    host = Endpoint(
        name="h", address="10.9.0.1", namespace=JOB, labels={"app": "a"}, host_network=True
    )

    assert Network(policies=[policy(policyTypes=["Egress"])]).allows(host, POD_B, 80)
    assert not Network(policies=[policy(ingress=[{"from": [{"podSelector": {}}]}])]).allows(
        host, POD_B, 80
    )


def test_a_named_port_is_refused() -> None:
    with pytest.raises(ValueError, match="named port"):
        Network(policies=[policy(ingress=[{"ports": [{"port": "http"}]}])]).allows(POD_A, POD_B, 80)


@given(
    labels=st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
    key=st.sampled_from("abc"),
    values=st.sets(st.sampled_from("xy")),
)
def test_opposite_expressions_select_opposite_pods(
    labels: dict[str, str], key: str, values: set[str]
) -> None:
    def matches(operator: str) -> bool:
        expression = {"key": key, "operator": operator, "values": sorted(values)}
        return selects({"matchExpressions": [expression]}, labels)

    assert matches("In") is not matches("NotIn")
    assert matches("Exists") is not matches("DoesNotExist")
    assert selects({}, labels)


RULES = st.fixed_dictionaries(
    {},
    optional={
        "from": st.lists(
            st.sampled_from([{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.1.0/30"}}]), max_size=2
        ),
        "ports": st.lists(st.sampled_from([{"port": 80}, {"port": 443}]), max_size=2),
    },
)


@given(
    rules=st.lists(RULES, max_size=3),
    additional_rules=st.lists(RULES, max_size=2),
    port=st.integers(79, 81),
)
def test_policies_are_additive(
    rules: list[dict[str, Any]], additional_rules: list[dict[str, Any]], port: int
) -> None:
    policies = [policy(ingress=rules)]

    if Network(policies=policies).allows(POD_A, POD_B, port):
        assert Network(policies=[*policies, policy(ingress=additional_rules)]).allows(
            POD_A, POD_B, port
        )
