"""EKS add-ons: all are declared, so that none is installed or upgraded without a preview.

AWS resolves a version that the stack does not set: a build such as eksbuild.7 exists for some versions of
Kubernetes only, and AWS withdraws old ones. A preview therefore fails if an add-on does not exist, before
anything is created, and shows an upgrade when AWS changes its default version.

Add-ons are installed in two stages. The add-ons that a node needs to become Ready, above all the network
plugin, precede the nodes and are deleted after them: a network plugin that is deleted first leaves
its network interfaces behind, which block the deletion of subnets and security groups. All other
add-ons follow the nodes, since EKS waits until the pods of a Deployment run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import eks

from components.aws.iam import ALL_RESOURCES, POD_IDENTITY, Statement
from components.aws.identity import Role, RoleArgs
from components.component import Component
from components.config.catalog import CLOUDWATCH_ADDON, EKS_ADDONS

NETWORK, DNS, PROXY, POD_IDENTITY_AGENT, FSX, MONITORING = EKS_ADDONS

ADDONS_BEFORE_NODES = (NETWORK, PROXY, POD_IDENTITY_AGENT)
ADDONS_AFTER_NODES = (DNS, FSX, MONITORING)

CONFIGURATION: Mapping[str, Mapping[str, object]] = {
    # Without this setting, NetworkPolicies are stored but not enforced.
    NETWORK: {"enableNetworkPolicy": "true"},
    # By default, the add-on instruments the programs behind all Services of the cluster for tracing.
    CLOUDWATCH_ADDON: {
        "manager": {"applicationSignals": {"autoMonitor": {"monitorAllServices": False}}}
    },
}


@dataclass(frozen=True, kw_only=True)
class AddonIdentity:
    """The ServiceAccount of an add-on's pods, and its permissions on AWS.

    Attributes:
        service_account: name of the ServiceAccount.
        managed_policies: names of AWS managed policies.
        statements: statements of an inline policy.
    """

    service_account: str
    managed_policies: Sequence[str] = ()
    statements: Sequence[Statement] = ()


def network_identity() -> AddonIdentity:
    """Return the identity of the network plugin, so that nodes need no such permissions."""
    return AddonIdentity(service_account="aws-node", managed_policies=["AmazonEKS_CNI_Policy"])


def csi_identity(region: str) -> AddonIdentity:
    """Return the identity of the CSI driver, which may only describe the file systems of a region.

    AWS does not support resource-level permissions for this action: an ARN would grant nothing.

    Args:
        region: AWS region.
    """
    describe = Statement(
        actions=["fsx:DescribeFileSystems"],
        resources=[ALL_RESOURCES],
        conditions={"StringEquals": {"aws:RequestedRegion": region}},
    )
    return AddonIdentity(service_account="fsx-csi-controller-sa", statements=[describe])


@dataclass(frozen=True, kw_only=True)
class EksAddonsArgs:
    """Arguments of EksAddons.

    Attributes:
        cluster: name of the cluster, prefix of the names of IAM roles.
        cluster_name: the same name as an output of the cluster, so that add-ons depend on it.
        kubernetes_version: minor version of the cluster, such as 1.36.
        addons: names of the add-ons.
        versions: add-on -> version; an absent add-on gets AWS's default version.
        identities: add-on -> identity of its pods, for add-ons that call AWS.
    """

    cluster: str
    cluster_name: pulumi.Input[str]
    kubernetes_version: pulumi.Input[str]
    addons: Sequence[str]
    versions: Mapping[str, pulumi.Input[str]]
    identities: Mapping[str, AddonIdentity]


class EksAddons(Component):
    """The add-ons of one stage.

    Attributes:
        addons: the add-ons.
    """

    addons: tuple[eks.Addon, ...]

    def __init__(
        self, name: str, args: EksAddonsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksAddons", name, opts)
        self._args = args
        self.addons = tuple(
            self._install(addon, args.versions.get(addon) or self._default_version(addon))
            for addon in args.addons
        )
        self.register_outputs({})

    def _default_version(self, addon: str) -> pulumi.Output[str]:
        """Return AWS's default version of an add-on, which is not always the most recent one."""
        lookup = eks.get_addon_version_output(
            addon_name=addon,
            kubernetes_version=self._args.kubernetes_version,
            most_recent=False,
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        return lookup.version

    def _install(self, addon: str, version: pulumi.Input[str]) -> eks.Addon:
        """Declare an add-on and its role."""
        identity = self._args.identities.get(addon)
        role = self._role(addon, identity) if identity else None
        association = (
            eks.AddonPodIdentityAssociationArgs(
                role_arn=role.arn, service_account=identity.service_account
            )
            if role and identity
            else None
        )
        configuration = CONFIGURATION.get(addon)
        return eks.Addon(
            f"{self.name}-{addon}",
            cluster_name=self._args.cluster_name,
            addon_name=addon,
            addon_version=version,
            configuration_values=json.dumps(configuration) if configuration else None,
            pod_identity_associations=[association] if association else None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            opts=self.child(depends_on=role.policies if role else (), delete_before_replace=True),
        )

    def _role(self, addon: str, identity: AddonIdentity) -> Role:
        """Declare the role of an add-on's pods."""
        statements = {addon: identity.statements} if identity.statements else {}
        args = RoleArgs(
            role_name=f"{self._args.cluster}-{addon}",
            service=POD_IDENTITY,
            managed_policies=identity.managed_policies,
            statements=statements,
        )
        return Role(f"{self.name}-{addon}-role", args, self.child())
