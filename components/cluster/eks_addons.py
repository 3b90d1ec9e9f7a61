"""EKS' add-ons, pinned: none of them comes or changes by itself.

They come in two stages. What a node needs to become Ready, the network before all, is there before
the nodes and outlives them: a network plugin that goes first leaves its network interfaces behind,
which hold subnets and security groups for ever. What runs on nodes as Deployments comes after them,
since EKS waits until it runs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.cluster.eks_identity import Role, RoleArgs
from components.config import EksConfig
from components.config.catalog import addon_versions
from components.iam import POD_IDENTITY, Statement
from components.part import Part

NETWORK = "vpc-cni"
POD_IDENTITY_AGENT = "eks-pod-identity-agent"
PROXY = "kube-proxy"
DNS = "coredns"
FSX = "aws-fsx-csi-driver"
MONITORING = "eks-node-monitoring-agent"

BEFORE_NODES = (NETWORK, PROXY, POD_IDENTITY_AGENT)
ON_NODES = (DNS, FSX, MONITORING)

# Without the first, NetworkPolicies are stored and enforced by nobody.
CONFIGURATION: Mapping[str, Mapping[str, object]] = {NETWORK: {"enableNetworkPolicy": "true"}}


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The ServiceAccount of an add-on's pods, and what these may do on AWS."""

    service_account: str
    managed: Sequence[str] = ()
    statements: Sequence[Statement] = ()


def network_identity() -> Identity:
    """Give what the network plugin may do; nodes themselves need no such rights then."""
    return Identity(service_account="aws-node", managed=["AmazonEKS_CNI_Policy"])


def csi_identity(file_system: pulumi.Input[str]) -> Identity:
    """Give what the CSI driver may do: look at the one file system. It makes none here.

    Args:
        file_system: ARN.
    """
    look = Statement(actions=["fsx:DescribeFileSystems"], resources=[file_system])
    return Identity(service_account="fsx-csi-controller-sa", statements=[look])


@dataclass(frozen=True, kw_only=True)
class EksAddonsArgs:
    """What to install.

    Attributes:
        config: the stack's `cluster` section.
        cluster: the control plane.
        names: which add-ons.
        identities: add-on -> what its pods may do on AWS, of those that need to.
    """

    config: EksConfig
    cluster: aws.eks.Cluster
    names: Sequence[str]
    identities: Mapping[str, Identity]


class EksAddons(Part):
    """Some add-ons of one stage.

    Attributes:
        installed: the add-ons.
    """

    installed: tuple[aws.eks.Addon, ...]

    def __init__(
        self, name: str, args: EksAddonsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksAddons", name, opts)
        self._args = args
        pinned = addon_versions(args.config.kubernetes_version)
        versions = {**pinned, **args.config.addon_versions}
        self.installed = tuple(self._install(addon, versions[addon]) for addon in args.names)
        self.register_outputs({})

    def _install(self, addon: str, version: str) -> aws.eks.Addon:
        """Declare one add-on and its role."""
        identity = self._args.identities.get(addon)
        role = self._role(addon, identity) if identity else None
        association = (
            aws.eks.AddonPodIdentityAssociationArgs(
                role_arn=role.arn, service_account=identity.service_account
            )
            if role and identity
            else None
        )
        configuration = CONFIGURATION.get(addon)
        return aws.eks.Addon(
            f"{self.name}-{addon}",
            cluster_name=self._args.cluster.name,
            addon_name=addon,
            addon_version=version,
            configuration_values=json.dumps(configuration) if configuration else None,
            pod_identity_associations=[association] if association else None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            opts=self.child(after=role.rights if role else (), delete_before_replace=True),
        )

    def _role(self, addon: str, identity: Identity) -> Role:
        """Declare the role of an add-on's pods."""
        statements = {addon: identity.statements} if identity.statements else {}
        args = RoleArgs(
            physical=f"{self._args.config.name}-{addon}",
            service=POD_IDENTITY,
            managed=identity.managed,
            statements=statements,
        )
        return Role(f"{self.name}-{addon}-role", args, self.child())
