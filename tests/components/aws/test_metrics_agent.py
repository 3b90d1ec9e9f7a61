"""Metrics from EKS in Amazon Managed Service for Prometheus: the workspace, and the agent that writes to it."""

from typing import Any

import yaml

from components.platform.scraping import scrape_job
from tests.components.aws.eks_stack import (
    all_features_stack,
    declare_eks,
    plain_stack,
    policy_statements,
)
from tests.components.existing.existing_stack import pod_of
from tests.components.recorder import Graph

NAME = "eks-metrics"
WORKSPACE = "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-0/"


def configuration(graph: Graph) -> dict[str, Any]:
    text: str = graph[f"{NAME}-config"].inputs["data"]["prometheus.yml"]
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


def test_without_the_option_a_stack_has_no_workspace() -> None:
    assert not plain_stack().of_type("Workspace")
    assert not [name for name in plain_stack().resources if name.startswith(NAME)]


def test_the_agent_may_write_to_its_workspace_and_nothing_else() -> None:
    (statement,) = policy_statements(all_features_stack()[f"{NAME}-role-write"])

    assert statement["Action"] == ["aps:RemoteWrite"]
    assert statement["Resource"] == [
        f"arn:aws:amp:us-east-1:123456789012:workspace/{NAME}-workspace-0a1b2c3"
    ]


def test_the_role_is_bound_to_the_service_account_of_the_pod() -> None:
    inputs = all_features_stack()[f"{NAME}-identity"].inputs
    pod = pod_of(all_features_stack()[f"{NAME}-deployment"])

    assert inputs["namespace"] == "kube-system"
    assert inputs["serviceAccount"] == pod["serviceAccountName"] == "metrics-agent"
    assert inputs["roleArn"].endswith(":role/everstep-metrics")


def test_samples_are_signed_and_sent_to_the_workspace_with_the_name_of_the_cluster() -> None:
    config = configuration(all_features_stack())

    assert config["remote_write"] == [
        {
            "url": f"{WORKSPACE}api/v1/remote_write",
            "sigv4": {"region": "us-east-1"},
        }
    ]
    assert config["scrape_configs"] == [scrape_job(15)]
    assert config["global"]["external_labels"] == {"cluster": "everstep"}
    assert all_features_stack().outputs["prometheusEndpoint"] == WORKSPACE


def test_the_workspace_has_the_alerts_and_the_prices_of_the_stack() -> None:
    graph = declare_eks(
        cluster={"monitoring": {"managedPrometheus": True}},
        cost={"budget": {"monthlyUsd": 500, "email": "owner@example.org"}},
    )
    inputs = graph[f"{NAME}-rules"].inputs
    groups = {group["name"]: group["rules"] for group in yaml.safe_load(inputs["data"])["groups"]}

    assert inputs["workspaceId"] == f"{NAME}-workspace-id"
    assert "EverstepJobStalled" in {rule.get("alert") for rule in groups["everstep.alerts"]}
    prices = {rule["record"]: rule["expr"] for rule in groups["everstep.prices"]}
    assert prices["everstep:budget_usd_per_month"] == "vector(500.0)"


def test_the_agent_starts_after_its_permissions() -> None:
    ancestors = all_features_stack().ancestors(f"{NAME}-deployment")

    assert {f"{NAME}-identity", f"{NAME}-pods-binding"} <= ancestors, (
        "a pod gets its role when it starts"
    )


def test_the_agent_in_the_cluster_reads_pods_only() -> None:
    rules = all_features_stack()[f"{NAME}-pods"].inputs["rules"]

    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


def test_a_changed_configuration_restarts_the_agent() -> None:
    def digest(graph: Graph) -> str:
        template = graph[f"{NAME}-deployment"].inputs["spec"]["template"]
        value: str = template["metadata"]["annotations"]["everstep.dev/config"]
        return value

    other = declare_eks(
        cluster={"monitoring": {"managedPrometheus": True}},
        platform={"monitoring": {"scrapeSeconds": 60}},
    )

    assert digest(all_features_stack()) != digest(other)


def test_the_agent_runs_on_system_nodes_without_privileges() -> None:
    actual = pod_of(all_features_stack()[f"{NAME}-deployment"])
    (container,) = actual["containers"]

    assert actual["nodeSelector"] == {"everstep.dev/pool": "system"}
    assert actual["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    writable = [mount for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert [mount["mountPath"] for mount in writable] == ["/prometheus"]
    assert "--storage.agent.path=/prometheus" in container["args"]
