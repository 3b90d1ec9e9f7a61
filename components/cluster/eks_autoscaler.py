"""The cluster autoscaler of an EKS cluster: nodes come for pods that wait, and go when idle.

It prefers spot and falls back: the priority expander tries the spot group first, and when the market
has none within the time given, the on-demand group, if the stack has one. It may change the size of
this cluster's own groups and of nothing else in the account.

Karpenter would choose among all instance types by itself, but it makes machines that no state knows:
`pulumi destroy` would leave them running.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import yaml
from pulumi_kubernetes import apps, core, meta

from components.cluster import Placement
from components.cluster.eks_autoscaler_rights import (
    NAME,
    NAMESPACE,
    PRIORITIES,
    cloud_rights,
    cluster_rights,
)
from components.cluster.eks_identity import Role, RoleArgs
from components.cluster.eks_nodes import CSI_STARTUP_TAINT, GPU, ON_DEMAND
from components.config import EksConfig
from components.iam import POD_IDENTITY
from components.part import Part
from components.platform.pods import (
    PULL_POLICY,
    container_security,
    labels,
    pod_security,
    tolerations,
)

PREFERENCE = {50: rf".*-{GPU}-.*", 10: rf".*-gpu-{ON_DEMAND}-.*", 1: ".*"}
PROVISION_MINUTES = 10  # how long the market is given before the next group is tried
METRICS_PORT = 8085
LABELS = labels(NAME)


@dataclass(frozen=True, kw_only=True)
class EksAutoscalerArgs:
    """What to scale.

    Attributes:
        config: the stack's `cluster` section.
        cluster: the control plane.
        groups: node groups that may be scaled.
        placement: where it runs itself: nodes that stay.
    """

    config: EksConfig
    cluster: aws.eks.Cluster
    groups: Sequence[aws.eks.NodeGroup]
    placement: Placement


class EksAutoscaler(Part):
    """The autoscaler, its rights on AWS and in the cluster, and its order of preference."""

    def __init__(
        self, name: str, args: EksAutoscalerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksAutoscaler", name, opts)
        self._args, self._config = args, args.config
        account = core.v1.ServiceAccount(
            f"{name}-account",
            metadata=self._metadata(NAME),
            automount_service_account_token=False,  # its pod asks for the token itself
            opts=self.child(delete_before_replace=True),
        )
        rights = [self._identity(account), *cluster_rights(self, LABELS, account)]
        self._deployment(account, [*rights, self._preference()])
        self.register_outputs({})

    def _metadata(self, name: str) -> meta.v1.ObjectMetaArgs:
        return meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE, labels=LABELS)

    def _identity(self, account: core.v1.ServiceAccount) -> aws.eks.PodIdentityAssociation:
        """Give the autoscaler's pods its rights on AWS."""
        role = Role(
            f"{self.name}-role",
            RoleArgs(
                physical=f"{self._config.name}-autoscaler",
                service=POD_IDENTITY,
                statements={
                    NAME: cloud_rights(self._config, self._args.cluster, self._args.groups)
                },
            ),
            self.child(),
        )
        return aws.eks.PodIdentityAssociation(
            f"{self.name}-identity",
            cluster_name=self._args.cluster.name,
            namespace=NAMESPACE,
            service_account=account.metadata.apply(lambda metadata: metadata.name or NAME),
            role_arn=role.arn,
            opts=self.child(after=role.rights, delete_before_replace=True),
        )

    def _preference(self) -> core.v1.ConfigMap:
        """Declare which groups it tries first; it reads this anew each time."""
        return core.v1.ConfigMap(
            f"{self.name}-preference",
            metadata=self._metadata(PRIORITIES),
            data={"priorities": yaml.safe_dump({rank: [one] for rank, one in PREFERENCE.items()})},
            opts=self.child(delete_before_replace=True),
        )

    def _deployment(
        self, account: core.v1.ServiceAccount, after: Sequence[pulumi.Resource]
    ) -> apps.v1.Deployment:
        """Declare the autoscaler itself; its identity must be there before its pod is."""
        return apps.v1.Deployment(
            f"{self.name}-deployment",
            metadata=self._metadata(NAME),
            spec=apps.v1.DeploymentSpecArgs(
                replicas=1,
                strategy=apps.v1.DeploymentStrategyArgs(type="Recreate"),
                selector=meta.v1.LabelSelectorArgs(match_labels=LABELS),
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(labels=LABELS),
                    spec=self._pod(account),
                ),
            ),
            opts=self.child(after=after, delete_before_replace=True),
        )

    def _pod(self, account: core.v1.ServiceAccount) -> core.v1.PodSpecArgs:
        return core.v1.PodSpecArgs(
            service_account_name=account.metadata.apply(lambda metadata: metadata.name or NAME),
            automount_service_account_token=True,
            priority_class_name="system-cluster-critical",
            node_selector=dict(self._args.placement.selector),
            tolerations=tolerations(self._args.placement),
            security_context=pod_security(),
            containers=[self._container()],
        )

    def _container(self) -> core.v1.ContainerArgs:
        return core.v1.ContainerArgs(
            name=NAME,
            image=self._config.autoscaling.image,
            image_pull_policy=PULL_POLICY,
            command=["./cluster-autoscaler"],
            args=flags(self._config),
            env=[core.v1.EnvVarArgs(name="AWS_REGION", value=self._config.region)],
            ports=[core.v1.ContainerPortArgs(name="metrics", container_port=METRICS_PORT)],
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "100m", "memory": "600Mi"}, limits={"memory": "600Mi"}
            ),
            security_context=container_security(),
        )


def flags(config: EksConfig) -> list[str]:
    """Give the autoscaler's command line."""
    found_by = f"k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/{config.name}"
    said = {
        "cloud-provider": "aws",
        "node-group-auto-discovery": f"asg:tag={found_by}",  # EKS tags its groups so
        "expander": "priority,least-waste",
        "scale-down-unneeded-time": f"{config.autoscaling.scale_down_minutes}m",
        "max-node-provision-time": f"{PROVISION_MINUTES}m",
        # A new node carries it for a moment; no pod tolerates it, so that no group would fit.
        "startup-taint": CSI_STARTUP_TAINT,
        "skip-nodes-with-local-storage": "false",  # a worker's shared memory is no reason to stay
        "balance-similar-node-groups": "false",  # spot and on demand differ in price alone
        "stderrthreshold": "info",
    }
    return [f"--{key}={value}" for key, value in said.items()]
