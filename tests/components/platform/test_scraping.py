"""The scrape job of a managed Prometheus."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from components.platform.scraping import scrape_job
from tests.components.aws.eks_stack import training_stack
from tests.components.recorder import Graph


def test_exactly_the_metrics_ports_of_the_stacks_pods_are_scraped() -> None:
    job = scrape_job(15)

    targets = {
        (labels["app.kubernetes.io/name"], port)
        for namespace, labels, port in ports_of(training_stack())
        if is_kept(job, namespace, labels, port)
    }

    assert targets == {
        ("worker", "metrics-0"),
        ("elastic-job-controller", "metrics"),
        ("dcgm-exporter", "metrics"),
    }


def test_a_pod_that_has_ended_is_not_scraped() -> None:
    pods = list(ports_of(training_stack()))

    assert not [pod for pod in pods if is_kept(scrape_job(15), *pod, phase="Succeeded")]


def test_labels_of_the_metrics_take_precedence_over_labels_of_the_pod() -> None:
    assert scrape_job(15)["honor_labels"] is True, (
        "the exporter's label `pod` names the pod that uses the GPU"
    )


@pytest.mark.parametrize(("seconds", "timeout"), [(5, "5s"), (10, "10s"), (60, "10s")])
def test_a_scrape_ends_before_the_next_begins(seconds: int, timeout: str) -> None:
    job = scrape_job(seconds)

    assert (job["scrape_interval"], job["scrape_timeout"]) == (f"{seconds}s", timeout)


def ports_of(graph: Graph) -> Iterator[tuple[str, Mapping[str, str], str]]:
    """Yield the namespace, labels and port name of each port of a stack's pods."""
    for resource in graph.resources_of("kubernetes"):
        spec = resource.inputs.get("spec", {})
        template = spec.get("template") or spec.get("replicaSpecs", {}).get("Worker", {}).get(
            "template"
        )
        if not template:
            continue
        for container in template["spec"]["containers"]:
            for port in container.get("ports", ()):
                yield (
                    resource.inputs["metadata"]["namespace"],
                    template["metadata"]["labels"],
                    port["name"],
                )


def is_kept(
    job: Mapping[str, Any],
    namespace: str,
    labels: Mapping[str, str],
    port: str,
    phase: str = "Running",
) -> bool:
    """Return whether Prometheus keeps the target, by the rules of its scrape job."""
    (discovery,) = job["kubernetes_sd_configs"]
    target = {
        "__meta_kubernetes_pod_container_port_name": port,
        "__meta_kubernetes_pod_phase": phase,
        **{
            f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": value
            for name, value in labels.items()
        },
    }
    keep_rules = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    return namespace in discovery["namespaces"]["names"] and all(
        re.fullmatch(rule["regex"], target.get(rule["source_labels"][0], "")) for rule in keep_rules
    )
