"""What the cluster autoscaler may do: on AWS to this cluster's groups alone, in the cluster to nodes.

Tables rather than a manifest, since names of groups and of the cluster go into them.
"""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws
from pulumi_kubernetes import core, meta, rbac

from components.config import EksConfig
from components.iam import EVERY, Statement
from components.part import Part

NAMESPACE = "kube-system"
NAME = "cluster-autoscaler"
PRIORITIES = "cluster-autoscaler-priority-expander"  # the expander looks for this name
STATUS = "cluster-autoscaler-status"

# Rights that AWS grants on nothing narrower than everything.
LOOKING = (
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

WATCH = ("get", "list", "watch")
Words = tuple[str, Sequence[str], Sequence[str], Sequence[str]]
# API group, resources, verbs, names (none: all).
EVERYWHERE: Sequence[Words] = (
    ("", ("events",), ("create", "patch"), ()),
    ("", ("nodes",), (*WATCH, "update"), ()),
    ("", ("pods/eviction",), ("create",), ()),
    ("", ("pods/status",), ("update",), ()),
    (
        "",
        ("pods", "services", "namespaces", "replicationcontrollers"),
        WATCH,
        (),
    ),
    ("", ("persistentvolumes", "persistentvolumeclaims"), WATCH, ()),
    ("apps", ("daemonsets", "replicasets", "statefulsets"), WATCH, ()),
    ("batch", ("jobs",), WATCH, ()),
    ("policy", ("poddisruptionbudgets",), WATCH, ()),
    (
        "storage.k8s.io",
        (
            "storageclasses",
            "csinodes",
            "csidrivers",
            "csistoragecapacities",
            "volumeattachments",
        ),
        WATCH,
        (),
    ),
    ("resource.k8s.io", ("resourceclaims", "resourceslices", "deviceclasses"), WATCH, ()),
)
HERE: Sequence[Words] = (
    ("", ("configmaps",), ("create", "list", "watch"), ()),
    ("", ("configmaps",), ("get", "update", "delete"), (STATUS, PRIORITIES)),
    ("coordination.k8s.io", ("leases",), ("create",), ()),
    ("coordination.k8s.io", ("leases",), ("get", "update"), (NAME,)),
)


def cloud_rights(
    config: EksConfig, cluster: aws.eks.Cluster, groups: Sequence[aws.eks.NodeGroup]
) -> list[Statement]:
    """Give what it may do on AWS: look around in the region, resize this cluster's groups."""
    owned = {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{config.name}": "owned"}
    return [
        Statement(
            actions=LOOKING,
            resources=[EVERY],
            conditions={"StringEquals": {"aws:RequestedRegion": config.region}},
        ),
        Statement(
            actions=["eks:DescribeNodegroup"],
            resources=[group.arn for group in groups],
        ),
        Statement(
            actions=[
                "autoscaling:SetDesiredCapacity",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
            ],
            resources=[_scaling_group(config.region, cluster, group) for group in groups],
            conditions={"StringEquals": owned},
        ),
    ]


def _scaling_group(
    region: str, cluster: aws.eks.Cluster, group: aws.eks.NodeGroup
) -> pulumi.Output[str]:
    """Give the ARN of a node group's scaling group; EKS tells all of it but a random part."""
    account = cluster.arn.apply(lambda arn: arn.split(":")[4])
    named = group.resources.apply(_scaling_group_name)
    return pulumi.Output.concat(
        f"arn:aws:autoscaling:{region}:",
        account,
        ":autoScalingGroup:*:autoScalingGroupName/",
        named,
    )


def _scaling_group_name(resources: "Sequence[aws.eks.outputs.NodeGroupResource]") -> str:
    groups = resources[0].autoscaling_groups if resources else None
    return (groups[0].name if groups else None) or ""


def cluster_rights(
    part: Part, labels: Mapping[str, str], account: core.v1.ServiceAccount
) -> list[pulumi.Resource]:
    """Declare what it may do in the cluster, everywhere and in its own namespace."""
    everywhere = meta.v1.ObjectMetaArgs(name=NAME, labels=labels)
    here = meta.v1.ObjectMetaArgs(name=NAME, namespace=NAMESPACE, labels=labels)
    subject = rbac.v1.SubjectArgs(
        kind="ServiceAccount",
        name=account.metadata.apply(lambda metadata: metadata.name or NAME),
        namespace=NAMESPACE,
    )
    cluster_role = rbac.v1.ClusterRole(
        f"{part.name}-everywhere",
        metadata=everywhere,
        rules=[_rule(*words) for words in EVERYWHERE],
        opts=part.child(),
    )
    role = rbac.v1.Role(
        f"{part.name}-here",
        metadata=here,
        rules=[_rule(*words) for words in HERE],
        opts=part.child(),
    )
    return [
        rbac.v1.ClusterRoleBinding(
            f"{part.name}-everywhere-binding",
            metadata=everywhere,
            role_ref=_reference("ClusterRole"),
            subjects=[subject],
            opts=part.child(after=[cluster_role]),
        ),
        rbac.v1.RoleBinding(
            f"{part.name}-here-binding",
            metadata=here,
            role_ref=_reference("Role"),
            subjects=[subject],
            opts=part.child(after=[role]),
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
