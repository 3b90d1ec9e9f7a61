"""Metrics of EKS in Amazon Managed Service for Prometheus: the workspace, and the agent that writes to it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.components.aws.eks_stack import declared_eks, declared_training, document, full, plain
from tests.components.recorder import Graph

NAME = "eks-metrics"
WORKSPACE = "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-0/"


def configuration(graph: Graph) -> dict[str, Any]:
    text: str = graph[f"{NAME}-config"].inputs["data"]["prometheus.yml"]
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


def pod(graph: Graph) -> dict[str, Any]:
    spec: dict[str, Any] = graph[f"{NAME}-deployment"].inputs["spec"]["template"]["spec"]
    return spec


def test_without_the_option_a_stack_has_no_workspace() -> None:
    assert not plain().of("Workspace")
    assert not [name for name in plain().resources if name.startswith(NAME)]


def test_the_agent_may_write_to_its_workspace_and_nothing_else() -> None:
    (statement,) = document(full()[f"{NAME}-role-write"])

    assert statement["Action"] == ["aps:RemoteWrite"]
    assert statement["Resource"] == [
        f"arn:aws:amp:us-east-1:123456789012:workspace/{NAME}-workspace-0a1b2c3"
    ]


def test_the_role_is_bound_to_the_account_of_the_pod() -> None:
    inputs = full()[f"{NAME}-identity"].inputs

    assert inputs["namespace"] == "kube-system"
    assert inputs["serviceAccount"] == pod(full())["serviceAccountName"] == "metrics-agent"
    assert inputs["roleArn"].endswith(":role/everstep-metrics")


def test_samples_are_signed_and_sent_to_the_workspace_with_the_name_of_the_cluster() -> None:
    config = configuration(full())

    assert config["remote_write"] == [
        {
            "url": f"{WORKSPACE}api/v1/remote_write",
            "sigv4": {"region": "us-east-1"},
        }
    ]
    assert config["global"]["external_labels"] == {"cluster": "everstep"}
    assert full().outputs["prometheusEndpoint"] == WORKSPACE


def test_the_agent_in_the_cluster_reads_pods_only() -> None:
    rules = full()[f"{NAME}-pods"].inputs["rules"]

    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


def test_pods_are_scraped_as_often_as_configured_and_never_later_than_the_next_scrape() -> None:
    graph = declared_eks(
        cluster={"monitoring": {"managedPrometheus": True}},
        platform={"monitoring": {"scrapeSeconds": 5}},
    )

    settings = configuration(graph)["global"]
    assert (settings["scrape_interval"], settings["scrape_timeout"]) == ("5s", "5s")


def test_a_changed_configuration_restarts_the_agent() -> None:
    def digest(graph: Graph) -> str:
        template = graph[f"{NAME}-deployment"].inputs["spec"]["template"]
        value: str = template["metadata"]["annotations"]["everstep.dev/config"]
        return value

    other = declared_eks(
        cluster={"monitoring": {"managedPrometheus": True}},
        platform={"monitoring": {"scrapeSeconds": 60}},
    )

    assert digest(full()) != digest(other)


def test_the_agent_runs_on_system_nodes_without_privileges() -> None:
    actual = pod(full())
    (container,) = actual["containers"]

    assert actual["nodeSelector"] == {"everstep.dev/pool": "system"}
    assert actual["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    writable = [mount for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert [mount["mountPath"] for mount in writable] == ["/prometheus"]
    assert "--storage.agent.path=/prometheus" in container["args"]


def test_exactly_the_ports_for_metrics_of_the_stacks_pods_are_scraped() -> None:
    graph = declared_training(
        cluster={"monitoring": {"managedPrometheus": True}}, job={"name": "fashion"}
    )
    (job,) = configuration(graph)["scrape_configs"]

    scraped = {
        (labels["app.kubernetes.io/name"], port)
        for namespace, labels, port in ports_of(graph)
        if is_kept(job, namespace, labels, port)
    }

    assert scraped == {
        ("worker", "metrics-0"),
        ("elastic-job-controller", "metrics"),
        ("dcgm-exporter", "metrics"),
    }
    assert job["honor_labels"] is True, "the exporter's label `pod` is that of the GPU's user"


def ports_of(graph: Graph) -> Iterator[tuple[str, Mapping[str, str], str]]:
    """Yield namespace, labels and name of each port of the pods of a stack."""
    for resource in graph.custom("kubernetes"):
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


def is_kept(job: Mapping[str, Any], namespace: str, labels: Mapping[str, str], port: str) -> bool:
    """Return whether Prometheus keeps the target of a running pod, by the rules of its scrape job."""
    (discovery,) = job["kubernetes_sd_configs"]
    target = {
        "__meta_kubernetes_pod_container_port_name": port,
        "__meta_kubernetes_pod_phase": "Running",
        **{
            f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": value
            for name, value in labels.items()
        },
    }
    keeps = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    return namespace in discovery["namespaces"]["names"] and all(
        re.fullmatch(rule["regex"], target.get(rule["source_labels"][0], "")) for rule in keeps
    )
