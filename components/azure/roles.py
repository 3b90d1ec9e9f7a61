"""Azure RBAC: the built-in roles that Everstep assigns, and their assignment.

Azure applies an assignment seconds to minutes after its creation. Resources that need it depend on it.
AKS refuses a cluster until then, so its creation is retried (`propagation`). The kubelet retries pods
that mount the volume or pull from the registry.
"""

import enum

import pulumi
from pulumi_azure_native import authorization

from components.azure.names import assignment_name


class BuiltInRole(enum.Enum):
    """Built-in roles of Azure by their ids, which are the same in every tenant.

    Source: learn.microsoft.com/azure/role-based-access-control/built-in-roles.
    """

    ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
    AKS_CLUSTER_USER = "4abbcc35-e782-43d8-92c5-2d3f1bd2253f"
    AKS_RBAC_CLUSTER_ADMIN = "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"
    MANAGED_IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
    NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
    PRIVATE_DNS_ZONE_CONTRIBUTOR = "b12aa53e-6015-4669-85d0-8515ebb3ae7f"
    STORAGE_BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
    STORAGE_BLOB_DATA_READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"


def subscription_of(resource_id: str) -> str:
    """Return the subscription part of a resource id: `/subscriptions/...`.

    Raises:
        ValueError: `resource_id` is not the id of a resource in a subscription.
    """
    _, kind, subscription, *_ = [*resource_id.split("/"), "", "", ""]
    if kind.lower() != "subscriptions" or not subscription:
        raise ValueError(f"{resource_id} is not the id of a resource in a subscription")
    return f"/subscriptions/{subscription}"


def definition_id(scope: str, role: BuiltInRole) -> str:
    """Return the id of a built-in role in the subscription of `scope`, in the form that Azure returns."""
    prefix = f"{subscription_of(scope)}/providers/Microsoft.Authorization/roleDefinitions"
    return f"{prefix}/{role.value}"


def grant(
    name: str,
    role: BuiltInRole,
    *,
    scope: pulumi.Input[str],
    principal_id: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
    to_group: bool = False,
) -> authorization.RoleAssignment:
    """Assign a role to a principal on `scope`, which includes all resources below it.

    Args:
        name: logical name of the assignment.
        role: role to assign.
        scope: id of a resource.
        principal_id: object id of the principal in Entra.
        opts: options of the assignment.
        to_group: whether the principal is a group, not a service principal.
    """
    scope, principal = pulumi.Output.from_input(scope), pulumi.Output.from_input(principal_id)
    guid = pulumi.Output.all(scope, principal).apply(
        lambda ids: assignment_name(ids[0], role.value, ids[1])
    )
    return authorization.RoleAssignment(
        name,
        role_assignment_name=guid,
        role_definition_id=scope.apply(lambda id_: definition_id(id_, role)),
        scope=scope,
        principal_id=principal,
        # Without a type, Azure looks up the principal, which the directory may not have replicated yet.
        principal_type="Group" if to_group else "ServicePrincipal",
        opts=opts,
    )
