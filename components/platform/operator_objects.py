"""Objects for a Prometheus operator: its scrape targets, and the rules that it evaluates.

The rules are in manifests/monitoring/rules.yaml. The stack declares these objects with its own
namespaces and labels; `python -m components.platform.operator_objects` writes them for `kubectl apply` to
manifests/monitoring/operator.yaml.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from components.config.faults import ConfigFault
from components.platform import elastic_controller
from components.platform.manifests import FOLDER
from components.platform.observability import NAME as EXPORTER
from components.platform.pods import (
    DATA_PREPARATION,
    MAX_PROCESSES_PER_POD,
    PART_OF,
    WORKER,
    labels,
)
from everstep.catalog.names import JOB_NAMESPACE, SYSTEM_NAMESPACE

RULES = FOLDER / "monitoring" / "rules.yaml"
MANIFEST = FOLDER / "monitoring" / "operator.yaml"
API_VERSION = "monitoring.coreos.com/v1"
KINDS = ("PodMonitor", "ServiceMonitor", "PrometheusRule")
NAME = "everstep"
HEAD = """\
# Objects for a Prometheus operator: monitors, recording rules and alerts. Generated from rules.yaml by
# `python -m components.platform.operator_objects`; a stack declares the same objects with `platform.monitoring`.
# `release` is the label by which an operator of kube-prometheus-stack selects the objects.
"""
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ScrapeSettings:
    """Settings of all monitors.

    Attributes:
        labels: labels by which the operator selects the objects.
        seconds: seconds between two scrapes.
        processes: number of worker processes of a pod, each with its own port.
    """

    labels: Mapping[str, str]
    seconds: int = 15
    processes: int = MAX_PROCESSES_PER_POD


@dataclass(frozen=True, kw_only=True)
class StackPrices:
    """Prices and budget of the stack in USD, according to its price table.

    Attributes:
        fixed_per_hour: price of all resources except the GPU nodes; reserved machines are included, used or not.
        gpu_node_per_hour: highest price of one more GPU node among the pools.
        budget_per_month: monthly budget; None: there is no budget.
    """

    fixed_per_hour: float
    gpu_node_per_hour: float
    budget_per_month: float | None = None


def missing_kinds(resources: Mapping[str, Any]) -> list[str]:
    """Return the kinds that a cluster does not serve.

    Args:
        resources: the API server's list of the resources of API_VERSION; empty if it has none.
    """
    served = {resource["kind"] for resource in resources.get("resources") or ()}
    return [kind for kind in KINDS if kind not in served]


def operator_fault(missing: Sequence[str]) -> ConfigFault:
    """Return the fault of a stack whose cluster lacks kinds of the operator."""
    return ConfigFault(
        "platform.monitoring.kind",
        "operator",
        f"needs a Prometheus operator, but the cluster does not serve {', '.join(missing)} of {API_VERSION}",
        "install one first, such as the chart kube-prometheus-stack, or set the key to none",
    )


def worker_monitor(scraping: ScrapeSettings) -> Json:
    """Return the PodMonitor of the workers."""
    ports = [f"metrics-{rank}" for rank in range(scraping.processes)]
    endpoints = [{"port": port, **_interval(scraping)} for port in ports]
    return _object(
        "PodMonitor",
        f"{NAME}-workers",
        scraping.labels,
        {"selector": {"matchLabels": WORKER}, "podMetricsEndpoints": endpoints},
    )


def data_monitor(scraping: ScrapeSettings) -> Json:
    """Return the PodMonitor of the Job that copies the data set."""
    endpoint = {"port": "metrics", **_interval(scraping)}
    return _object(
        "PodMonitor",
        f"{NAME}-data",
        scraping.labels,
        {"selector": {"matchLabels": DATA_PREPARATION}, "podMetricsEndpoints": [endpoint]},
    )


def controller_monitor(scraping: ScrapeSettings) -> Json:
    """Return the PodMonitor of the controller, whose label `namespace` is the job's namespace."""
    endpoint = {"port": "metrics", "honorLabels": True, **_interval(scraping)}
    return _object(
        "PodMonitor",
        f"{NAME}-controller",
        scraping.labels,
        {
            "selector": {"matchLabels": elastic_controller.LABELS},
            "podMetricsEndpoints": [endpoint],
        },
    )


def gpu_monitor(scraping: ScrapeSettings) -> Json:
    """Return the ServiceMonitor of the exporters on GPU nodes, whose label `pod` is the pod that uses the GPU."""
    endpoint = {"port": "metrics", "honorLabels": True, **_interval(scraping)}
    return _object(
        "ServiceMonitor",
        f"{NAME}-gpus",
        scraping.labels,
        {"selector": {"matchLabels": labels(EXPORTER)}, "endpoints": [endpoint]},
    )


def rules(operator_labels: Mapping[str, str]) -> Json:
    """Return the PrometheusRule with all recording rules and alerts."""
    spec = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return _object("PrometheusRule", NAME, operator_labels, spec)


def price_rules(operator_labels: Mapping[str, str], prices: StackPrices) -> Json:
    """Return the PrometheusRule that records the prices, which the rules of cost and budget read."""
    values = {
        "everstep:fixed_usd_per_hour": prices.fixed_per_hour,
        "everstep:gpu_node_usd_per_hour": prices.gpu_node_per_hour,
        "everstep:budget_usd_per_month": prices.budget_per_month,
    }
    recording_rules = [
        {"record": name, "expr": f"vector({value})"}
        for name, value in values.items()
        if value is not None
    ]
    spec = {"groups": [{"name": "everstep.prices", "rules": recording_rules}]}
    return _object("PrometheusRule", f"{NAME}-prices", operator_labels, spec)


def manifest() -> str:
    """Return the objects for `kubectl apply`, in the namespaces of a stack."""
    scraping = ScrapeSettings(labels={"release": "kube-prometheus-stack"})
    resources = [
        (worker_monitor(scraping), JOB_NAMESPACE),
        (data_monitor(scraping), JOB_NAMESPACE),
        (controller_monitor(scraping), JOB_NAMESPACE),
        (gpu_monitor(scraping), SYSTEM_NAMESPACE),
        (rules(scraping.labels), JOB_NAMESPACE),
    ]
    objects = [
        {**resource, "metadata": {**resource["metadata"], "namespace": namespace}}
        for resource, namespace in resources
    ]
    return HEAD + yaml.dump_all(objects, Dumper=_PlainDumper, sort_keys=False, width=120)


class _PlainDumper(yaml.SafeDumper):
    """A dumper without anchors, which are hard to read."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class's signature
        return True


def _object(kind: str, name: str, operator_labels: Mapping[str, str], spec: Json) -> Json:
    metadata = {"name": name, "labels": {**PART_OF, **operator_labels}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _interval(scraping: ScrapeSettings) -> Json:
    return {"interval": f"{scraping.seconds}s"}


if __name__ == "__main__":
    MANIFEST.write_text(manifest(), encoding="utf-8")
