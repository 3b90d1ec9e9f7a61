"""Managed identities for the control plane and the nodes of an AKS cluster, and for pods.

All are user-assigned. A system-assigned identity would be created with the cluster. User-assigned identities get
their roles before the cluster needs them, can be granted AcrPull on a registry while the cluster is being created,
and remain when the cluster is replaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity

from components.azure.roles import BuiltInRole, grant
from components.component import Component

AUDIENCE = "api://AzureADTokenExchange"
USES_IDENTITY = {"azure.workload.identity/use": "true"}
"""Labels of pods into which AKS injects a token of their ServiceAccount and the ids for its exchange."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A managed identity with its ids.

    Attributes:
        resource: the identity.
        client_id: id with which a program requests tokens.
        principal_id: object id in Entra, to which roles are assigned.
    """

    resource: managedidentity.UserAssignedIdentity
    client_id: pulumi.Output[str]
    principal_id: pulumi.Output[str]

    @property
    def annotations(self) -> dict[str, pulumi.Input[str]]:
        """Annotations of the ServiceAccount whose pods use this identity; an account can name only one."""
        return {"azure.workload.identity/client-id": self.client_id}


def declare_identity(
    name: str,
    azure_name: str,
    *,
    group: pulumi.Input[str],
    location: str,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> Identity:
    """Declare an identity and look up its ids.

    The resource has the ids as outputs too, but a preview that only changes its tags treats them as
    unknown. With an unknown client id, the preview would replace the volume, the claim and the job.

    Args:
        name: logical name.
        azure_name: name on Azure.
        group: name of the resource group.
        location: Azure region.
        tags: tags of the identity.
        opts: options of the resource; the look-up uses the provider of its parent.
    """
    resource = managedidentity.UserAssignedIdentity(
        name,
        resource_name_=azure_name,
        resource_group_name=group,
        location=location,
        tags=tags,
        opts=opts,
    )
    ids = managedidentity.get_user_assigned_identity_output(
        resource_group_name=group,
        resource_name=resource.name,
        opts=pulumi.InvokeOutputOptions(parent=opts.parent, depends_on=[resource]),
    )
    return Identity(resource=resource, client_id=ids.client_id, principal_id=ids.principal_id)


def trust_service_account(
    name: str,
    identity: Identity,
    *,
    group: pulumi.Input[str],
    issuer: pulumi.Input[str],
    subject: str,
    opts: pulumi.ResourceOptions,
) -> managedidentity.FederatedIdentityCredential:
    """Declare the credential that exchanges tokens of a ServiceAccount for tokens of an identity.

    Args:
        name: logical name.
        identity: the identity.
        group: name of its resource group.
        issuer: OIDC issuer of the cluster, which signs the tokens.
        subject: `system:serviceaccount:NAMESPACE:NAME`.
        opts: options of the credential.
    """
    return managedidentity.FederatedIdentityCredential(
        name,
        federated_identity_credential_resource_name=subject.rpartition(":")[2],
        resource_name_=identity.resource.name,
        resource_group_name=group,
        issuer=issuer,
        subject=subject,
        audiences=[AUDIENCE],
        opts=opts,
    )


@dataclass(frozen=True, kw_only=True)
class AksIdentitiesArgs:
    """Arguments of AksIdentities.

    Attributes:
        cluster: name of the cluster, prefix of all names.
        location: Azure region.
        group: name of the resource group.
        subnet_id: subnet in which the control plane creates nodes and load balancers.
        dns_zone_id: existing private DNS zone in which it registers the API server; None: AKS manages DNS.
        tags: tags of the identities.
    """

    cluster: str
    location: str
    group: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    dns_zone_id: str | None = None
    tags: Mapping[str, str]


class AksIdentities(Component):
    """The identities of control plane and nodes, and the roles of the control plane.

    Attributes:
        control_plane: identity that manages network interfaces, disks and machines.
        kubelet: identity of the nodes, which may only pull images.
        prerequisites: roles that the cluster needs from its creation to its deletion.
    """

    control_plane: Identity
    kubelet: Identity
    prerequisites: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: AksIdentitiesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:AksIdentities", name, opts)
        self._args = args
        self.control_plane = self._identity("control-plane")
        self.kubelet = self._identity("kubelet")
        self.prerequisites = (
            grant(
                f"{name}-network-contributor",
                BuiltInRole.NETWORK_CONTRIBUTOR,
                scope=args.subnet_id,
                principal_id=self.control_plane.principal_id,
                opts=self.child(delete_before_replace=True),
            ),
            grant(
                f"{name}-identity-operator",
                BuiltInRole.MANAGED_IDENTITY_OPERATOR,  # to assign the identity of the nodes
                scope=self.kubelet.resource.id,
                principal_id=self.control_plane.principal_id,
                opts=self.child(delete_before_replace=True),
            ),
            *self._dns_roles(),
        )
        self.register_outputs({"kubelet": self.kubelet.resource.id})

    def _dns_roles(self) -> tuple[pulumi.Resource, ...]:
        """Declare the roles with which the control plane writes to a DNS zone and links it to the network.

        Source: AKS documentation, "Create a private AKS cluster"; not tried on Azure.
        """
        if self._args.dns_zone_id is None:
            return ()
        subnet_id = pulumi.Output.from_input(self._args.subnet_id)
        roles: dict[str, tuple[BuiltInRole, pulumi.Input[str]]] = {
            "dns-zone-contributor": (
                BuiltInRole.PRIVATE_DNS_ZONE_CONTRIBUTOR,
                self._args.dns_zone_id,
            ),
            "link-contributor": (
                BuiltInRole.NETWORK_CONTRIBUTOR,
                subnet_id.apply(lambda id_: id_.rsplit("/", 2)[0]),  # .../subnets/NAME
            ),
        }
        return tuple(
            grant(
                f"{self.name}-{key}",
                role,
                scope=scope,
                principal_id=self.control_plane.principal_id,
                opts=self.child(delete_before_replace=True),
            )
            for key, (role, scope) in roles.items()
        )

    def _identity(self, role: str) -> Identity:
        """Declare one of the two identities."""
        return declare_identity(
            f"{self.name}-{role}",
            f"{self._args.cluster}-{role}",
            group=self._args.group,
            location=self._args.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
