"""The cluster autoscaler of an EKS cluster: adds nodes for pending pods and removes idle ones.

The priority expander tries the GPU groups in order of preference; on-demand fallbacks are last. If a group gets no
capacity within the provision time, the next one is tried. The autoscaler may resize the groups of this cluster and
nothing else in the account.

Karpenter would choose among all instance types itself, but its instances are not in any Pulumi state:
`pulumi destroy` would leave them running.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import yaml
from pulumi_aws import eks
from pulumi_kubernetes import apps, core, meta

from components.aws.autoscaler_policies import (
    NAME,
    NAMESPACE,
    PRIORITIES_NAME,
    aws_statements,
    declare_rbac,
)
from components.aws.identity import PodIdentityArgs, declare_pod_identity
from components.aws.node_groups import CSI_STARTUP_TAINT, gpu_pools
from components.component import Component
from components.config import EksAutoscalingConfig, EksConfig
from components.interface import Placement
from components.platform.pods import (
    PULL_POLICY,
    container_security,
    labels,
    pod_security,
    tolerations,
)

ANY_GROUP = ".*"
PROVISION_MINUTES = 10  # time without capacity after which the next group is tried
AUTOSCALER_METRICS_PORT = 8085
LABELS = labels(NAME)


@dataclass(frozen=True, kw_only=True)
class EksAutoscalerArgs:
    """Arguments of an EksAutoscaler.

    Attributes:
        cluster: name of the cluster.
        cluster_name: the same name as an output of the cluster, so that the autoscaler depends on it.
        region: AWS region.
        account: AWS account, twelve digits.
        config: the `cluster.autoscaling` section of a stack.
        placement: nodes on which it runs.
        priorities: priority -> pattern of the names of Auto Scaling groups; the highest is first.
    """

    cluster: str
    cluster_name: pulumi.Input[str]
    region: str
    account: pulumi.Input[str]
    config: EksAutoscalingConfig
    placement: Placement
    priorities: Mapping[int, str]


class EksAutoscaler(Component):
    """The autoscaler, its permissions on AWS and in the cluster, and its priorities."""

    def __init__(
        self, name: str, args: EksAutoscalerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksAutoscaler", name, opts)
        self._args = args
        account = core.v1.ServiceAccount(
            f"{name}-account",
            metadata=self._metadata(NAME),
            automount_service_account_token=False,  # its pod mounts the token explicitly
            opts=self.child(delete_before_replace=True),
        )
        permissions = [self._identity(), *declare_rbac(self, LABELS, account)]
        self._deployment(account, [*permissions, self._priorities()])
        self.register_outputs({})

    def _metadata(self, name: str) -> meta.v1.ObjectMetaArgs:
        return meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE, labels=LABELS)

    def _identity(self) -> eks.PodIdentityAssociation:
        """Declare the role of the autoscaler's pods on AWS."""
        args = self._args
        return declare_pod_identity(
            self,
            PodIdentityArgs(
                cluster_name=args.cluster_name,
                namespace=NAMESPACE,
                service_account=NAME,
                guarded=True,
                role_name=f"{args.cluster}-autoscaler",
                statements={NAME: aws_statements(args.cluster, args.region, args.account)},
            ),
        )

    def _priorities(self) -> core.v1.ConfigMap:
        """Declare the order of the groups; the autoscaler reads the ConfigMap on each decision."""
        return core.v1.ConfigMap(
            f"{self.name}-preference",
            metadata=self._metadata(PRIORITIES_NAME),
            data={
                "priorities": yaml.safe_dump(
                    {rank: [pattern] for rank, pattern in self._args.priorities.items()}
                )
            },
            opts=self.child(delete_before_replace=True),
        )

    def _deployment(
        self, account: core.v1.ServiceAccount, depends_on: Sequence[pulumi.Resource]
    ) -> apps.v1.Deployment:
        """Declare the Deployment; the autoscaler needs its identity when its pod starts."""
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
            opts=self.child(depends_on=depends_on, delete_before_replace=True),
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
            image=self._args.config.image,
            image_pull_policy=PULL_POLICY,
            command=["./cluster-autoscaler"],
            args=flags(self._args.cluster, self._args.config),
            env=[core.v1.EnvVarArgs(name="AWS_REGION", value=self._args.region)],
            ports=[
                core.v1.ContainerPortArgs(name="metrics", container_port=AUTOSCALER_METRICS_PORT)
            ],
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "100m", "memory": "600Mi"}, limits={"memory": "600Mi"}
            ),
            security_context=container_security(),
        )


def priorities(config: EksConfig) -> dict[int, str]:
    """Return the table of the priority expander: the GPU pools in their order, then all other groups.

    EKS names the Auto Scaling group of a node group `eks-<node group>-<uuid>`. A pattern matches the whole name,
    because the name of the cluster may contain a pool's name, and one pool's name may be a prefix of another's.
    """
    patterns = [f"^eks-{config.name}-{pool.name}-[0-9a-f-]{{36}}$" for pool in gpu_pools(config)]
    ranked = {10 * rank: pattern for rank, pattern in enumerate(reversed(patterns), start=1)}
    return {**ranked, 1: ANY_GROUP}


def flags(cluster: str, config: EksAutoscalingConfig) -> list[str]:
    """Return the command line of the autoscaler."""
    tags = f"k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/{cluster}"
    options = {
        "cloud-provider": "aws",
        "node-group-auto-discovery": f"asg:tag={tags}",  # EKS sets these tags
        "expander": "priority,least-waste",
        "scale-down-unneeded-time": f"{config.scale_down_minutes}m",
        "max-node-provision-time": f"{PROVISION_MINUTES}m",
        # All spot nodes of a zone may be interrupted at the same time. At the default, 45 %, the autoscaler would
        # consider the cluster unhealthy and add no nodes until they were removed.
        "max-total-unready-percentage": "100",
        "scale-down-unready-time": "3m",
        # The kubelet of every new GPU node registers with this taint, which no worker tolerates: without the option,
        # the autoscaler would assume that a new node cannot run a worker, and that no further node of its group can.
        "startup-taint": CSI_STARTUP_TAINT,
        "skip-nodes-with-local-storage": "false",  # a data cache in an emptyDir must not keep a node
        "balance-similar-node-groups": "false",  # the spot and on-demand groups differ only in price
        "stderrthreshold": "info",
    }
    return [f"--{key}={value}" for key, value in options.items()]
