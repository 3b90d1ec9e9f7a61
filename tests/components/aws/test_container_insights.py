"""Container Insights on EKS: the add-on, its role, and log groups that are deleted with the stack."""

import json
from functools import cache

import pytest

from components.config.catalog import CLOUDWATCH_ADDON
from components.config.eks import INSIGHTS_LOG_GROUPS
from tests.components.aws.eks_stack import (
    all_features_stack,
    declare_eks,
    plain_stack,
    policy_statements,
)
from tests.components.recorder import Graph

NAME = "eks-insights"
ADDON = f"{NAME}-addon-{CLOUDWATCH_ADDON}"


@cache
def insights_stack() -> Graph:
    """Declare a stack with Container Insights, whose logs expire after seven days."""
    return declare_eks(cluster={"monitoring": {"containerInsights": True}, "logRetentionDays": 7})


def test_without_the_option_a_stack_has_no_cloudwatch_add_on() -> None:
    assert not [name for name in plain_stack().resources if name.startswith(NAME)]
    assert CLOUDWATCH_ADDON not in {
        addon.inputs["addonName"] for addon in plain_stack().of_type("Addon")
    }


def test_the_agent_has_only_the_policy_that_aws_defines_for_it() -> None:
    graph = all_features_stack()
    (identity,) = graph[ADDON].inputs["podIdentityAssociations"]
    (trust,) = policy_statements(graph[f"{ADDON}-role-role"], "assumeRolePolicy")
    role_resources = [name for name in graph.resources if name.startswith(f"{ADDON}-role-")]

    assert identity["serviceAccount"] == "cloudwatch-agent"
    assert identity["roleArn"].endswith(f":role/everstep-{CLOUDWATCH_ADDON}")
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(role_resources) == {
        f"{ADDON}-role-role",
        f"{ADDON}-role-CloudWatchAgentServerPolicy",
    }


def test_the_add_on_does_not_auto_instrument_workloads() -> None:
    configuration = json.loads(all_features_stack()[ADDON].inputs["configurationValues"])

    assert configuration["manager"]["applicationSignals"] == {
        "autoMonitor": {"monitorAllServices": False}
    }


@pytest.mark.parametrize("group", INSIGHTS_LOG_GROUPS)
def test_log_groups_are_deleted_after_the_agent_that_would_recreate_them(group: str) -> None:
    logs = insights_stack()[f"{NAME}-{group}"]

    assert logs.inputs["name"] == f"/aws/containerinsights/everstep/{group}"
    assert logs.inputs["retentionInDays"] == 7
    assert logs.name in insights_stack().ancestors(ADDON)


def test_the_add_on_is_created_after_the_nodes_on_which_its_pods_run() -> None:
    assert "eks-nodes-system" in all_features_stack().ancestors(ADDON)
