"""Monitors and rules for a Prometheus operator, dashboards for Grafana, and the recorded prices."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.config import from_mapping
from components.cost import estimate, pool_prices
from components.platform import operator_objects
from components.platform.dashboards import DASHBOARDS, dashboard_path
from components.platform.monitoring import prices_of
from components.platform.operator_objects import ScrapeSettings, StackPrices
from tests.components.config.bad_stacks import AKS, EKS, LOCAL, with_changes
from tests.components.existing.existing_stack import declare_existing
from tests.components.fake_cloud import ALL_SERVICES, default_graph, fake_cloud_graph
from tests.components.recorder import Graph, RecordedResource

# The operator's custom resource definitions, from its repository at the version in the file.
SCHEMAS = json.loads(Path(__file__).with_name("operator_schemas.json").read_text())["kinds"]
KINDS = tuple(SCHEMAS)


def monitored_stack(*, job: dict[str, Any] | None = None, **settings: Any) -> Graph:
    monitoring = {"kind": "operator", **settings}
    return fake_cloud_graph(platform={**ALL_SERVICES, "monitoring": monitoring}, job=job or {})


def objects(graph: Graph) -> dict[str, RecordedResource]:
    """Return the objects for the operator by kind and name."""
    return {
        f"{kind} {resource.inputs['metadata']['name']}": resource
        for kind in KINDS
        for resource in graph.of_type(kind)
    }


def faults(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield a message for each part of a value that the schema of a custom resource does not allow."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if schema.get("x-kubernetes-int-or-string"):
        return
    if not isinstance(value, kinds[schema["type"]]):
        yield f"{path} does not have the type {schema['type']}"
    elif isinstance(value, dict):
        properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (
            f"{path}.{key} is missing" for key in schema.get("required", ()) if key not in value
        )
        for key, inner in value.items():
            if (property_schema := properties.get(key, additional)) is None:
                yield f"{path}.{key} is unknown"
            else:
                yield from faults(inner, property_schema, f"{path}.{key}")
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from faults(inner, schema["items"], f"{path}[{position}]")
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{path} is not one of {schema['enum']}"


def test_by_default_a_stack_has_nothing_for_an_operator() -> None:
    assert not objects(default_graph())


def test_an_operator_gets_monitors_and_rules_that_its_definitions_accept() -> None:
    monitored_objects = objects(monitored_stack())

    assert set(monitored_objects) == {
        "PodMonitor everstep-workers",
        "PodMonitor everstep-controller",
        "ServiceMonitor everstep-gpus",
        "PrometheusRule everstep",
    }
    for resource in monitored_objects.values():
        kind = resource.inputs["kind"]
        assert resource.inputs["apiVersion"] == SCHEMAS[kind]["apiVersion"]
        assert not list(faults(resource.inputs["spec"], SCHEMAS[kind]["spec"], "spec"))
        assert resource.inputs["metadata"]["labels"]["release"] == "kube-prometheus-stack"


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"selector": {}, "podMetricsEndpoints": [{"ports": "x"}]}, "ports is unknown"),
        (
            {"selector": {}, "podMetricsEndpoints": [{"port": 1}]},
            "port does not have the type string",
        ),
        ({"podMetricsEndpoints": []}, "selector is missing"),
    ],
)
def test_a_wrong_monitor_is_found(spec: dict[str, Any], fault: str) -> None:
    (actual,) = faults(spec, SCHEMAS["PodMonitor"]["spec"], "spec")

    assert fault in actual


def test_monitors_select_the_pods_by_their_labels_and_ports() -> None:
    graph = monitored_stack(job={"name": "fashion", "gpusPerWorker": 2})
    monitored_objects = objects(graph)
    worker = graph["training-job-fashion"].inputs["spec"]["replicaSpecs"]["Worker"]["template"]
    controller = graph["training-controller-deployment"].inputs["spec"]["template"]
    service = graph["training-nodes-metrics-service"].inputs

    for name, target, ports in (
        ("PodMonitor everstep-workers", worker, worker["spec"]["containers"][0]["ports"]),
        (
            "PodMonitor everstep-controller",
            controller,
            controller["spec"]["containers"][0]["ports"],
        ),
        ("ServiceMonitor everstep-gpus", service, service["spec"]["ports"]),
    ):
        spec = monitored_objects[name].inputs["spec"]
        endpoints = spec.get("podMetricsEndpoints") or spec["endpoints"]
        selector = spec["selector"]["matchLabels"]
        assert selector.items() <= target["metadata"]["labels"].items(), name
        assert [endpoint["port"] for endpoint in endpoints] == [port["name"] for port in ports], (
            name
        )


def test_the_copy_of_a_data_set_has_a_monitor_that_selects_its_pod() -> None:
    data = {"dataset": "imagefolder", "source": "uploads/photos.tar"}
    graph = declare_existing(data=data, platform={"monitoring": {"kind": "operator"}})
    pod = graph.one("Job").inputs["spec"]["template"]

    monitor = objects(graph)["PodMonitor everstep-data"].inputs

    selector = monitor["spec"]["selector"]["matchLabels"]
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == [
        port["name"] for port in pod["spec"]["containers"][0]["ports"]
    ]
    assert monitor["metadata"]["namespace"] == "elastic-job"
    assert not list(faults(monitor["spec"], SCHEMAS["PodMonitor"]["spec"], "spec"))


def test_each_monitor_is_in_the_namespace_of_the_pods_that_it_selects() -> None:
    monitored_objects = objects(monitored_stack())
    namespaces = {
        name: resource.inputs["metadata"]["namespace"]
        for name, resource in monitored_objects.items()
    }

    assert namespaces.pop("ServiceMonitor everstep-gpus") == "everstep-system"
    assert set(namespaces.values()) == {"elastic-job"}


def test_rules_come_from_the_file() -> None:
    inputs = objects(monitored_stack())["PrometheusRule everstep"].inputs

    assert inputs["spec"] == yaml.safe_load(operator_objects.RULES.read_text())


def test_labels_interval_and_dashboards_follow_the_stack() -> None:
    labels = {"team": "vision"}
    graph = monitored_stack(labels=labels, scrapeSeconds=60, dashboards=False)
    inputs = objects(graph)["PodMonitor everstep-workers"].inputs

    assert inputs["metadata"]["labels"] == {
        "app.kubernetes.io/part-of": "everstep",
        **labels,
    }
    assert inputs["spec"]["podMetricsEndpoints"] == [{"port": "metrics-0", "interval": "60s"}]
    config_maps = [resource.name for resource in graph.of_type("ConfigMap")]
    assert not [name for name in config_maps if "everstep-run" in name]


def test_dashboards_are_config_maps_with_the_label_of_the_sidecar() -> None:
    graph = monitored_stack()
    for dashboard in DASHBOARDS:
        inputs = graph[f"training-monitoring-{dashboard.uid}"].inputs

        assert inputs["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert inputs["data"] == {f"{dashboard.uid}.json": dashboard_path(dashboard).read_text()}


def test_the_upstream_controller_has_no_monitor() -> None:
    platform = {**ALL_SERVICES, "monitoring": {"kind": "operator"}}
    upstream = {"kind": "upstream", "image": "example.org/upstream:1"}
    graph = fake_cloud_graph(platform=platform, controller=upstream)

    assert "PodMonitor everstep-controller" not in objects(graph)


T4 = {"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}


@pytest.mark.parametrize("base", [EKS, with_changes(AKS, {"cluster.gpuPool.vmSizes": [T4]})])
def test_prices_add_up_to_the_estimate(base: dict[str, Any]) -> None:
    budget = {"monthlyUsd": 1500, "email": "a@example.org"}
    config = from_mapping(base | {"cost": {"budget": budget}})
    prices = prices_of(config)

    assert prices is not None
    while_training = prices.fixed_per_hour + config.job.replicas * prices.gpu_node_per_hour
    assert while_training == pytest.approx(estimate(config).total(spot=True).usd, abs=0.001)
    assert prices.budget_per_month == 1500


def test_a_gpu_node_has_the_price_of_the_most_expensive_pool() -> None:
    config = from_mapping(AKS)
    t4, a100 = (pool.price for pool in pool_prices(config))
    prices = prices_of(config)

    assert prices is not None
    assert t4 is not None
    assert a100 is not None
    assert t4 < prices.gpu_node_per_hour == pytest.approx(a100, abs=0.0001)


def test_reserved_machines_are_a_fixed_price_and_add_their_disks() -> None:
    pool = {
        "instanceTypes": ["g5.xlarge"],
        "capacity": "onDemand",
        "maxNodes": 6,
        "reservation": {"id": "cr-0123456789abcdef0"},
    }
    config = from_mapping(with_changes(EKS, {"cluster.gpuPool": pool}))
    prices = prices_of(config)

    assert prices is not None
    while_training = prices.fixed_per_hour + config.job.replicas * prices.gpu_node_per_hour
    assert while_training == pytest.approx(estimate(config).total(spot=True).usd, abs=0.001)
    assert prices.fixed_per_hour > 6 * 1.006


@pytest.mark.parametrize(
    ("stack", "changes"),
    [
        (
            EKS,
            {
                "data.dataset": "imagefolder",
                "data.cache": {"source": "s3://bucket/shards", "storageClass": "fast"},
            },
        ),
        (EKS, {"etcd.persistence": "disk", "etcd.storageClass": "gp3"}),
        (AKS, {"etcd.persistence": "disk", "etcd.storageClass": "fast"}),
    ],
    ids=["volumes of the cache", "disks of etcd on EKS", "disks of etcd on AKS"],
)
def test_volumes_of_unknown_price_do_not_remove_the_other_prices(
    stack: dict[str, Any], changes: dict[str, Any]
) -> None:
    in_memory = with_changes(stack, {"etcd.persistence": "memory"})

    expected = prices_of(from_mapping(in_memory))

    assert expected is not None
    assert prices_of(from_mapping(with_changes(stack, changes))) == expected


def test_an_os_disk_of_unknown_price_does_not_remove_the_other_prices() -> None:
    prices = {"Standard_L8s_v3": {"onDemand": 0.6}}
    changes = {"cluster.systemPool.vmSize": "Standard_L8s_v3", "cost.prices": prices}

    assert prices_of(from_mapping(with_changes(AKS, changes))) is not None


NO_PRICES_KNOWN = {"cluster.region": "eu-west-1", "cluster.zones": ["eu-west-1a", "eu-west-1b"]}


@pytest.mark.parametrize(
    "stack",
    [LOCAL, with_changes(EKS, NO_PRICES_KNOWN)],
    ids=["no machines of its own", "unknown prices"],
)
def test_a_stack_whose_prices_are_not_known_records_none(stack: dict[str, Any]) -> None:
    assert prices_of(from_mapping(stack)) is None


def test_a_stack_that_does_not_count_its_gpu_nodes_records_no_prices() -> None:
    stack = with_changes(EKS, {"platform": {"metrics": {"enabled": False}}})

    assert prices_of(from_mapping(stack)) is None, (
        "the cost of the other nodes would look like the whole"
    )


def test_prices_are_recorded_and_an_absent_budget_is_not() -> None:
    prices = StackPrices(fixed_per_hour=0.3, gpu_node_per_hour=1.2)
    rule = operator_objects.price_rules({}, prices)

    assert rule["spec"]["groups"][0]["rules"] == [
        {"record": "everstep:fixed_usd_per_hour", "expr": "vector(0.3)"},
        {"record": "everstep:gpu_node_usd_per_hour", "expr": "vector(1.2)"},
    ]
    assert not list(faults(rule["spec"], SCHEMAS["PrometheusRule"]["spec"], "spec"))


def test_the_manifest_for_kubectl_is_current() -> None:
    assert operator_objects.MANIFEST.read_text() == operator_objects.manifest(), "run `make docs`"


def test_a_pod_has_an_endpoint_for_each_of_its_processes() -> None:
    spec = operator_objects.worker_monitor(ScrapeSettings(labels={}, processes=8))["spec"]

    assert [endpoint["port"] for endpoint in spec["podMetricsEndpoints"]] == [
        f"metrics-{rank}" for rank in range(8)
    ]
