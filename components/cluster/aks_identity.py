"""Who an AKS cluster is: one identity for its control plane, one for its nodes.

Both are ours rather than the cluster's own, which would come to be with it: so their rights are
given before the cluster needs them, a registry can let the nodes in while the cluster is being made,
and a cluster that is replaced keeps them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity

from components.cluster.aks_roles import Role, grant
from components.config import AksConfig
from components.part import Part


@dataclass(frozen=True, kw_only=True)
class Identity:
    """An identity, and who it is.

    Attributes:
        resource: the identity.
        client_id: the id by which a program asks for its tokens.
        principal_id: its object id in Entra, to which roles are given.
    """

    resource: managedidentity.UserAssignedIdentity
    client_id: pulumi.Output[str]
    principal_id: pulumi.Output[str]


def declare_identity(
    name: str,
    called: str,
    *,
    group: pulumi.Output[str],
    location: str,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> Identity:
    """Declare an identity, and ask Azure who it is.

    Its own outputs say so too, but a preview that changes no more than its tags holds them for
    unknown; and with the client's id the volume, the claim and the job would seem to be replaced.

    Args:
        name: its name in the stack.
        called: its name on Azure.
        group: name of the resource group.
        location: where.
        tags: of the identity.
        opts: its options; its parent's provider is asked.
    """
    made = managedidentity.UserAssignedIdentity(
        name,
        resource_name_=called,
        resource_group_name=group,
        location=location,
        tags=tags,
        opts=opts,
    )
    who = managedidentity.get_user_assigned_identity_output(
        resource_group_name=group,
        resource_name=made.name,
        opts=pulumi.InvokeOutputOptions(parent=opts.parent, depends_on=[made]),
    )
    return Identity(resource=made, client_id=who.client_id, principal_id=who.principal_id)


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

    control_plane: Identity
    kubelet: Identity
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
                scope=self.kubelet.resource.id,
                principal_id=self.control_plane.principal_id,
                opts=self.child(delete_before_replace=True),
            ),
        )
        self.register_outputs({"kubelet": self.kubelet.resource.id})

    def _identity(self, role: str) -> Identity:
        """Declare one of the two."""
        return declare_identity(
            f"{self.name}-{role}",
            f"{self._args.config.name}-{role}",
            group=self._args.group,
            location=self._args.config.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
