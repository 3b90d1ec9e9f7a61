"""Permissions of the cluster autoscaler: on AWS for the cluster's own groups, and in Kubernetes.

The permissions on AWS name groups by pattern, so that the autoscaler is declared without waiting for GPU groups, for
which there may be no capacity.
"""

from collections.abc import Mapping, Sequence

import pulumi
from pulumi_aws import eks
from pulumi_kubernetes import core, meta, rbac

from components.aws.iam import ALL_RESOURCES, Statement
from components.component import Component

NAMESPACE = "kube-system"
NAME = "cluster-autoscaler"
PRIORITIES_NAME = "cluster-autoscaler-priority-expander"  # name that the expander reads
STATUS_NAME = "cluster-autoscaler-status"

# Actions for which AWS supports no resource-level permissions.
DESCRIBE_ACTIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "autoscaling:DescribeTags",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
)

READ_VERBS = ("get", "list", "watch")
RbacRule = tuple[str, Sequence[str], Sequence[str], Sequence[str]]
# API group, resources, verbs, names (empty: all).
CLUSTER_RULES: Sequence[RbacRule] = (
    ("", ("events",), ("create", "patch"), ()),
    ("", ("nodes",), (*READ_VERBS, "update"), ()),
    ("", ("pods/eviction",), ("create",), ()),
    ("", ("pods/status",), ("update",), ()),
    (
        "",
        ("pods", "services", "namespaces", "replicationcontrollers"),
        READ_VERBS,
        (),
    ),
    ("", ("persistentvolumes", "persistentvolumeclaims"), READ_VERBS, ()),
    ("apps", ("daemonsets", "replicasets", "statefulsets"), READ_VERBS, ()),
    ("batch", ("jobs",), READ_VERBS, ()),
    ("policy", ("poddisruptionbudgets",), READ_VERBS, ()),
    (
        "storage.k8s.io",
        (
            "storageclasses",
            "csinodes",
            "csidrivers",
            "csistoragecapacities",
            "volumeattachments",
        ),
        READ_VERBS,
        (),
    ),
    ("resource.k8s.io", ("resourceclaims", "resourceslices", "deviceclasses"), READ_VERBS, ()),
)
NAMESPACE_RULES: Sequence[RbacRule] = (
    ("", ("configmaps",), ("create", "list", "watch"), ()),
    ("", ("configmaps",), ("get", "update", "delete"), (STATUS_NAME, PRIORITIES_NAME)),
    ("coordination.k8s.io", ("leases",), ("create",), ()),
    ("coordination.k8s.io", ("leases",), ("get", "update"), (NAME,)),
)


def aws_statements(cluster: str, region: str, account: pulumi.Input[str]) -> list[Statement]:
    """Return the autoscaler's permissions on AWS: describe resources, resize the cluster's groups.

    Args:
        cluster: name of the cluster.
        region: AWS region.
        account: AWS account, twelve digits.
    """
    ownership_tag = {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{cluster}": "owned"}
    return [
        Statement(
            actions=DESCRIBE_ACTIONS,
            resources=[ALL_RESOURCES],
            conditions={"StringEquals": {"aws:RequestedRegion": region}},
        ),
        Statement(
            actions=["eks:DescribeNodegroup"],
            resources=[
                pulumi.Output.concat(f"arn:aws:eks:{region}:", account, f":nodegroup/{cluster}/*")
            ],
        ),
        Statement(
            actions=[
                "autoscaling:SetDesiredCapacity",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
            ],
            resources=[_scaling_groups(cluster, region, account)],
            conditions={"StringEquals": ownership_tag},
        ),
    ]


def _scaling_groups(cluster: str, region: str, account: pulumi.Input[str]) -> pulumi.Output[str]:
    """Return the ARN pattern of the Auto Scaling groups, which EKS names after the node groups."""
    return pulumi.Output.concat(
        f"arn:aws:autoscaling:{region}:",
        account,
        f":autoScalingGroup:*:autoScalingGroupName/eks-{cluster}-*",
    )


def scaling_group_name(resources: "Sequence[eks.outputs.NodeGroupResource]") -> str:
    """Return the name of the Auto Scaling group among the resources of a node group."""
    groups = resources[0].autoscaling_groups if resources else None
    return (groups[0].name if groups else None) or ""


def declare_rbac(
    parent: Component, labels: Mapping[str, str], account: core.v1.ServiceAccount
) -> list[pulumi.Resource]:
    """Declare the autoscaler's permissions in the cluster and return the bindings."""
    cluster_metadata = meta.v1.ObjectMetaArgs(name=NAME, labels=labels)
    metadata = meta.v1.ObjectMetaArgs(name=NAME, namespace=NAMESPACE, labels=labels)
    subject = rbac.v1.SubjectArgs(
        kind="ServiceAccount",
        name=account.metadata.apply(lambda metadata: metadata.name or NAME),
        namespace=NAMESPACE,
    )
    cluster_role = rbac.v1.ClusterRole(
        f"{parent.name}-everywhere",
        metadata=cluster_metadata,
        rules=[_rule(*rule) for rule in CLUSTER_RULES],
        opts=parent.child(),
    )
    role = rbac.v1.Role(
        f"{parent.name}-here",
        metadata=metadata,
        rules=[_rule(*rule) for rule in NAMESPACE_RULES],
        opts=parent.child(),
    )
    return [
        rbac.v1.ClusterRoleBinding(
            f"{parent.name}-everywhere-binding",
            metadata=cluster_metadata,
            role_ref=_reference("ClusterRole"),
            subjects=[subject],
            opts=parent.child(depends_on=[cluster_role]),
        ),
        rbac.v1.RoleBinding(
            f"{parent.name}-here-binding",
            metadata=metadata,
            role_ref=_reference("Role"),
            subjects=[subject],
            opts=parent.child(depends_on=[role]),
        ),
    ]


def _rule(
    group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str]
) -> rbac.v1.PolicyRuleArgs:
    return rbac.v1.PolicyRuleArgs(
        api_groups=[group],
        resources=list(resources),
        verbs=list(verbs),
        resource_names=list(names) or None,
    )


def _reference(kind: str) -> rbac.v1.RoleRefArgs:
    return rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=NAME)
