"""Who an AKS cluster is: one identity for its control plane, one for its nodes.

Both are ours rather than the cluster's own, which would come to be with it: so their rights are
given before the cluster needs them, a registry can let the nodes in while the cluster is being made,
and a cluster that is replaced keeps them.
"""

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity

from components.cluster.aks_roles import Role, grant
from components.config import AksConfig
from components.part import Part


@dataclass(frozen=True, kw_only=True)
class AksIdentitiesArgs:
    """Whom to make.

    Attributes:
        config: the stack's `cluster` section.
        group: name of the resource group.
        subnet_id: the subnet in which the control plane puts nodes and load balancers.
        tags: of the identities.
    """

    config: AksConfig
    group: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    tags: dict[str, str]


class AksIdentities(Part):
    """The identities of control plane and nodes, and what the control plane may do.

    Attributes:
        control_plane: makes the cluster's network interfaces, disks and machines.
        kubelet: pulls images; nothing else is allowed to it.
        ready: what must be there before the cluster, and outlive it.
    """

    control_plane: managedidentity.UserAssignedIdentity
    kubelet: managedidentity.UserAssignedIdentity
    ready: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: AksIdentitiesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:AksIdentities", name, opts)
        self._args = args
        self.control_plane = self._identity("control-plane")
        self.kubelet = self._identity("kubelet")
        self.ready = (
            grant(
                f"{name}-network-contributor",
                Role.NETWORK_CONTRIBUTOR,
                scope=args.subnet_id,
                principal_id=self.control_plane.principal_id,
                opts=self.child(delete_before_replace=True),
            ),
            grant(
                f"{name}-identity-operator",
                Role.MANAGED_IDENTITY_OPERATOR,  # to give the nodes theirs
                scope=self.kubelet.id,
                principal_id=self.control_plane.principal_id,
                opts=self.child(delete_before_replace=True),
            ),
        )
        self.register_outputs({"kubelet": self.kubelet.id})

    def _identity(self, role: str) -> managedidentity.UserAssignedIdentity:
        """Declare an identity."""
        return managedidentity.UserAssignedIdentity(
            f"{self.name}-{role}",
            resource_name_=f"{self._args.config.name}-{role}",
            resource_group_name=self._args.group,
            location=self._args.config.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
