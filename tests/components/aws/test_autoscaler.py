"""The cluster autoscaler on EKS: priorities, flags, pod and permissions."""

import re
from fnmatch import fnmatch
from typing import Any

import yaml

from components.aws.autoscaler import flags, priorities
from tests.components.aws.eks_stack import (
    all_features_stack,
    cluster_of,
    existing_vpc_stack,
    plain_stack,
    policy_statements,
)
from tests.components.azure.aks_stack import plain_stack as aks_stack
from tests.components.existing.existing_stack import pod_of

PERMISSIONS = "eks-autoscaler-role-cluster-autoscaler"


def flags_of(**cluster: Any) -> list[str]:
    config = cluster_of(**cluster)
    return flags(config.name, config.autoscaling)


def ranks_of(table: dict[int, list[str]], cluster: str) -> tuple[int, ...]:
    """Return the priorities of a cluster's groups: spot, on demand, system."""
    groups = (
        f"eks-{cluster}-{pool}-7cc1a1b2-0123-4567-89ab-0123456789ab"
        for pool in ("gpu-spot", "gpu-on-demand", "system-20261128")
    )
    return tuple(
        max(rank for rank, [pattern] in table.items() if re.search(pattern, group))
        for group in groups
    )


def test_spot_is_tried_first_and_on_demand_after_it() -> None:
    inputs = all_features_stack()["eks-autoscaler-preference"].inputs
    ranks: dict[int, list[str]] = yaml.safe_load(inputs["data"]["priorities"])

    assert inputs["metadata"]["name"] == "cluster-autoscaler-priority-expander"
    assert inputs["metadata"]["namespace"] == "kube-system", (
        "the autoscaler reads only this ConfigMap"
    )
    assert ranks_of(ranks, "everstep") == (20, 10, 1)
    assert {"--expander=priority,least-waste", "--max-node-provision-time=10m"} <= set(flags_of())


def test_a_cluster_named_like_a_pool_still_tries_spot_before_on_demand() -> None:
    name = "team-gpu-spot-a"
    table = priorities(cluster_of(name=name, gpuPool={"fallbackNodes": 1}))

    spot, on_demand, system = ranks_of({rank: [pattern] for rank, pattern in table.items()}, name)

    assert spot > on_demand > system


def test_groups_are_discovered_by_the_tags_that_eks_sets() -> None:
    (discovery,) = (flag for flag in flags_of(name="vision") if "auto-discovery" in flag)

    assert discovery.endswith(
        "=asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/vision"
    )


def test_the_startup_taint_is_ignored_when_scaling_from_zero() -> None:
    assert "--startup-taint=fsx.csi.aws.com/agent-not-ready" in flags_of(), (
        "no worker tolerates it, so no GPU group would scale up from zero"
    )


def test_nodes_are_still_added_after_the_interruption_of_all_spot_nodes() -> None:
    unready = {flag for flag in flags_of() if "unready" in flag}

    assert unready == {"--max-total-unready-percentage=100", "--scale-down-unready-time=3m"}, (
        "by default, the autoscaler adds no nodes while more than 45 % are unready, and keeps these for 20 minutes"
    )


def test_both_clouds_tolerate_the_same_number_of_interrupted_nodes() -> None:
    (aks,) = aks_stack().of_type("ManagedCluster")
    profile = aks.inputs["autoScalerProfile"]

    assert f"--max-total-unready-percentage={profile['maxTotalUnreadyPercentage']}" in flags_of()
    assert f"--scale-down-unready-time={profile['scaleDownUnreadyTime']}" in flags_of()


def test_idle_nodes_are_removed_after_the_configured_minutes() -> None:
    actual = flags_of(autoscaling={"scaleDownMinutes": 25})

    assert "--scale-down-unneeded-time=25m" in actual
    assert "--skip-nodes-with-local-storage=false" in actual, (
        "a worker's data cache in an emptyDir would keep its node"
    )


def test_the_autoscaler_runs_on_system_nodes_without_privileges() -> None:
    actual = pod_of(plain_stack()["eks-autoscaler-deployment"])
    (container,) = actual["containers"]

    assert actual["nodeSelector"] == {"everstep.dev/pool": "system"}
    assert not actual.get("tolerations")
    assert actual["serviceAccountName"] == "cluster-autoscaler"
    assert actual["automountServiceAccountToken"] is True
    assert actual["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["env"] == [{"name": "AWS_REGION", "value": "us-east-1"}], (
        "pods without host networking cannot reach the metadata service"
    )
    assert container["image"].startswith("registry.k8s.io/autoscaling/cluster-autoscaler:v1.36")


def test_the_autoscalers_role_is_bound_to_its_service_account() -> None:
    inputs = plain_stack()["eks-autoscaler-identity"].inputs

    assert (inputs["namespace"], inputs["serviceAccount"]) == ("kube-system", "cluster-autoscaler")
    assert inputs["roleArn"].endswith(":role/everstep-autoscaler")


def test_the_autoscaler_may_resize_only_groups_of_its_cluster() -> None:
    (statement,) = [
        statement
        for statement in policy_statements(all_features_stack()[PERMISSIONS])
        if any(action.startswith("autoscaling:Set") for action in statement["Action"])
    ]

    (pattern,) = {arn.rpartition("/")[2] for arn in statement["Resource"]}
    for group in all_features_stack().some_of_type("NodeGroup"):
        name = group.inputs.get("nodeGroupName") or group.inputs["nodeGroupNamePrefix"]
        assert fnmatch(f"eks-{name}-0a1b2c3d", pattern)
    assert not fnmatch("eks-other-gpu-spot-0a1b2c3d", pattern)
    assert statement["Condition"]["StringEquals"] == {
        "aws:ResourceTag/k8s.io/cluster-autoscaler/everstep": "owned"
    }


def test_the_autoscalers_permissions_on_all_resources_are_read_only() -> None:
    (statement,) = [
        statement
        for statement in policy_statements(plain_stack()[PERMISSIONS])
        if "*" in statement["Resource"]
    ]

    verbs = {action.partition(":")[2] for action in statement["Action"]}
    assert all(verb.startswith(("Describe", "Get")) for verb in verbs)
    assert statement["Condition"] == {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}


def test_the_autoscaler_has_no_access_to_secrets_and_no_wildcards() -> None:
    for role in ("eks-autoscaler-everywhere", "eks-autoscaler-here"):
        for rule in plain_stack()[role].inputs["rules"]:
            for field in ("apiGroups", "resources", "verbs"):
                assert "*" not in rule[field]
            assert "secrets" not in rule["resources"]


def test_the_autoscaler_may_update_and_delete_only_named_objects_of_its_namespace() -> None:
    rules = plain_stack()["eks-autoscaler-here"].inputs["rules"]
    changing_rules = [rule for rule in rules if {"update", "delete"} & set(rule["verbs"])]

    assert changing_rules
    for rule in changing_rules:
        assert rule["resourceNames"], "it could change any ConfigMap or Lease in kube-system"


def test_a_stack_without_autoscaling_declares_no_autoscaler() -> None:
    assert not [name for name in existing_vpc_stack().resources if "autoscaler" in name]
