"""The control plane of an EKS cluster, and access to it.

Users get access through access entries only: CloudTrail records no changes of the older aws-auth ConfigMap, and a
mistake in it cannot be repaired from outside the cluster. Secrets are encrypted with a KMS key. The control plane
logs to a log group that is declared before the cluster: EKS would otherwise create a group that keeps all logs
forever and that `pulumi destroy` does not delete.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from cloudfacts.aws import EKS_LOG_TYPES
from pulumi_aws import cloudwatch, eks, kms

from components.aws.encryption import declare_key
from components.aws.identity import Role, RoleArgs
from components.component import Component

ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
# EKS reads this property only when it creates the cluster; a change would replace the cluster.
CREATOR_IS_ADMIN = "accessConfig.bootstrapClusterCreatorAdminPermissions"


@dataclass(frozen=True, kw_only=True)
class EksClusterArgs:
    """Arguments of an EksCluster.

    Attributes:
        name: name of the cluster.
        kubernetes_version: minor version, such as 1.36.
        subnet_ids: private subnets, in which EKS creates its network interfaces.
        service_cidr: addresses of Kubernetes Services, outside the VPC.
        public_access: public CIDR blocks that may reach the API; if empty, only the VPC may.
        administrators: ARNs of IAM users and roles that administer the cluster. If empty, the
            creator becomes administrator.
        kms_key_arn: existing key for Secrets and logs; None: a new key for Secrets.
        log_retention_days: days for which the logs of the control plane are kept.
        protect: whether Pulumi refuses to delete the cluster and its key.
    """

    name: str
    kubernetes_version: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]
    service_cidr: pulumi.Input[str]
    public_access: Sequence[pulumi.Input[str]] = ()
    administrators: Sequence[str] = ()
    kms_key_arn: pulumi.Input[str] | None = None
    log_retention_days: pulumi.Input[int] = 30
    protect: bool = False


class EksCluster(Component):
    """A control plane without nodes.

    Attributes:
        cluster: the EKS cluster.
        security_group: id of the cluster security group, which EKS attaches to nodes that set no groups themselves.
        certificate: certificate of the API server's CA, base64.
        access: access entries and policies of the administrators.
    """

    cluster: eks.Cluster
    security_group: pulumi.Output[str]
    certificate: pulumi.Output[str]
    access: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: EksClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksCluster", name, opts)
        self._args = args
        secrets_key = self._key() if args.kms_key_arn is None else args.kms_key_arn
        self.cluster = self._control_plane(self._role(), secrets_key, self._logs())
        self.security_group = self.cluster.vpc_config.apply(_security_group)
        self.certificate = self.cluster.certificate_authority.apply(_certificate)
        self.access = tuple(
            resource for arn in args.administrators for resource in self._administrator(arn)
        )
        self.register_outputs({"name": self.cluster.name, "endpoint": self.cluster.endpoint})

    def _role(self) -> Role:
        """Declare the role of the control plane, which manages network interfaces."""
        args = RoleArgs(
            role_name=f"{self._args.name}-cluster",
            service="eks.amazonaws.com",
            managed_policies=["AmazonEKSClusterPolicy"],
        )
        return Role(f"{self.name}-role", args, self.child())

    def _key(self) -> pulumi.Output[str]:
        """Declare the key that encrypts Kubernetes Secrets, and return its ARN."""
        description = f"Secrets of the EKS cluster {self._args.name}"
        secrets_key = declare_key(self, "key", description, protect=self._args.protect)
        kms.Alias(
            f"{self.name}-key-alias",
            name=f"alias/{self._args.name}-eks",
            target_key_id=secrets_key.key_id,
            opts=self.child(delete_before_replace=True),
        )
        return secrets_key.arn

    def _logs(self) -> cloudwatch.LogGroup:
        """Declare the log group of the control plane, whose name EKS prescribes."""
        return cloudwatch.LogGroup(
            f"{self.name}-logs",
            name=f"/aws/eks/{self._args.name}/cluster",
            retention_in_days=self._args.log_retention_days,
            kms_key_id=self._args.kms_key_arn,
            opts=self.child(delete_before_replace=True),
        )

    def _control_plane(
        self, role: Role, key_arn: pulumi.Input[str], logs: cloudwatch.LogGroup
    ) -> eks.Cluster:
        """Declare the cluster; add-ons are declared separately."""
        args = self._args
        return eks.Cluster(
            f"{self.name}-control-plane",
            name=args.name,
            version=args.kubernetes_version,
            role_arn=role.arn,
            bootstrap_self_managed_addons=False,
            enabled_cluster_log_types=list(EKS_LOG_TYPES),
            deletion_protection=args.protect,
            upgrade_policy=eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            access_config=eks.ClusterAccessConfigArgs(
                authentication_mode="API",
                # The creator's access entry would conflict with the declared one if the creator is an administrator.
                bootstrap_cluster_creator_admin_permissions=not args.administrators,
            ),
            encryption_config=eks.ClusterEncryptionConfigArgs(
                provider=eks.ClusterEncryptionConfigProviderArgs(key_arn=key_arn),
                resources=["secrets"],
            ),
            kubernetes_network_config=eks.ClusterKubernetesNetworkConfigArgs(
                ip_family="ipv4", service_ipv4_cidr=args.service_cidr
            ),
            vpc_config=self._endpoint_access(),
            # Without its policies the control plane could not delete its network interfaces.
            opts=self.child(
                depends_on=[logs, *role.policies],
                protect=args.protect,
                delete_before_replace=True,
                ignore_changes=[CREATOR_IS_ADMIN],
            ),
        )

    def _endpoint_access(self) -> eks.ClusterVpcConfigArgs:
        """Return the networks that reach the API: always the VPC, others only if listed."""
        public_cidrs = self._args.public_access
        return eks.ClusterVpcConfigArgs(
            subnet_ids=list(self._args.subnet_ids),
            endpoint_private_access=True,
            endpoint_public_access=bool(public_cidrs),
            public_access_cidrs=list(public_cidrs) or None,
        )

    def _administrator(self, arn: str) -> tuple[pulumi.Resource, ...]:
        """Declare the access entry and policy of an administrator."""
        name = f"{self.name}-admin-{short_name(arn)}"
        entry = eks.AccessEntry(
            name,
            cluster_name=self.cluster.name,
            principal_arn=arn,
            type="STANDARD",
            opts=self.child(delete_before_replace=True),
        )
        association = eks.AccessPolicyAssociation(
            f"{name}-policy",
            cluster_name=self.cluster.name,
            principal_arn=entry.principal_arn,
            policy_arn=ADMIN_POLICY,
            access_scope=eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
            opts=self.child(delete_before_replace=True),
        )
        return entry, association


def short_name(arn: str) -> str:
    """Return a readable name of an IAM principal that is unique to its ARN."""
    digest = hashlib.sha256(arn.encode()).hexdigest()[:6]
    return f"{arn.rpartition('/')[2]}-{digest}"


def _security_group(vpc_config: eks.outputs.ClusterVpcConfig) -> str:
    return vpc_config.cluster_security_group_id or ""


def _certificate(ca: eks.outputs.ClusterCertificateAuthority) -> str:
    return ca.data or ""
