"""The control plane of an EKS cluster, and who may speak to it.

Users stand in access entries only: the aws-auth ConfigMap of old is neither audited nor can a
mistake in it be undone from outside. Secrets are encrypted with a key of the stack's own. Everything
the control plane logs goes to a log group that is declared before the cluster: EKS would make one
itself, which keeps everything for ever and outlives `pulumi destroy`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.cluster.eks_identity import Role, RoleArgs
from components.config import EksConfig
from components.encryption import key
from components.part import Part

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
# Only read when the cluster is made; a change would make a new cluster.
CREATOR_IS_ADMIN = "accessConfig.bootstrapClusterCreatorAdminPermissions"


@dataclass(frozen=True, kw_only=True)
class EksClusterArgs:
    """What to make.

    Attributes:
        config: the stack's `cluster` section.
        subnets: zone -> private subnet, into which EKS puts its network interfaces.
        protect: whether the cluster and its key refuse to be deleted.
    """

    config: EksConfig
    subnets: Mapping[str, pulumi.Input[str]]
    protect: bool


class EksCluster(Part):
    """A control plane without nodes.

    Attributes:
        cluster: the cluster.
        security_group: that EKS makes for it and gives to all nodes.
        certificate: of its API server, base64.
        access: what must be there before the API lets anybody in.
    """

    cluster: aws.eks.Cluster
    security_group: pulumi.Output[str]
    certificate: pulumi.Output[str]
    access: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: EksClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksCluster", name, opts)
        self._args, self._config = args, args.config
        self.cluster = self._control_plane(self._role(), self._key(), self._logs())
        self.security_group = self.cluster.vpc_config.apply(_security_group)
        self.certificate = self.cluster.certificate_authority.apply(_certificate)
        self.access = tuple(
            one for arn in args.config.administrators for one in self._administrator(arn)
        )
        self.register_outputs({"name": self.cluster.name, "endpoint": self.cluster.endpoint})

    def _role(self) -> Role:
        """Declare what the control plane itself may do: network interfaces, load balancers."""
        args = RoleArgs(
            physical=f"{self._config.name}-cluster",
            service="eks.amazonaws.com",
            managed=["AmazonEKSClusterPolicy"],
        )
        return Role(f"{self.name}-role", args, self.child())

    def _key(self) -> aws.kms.Key:
        """Declare the key of Kubernetes' Secrets."""
        what = f"Secrets of the EKS cluster {self._config.name}"
        made = key(self, "key", what, protect=self._args.protect)
        aws.kms.Alias(
            f"{self.name}-key-alias",
            name=f"alias/{self._config.name}-eks",
            target_key_id=made.key_id,
            opts=self.child(delete_before_replace=True),
        )
        return made

    def _logs(self) -> aws.cloudwatch.LogGroup:
        """Declare where the control plane logs to; EKS takes no other name."""
        return aws.cloudwatch.LogGroup(
            f"{self.name}-logs",
            name=f"/aws/eks/{self._config.name}/cluster",
            retention_in_days=self._config.log_retention_days,
            opts=self.child(delete_before_replace=True),
        )

    def _control_plane(
        self, role: Role, secrets: aws.kms.Key, logs: aws.cloudwatch.LogGroup
    ) -> aws.eks.Cluster:
        """Declare the cluster; add-ons come separately, pinned."""
        config = self._config
        return aws.eks.Cluster(
            f"{self.name}-control-plane",
            name=config.name,
            version=config.kubernetes_version,
            role_arn=role.arn,
            bootstrap_self_managed_addons=False,
            enabled_cluster_log_types=list(LOG_TYPES),
            deletion_protection=self._args.protect,
            upgrade_policy=aws.eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            access_config=aws.eks.ClusterAccessConfigArgs(
                authentication_mode="API",
                # An entry of the creator's own would clash with that of an administrator.
                bootstrap_cluster_creator_admin_permissions=not config.administrators,
            ),
            encryption_config=aws.eks.ClusterEncryptionConfigArgs(
                provider=aws.eks.ClusterEncryptionConfigProviderArgs(key_arn=secrets.arn),
                resources=["secrets"],
            ),
            kubernetes_network_config=aws.eks.ClusterKubernetesNetworkConfigArgs(
                ip_family="ipv4", service_ipv4_cidr=config.network.service_cidr
            ),
            vpc_config=self._reach(),
            # Without its rights the control plane could not take its network interfaces away.
            opts=self.child(
                after=[logs, *role.rights],
                protect=self._args.protect,
                delete_before_replace=True,
                ignore_changes=[CREATOR_IS_ADMIN],
            ),
        )

    def _reach(self) -> aws.eks.ClusterVpcConfigArgs:
        """Say from where the API can be reached: the VPC always, the world by list only."""
        ranges = self._config.public_access
        return aws.eks.ClusterVpcConfigArgs(
            subnet_ids=[self._args.subnets[zone] for zone in self._config.zones],
            endpoint_private_access=True,
            endpoint_public_access=bool(ranges),
            public_access_cidrs=list(ranges) or None,
        )

    def _administrator(self, arn: str) -> tuple[pulumi.Resource, ...]:
        """Let a user or a role administer the cluster."""
        who = f"{self.name}-admin-{short(arn)}"
        entry = aws.eks.AccessEntry(
            who,
            cluster_name=self.cluster.name,
            principal_arn=arn,
            type="STANDARD",
            opts=self.child(delete_before_replace=True),
        )
        association = aws.eks.AccessPolicyAssociation(
            f"{who}-policy",
            cluster_name=self.cluster.name,
            principal_arn=entry.principal_arn,
            policy_arn=ADMIN_POLICY,
            access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
            opts=self.child(delete_before_replace=True),
        )
        return entry, association


def short(arn: str) -> str:
    """Give a name for whom an ARN names: readable, and different for different ARNs."""
    mark = hashlib.sha256(arn.encode()).hexdigest()[:6]
    return f"{arn.rpartition('/')[2]}-{mark}"


def _security_group(reach: aws.eks.outputs.ClusterVpcConfig) -> str:
    return reach.cluster_security_group_id or ""


def _certificate(authority: aws.eks.outputs.ClusterCertificateAuthority) -> str:
    return authority.data or ""
