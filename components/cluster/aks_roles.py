"""Rights on Azure: the built-in roles that Everstep gives, and how one is given.

Azure applies an assignment seconds to minutes after it is made. Whatever needs one is declared
after it, so that the delay falls into the creation of something else and not into a refusal.
"""

import enum

import pulumi
from pulumi_azure_native import authorization

from components.cluster.aks_names import assignment_name


class Role(enum.Enum):
    """Azure's built-in roles by their ids, which are the same in every tenant.

    Source: learn.microsoft.com/azure/role-based-access-control/built-in-roles.
    """

    ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
    AKS_CLUSTER_USER = "4abbcc35-e782-43d8-92c5-2d3f1bd2253f"
    AKS_RBAC_CLUSTER_ADMIN = "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"
    MANAGED_IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
    NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
    STORAGE_BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"


def subscription_of(resource_id: str) -> str:
    """Give the subscription's part of a resource's id: `/subscriptions/...`.

    Raises:
        ValueError: it is no id of something in a subscription.
    """
    _, kind, subscription, *_ = [*resource_id.split("/"), "", "", ""]
    if kind.lower() != "subscriptions" or not subscription:
        raise ValueError(f"{resource_id} is no id of a resource in a subscription")
    return f"/subscriptions/{subscription}"


def definition_id(scope: str, role: Role) -> str:
    """Give a built-in role's id as Azure answers it for assignments on `scope`."""
    prefix = f"{subscription_of(scope)}/providers/Microsoft.Authorization/roleDefinitions"
    return f"{prefix}/{role.value}"


def grant(
    name: str,
    role: Role,
    *,
    scope: pulumi.Output[str],
    principal_id: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
    to_group: bool = False,
) -> authorization.RoleAssignment:
    """Let a principal play a role on `scope`, and on all that is below it.

    Args:
        name: the assignment's name in the stack.
        role: what it may do.
        scope: id of the resource on which.
        principal_id: the principal's object id in Entra.
        opts: of the assignment.
        to_group: whether the principal is a group of people, not an identity of a program.
    """
    principal = pulumi.Output.from_input(principal_id)
    guid = pulumi.Output.all(scope, principal).apply(
        lambda said: assignment_name(said[0], role.value, said[1])
    )
    return authorization.RoleAssignment(
        name,
        role_assignment_name=guid,
        role_definition_id=scope.apply(lambda said: definition_id(said, role)),
        scope=scope,
        principal_id=principal,
        # Said, Azure does not look for the principal in a directory that may not know it yet.
        principal_type="Group" if to_group else "ServicePrincipal",
        opts=opts,
    )
