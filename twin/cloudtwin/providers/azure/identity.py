"""Azure identities, federated credentials and role assignments. Pure.

Sources: Microsoft Entra, "Workload identity federation: considerations"; Azure RBAC, "Azure built-in
roles", role assignments REST API. Read 2026-11.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from cloudtwin.accounts import AZURE_SUBSCRIPTION
from cloudtwin.providers.azure.common import (
    PLAIN_NAME,
    TENANT,
    arm_type,
    guid,
    is_child_of,
    parent_of,
)
from cloudtwin.providers.conditions import matches, section, value_rule
from cloudtwin.providers.inventory import Inventory
from cloudtwin.providers.model import Precondition, ResourceRequest

IDENTITY = "azure-native:managedidentity:UserAssignedIdentity"
CREDENTIAL = "azure-native:managedidentity:FederatedIdentityCredential"
ASSIGNMENT = "azure-native:authorization:RoleAssignment"
CLUSTER = "azure-native:containerservice:ManagedCluster"
IDENTITY_PATH = "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}"
CREDENTIAL_PATH = (
    f"{IDENTITY_PATH}/federatedIdentityCredentials/{{federatedIdentityCredentialResourceName}}"
)
ASSIGNMENT_PATH = "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}"
MAX_CREDENTIALS = 20
GUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
DEFINITIONS = "/providers/microsoft.authorization/roledefinitions"
AUDIENCE = "api://AzureADTokenExchange"
FEDERATION = "Microsoft Entra, workload identity federation"
RBAC = "Azure RBAC, role assignments"

NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
BLOB_OWNER = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
OWNER = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
PRIVATE_DNS_ZONE_CONTRIBUTOR = "b12aa53e-6015-4669-85d0-8515ebb3ae7f"
# Azure RBAC, "Azure built-in roles".
ROLES = frozenset({
    NETWORK_CONTRIBUTOR, IDENTITY_OPERATOR, BLOB_CONTRIBUTOR, BLOB_OWNER, CONTRIBUTOR, OWNER,
    ACR_PULL, PRIVATE_DNS_ZONE_CONTRIBUTOR,
    "8311e382-0749-4cb8-b61a-304f252e45ec",  # AcrPush
    "4abbcc35-e782-43d8-92c5-2d3f1bd2253f",  # Azure Kubernetes Service Cluster User Role
    "0ab0b1a8-8aac-4efd-b8c2-3ee1fb270be8",  # Azure Kubernetes Service Cluster Admin Role
    "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b",  # Azure Kubernetes Service RBAC Cluster Admin
    "3498e952-d568-435e-9b2c-8d77e338d7f7",  # Azure Kubernetes Service RBAC Admin
    "acdd72a7-3385-48ef-bd42-f606fba81ae7",  # Reader
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",  # Storage Blob Data Reader
    "17d1049b-9a84-46fb-8f53-869881c3d3ab",  # Storage Account Contributor
    "3913510d-42f4-4e42-8a64-420c390055eb",  # Monitoring Metrics Publisher
    "43d0d8ad-25c7-4714-9337-8ba259a9fe05",  # Monitoring Reader
    "b0d8363b-8ddd-447d-831f-62ca05bff136",  # Monitoring Data Reader
})  # fmt: skip


def granted_roles(subscription: Inventory, principal: str, scope: str) -> Iterator[str]:
    """Yield the roles of a principal on a scope or on a scope above it."""
    scope_prefix = f"{scope}/".lower()
    for assignment in subscription.where(ASSIGNMENT, principalId=principal):
        assigned_scope = f"{str(assignment.inputs['scope']).rstrip('/')}/".lower()
        if scope_prefix.startswith(assigned_scope):
            yield str(assignment.inputs["roleDefinitionId"]).rpartition("/")[2].lower()


# -- rules


def _subject(value: object) -> str | None:
    text = str(value)
    if not text:
        return "it is empty"
    account = re.fullmatch(r"system:serviceaccount:[^:]+:[^:]+", text)
    if text.startswith("system:serviceaccount:") and not account:
        return f"{text!r} is not system:serviceaccount:NAMESPACE:NAME"
    return None


def _one_audience(value: object) -> str | None:
    is_invalid = isinstance(value, list) and len(value) != 1
    return f"a credential has one audience, not {len(value)}" if is_invalid else None  # type: ignore[arg-type]


def _role(value: object) -> str | None:
    prefix, _, role = str(value).rpartition("/")
    if not prefix.lower().endswith(DEFINITIONS):
        return f"{value!r} is not the id of a role definition"
    return None if role.lower() in ROLES else f"{role!r} is not a built-in role that the twin has"


def _credentials(request: ResourceRequest) -> Iterable[str]:
    others = list(filter(is_child_of(parent_of(request.id)), request.others(CREDENTIAL)))
    if len(others) >= MAX_CREDENTIALS:
        yield f"an identity has at most {MAX_CREDENTIALS} federated credentials"
    for other in others:
        if all(other.inputs[key] == request.inputs[key] for key in ("issuer", "subject")):
            yield f"{other.name} already has this issuer and subject"


def _principal_exists(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a missing service principal; users and groups are in a directory that the twin lacks."""
    principal_id = request.inputs["principalId"]
    if request.inputs.get("principalType", "ServicePrincipal") != "ServicePrincipal":
        return
    identities = {
        str(identity.outputs.get("principalId")) for identity in request.account.all(IDENTITY)
    }
    clusters = {
        str(principal)
        for cluster in request.account.all(CLUSTER)
        for principal in (
            section(cluster.outputs, "identity").get("principalId"),
            section(cluster.outputs, "identityProfile", "kubeletidentity").get("objectId"),
        )
    }
    if principal_id not in identities | clusters:
        yield f"Principal {principal_id} does not exist in the directory {TENANT}"


def _assigned_once(request: ResourceRequest) -> Iterable[str]:
    keys = ("scope", "principalId", "roleDefinitionId")
    declared_values = [str(request.inputs[key]).lower() for key in keys]
    for assignment in request.others(ASSIGNMENT):
        if declared_values == [str(assignment.inputs[key]).lower() for key in keys]:
            yield f"The role assignment already exists: {assignment.id}"


def _scope_exists(request: ResourceRequest) -> Iterable[str]:
    scope = str(request.inputs["scope"]).rstrip("/")
    subscription = f"/subscriptions/{AZURE_SUBSCRIPTION}"
    if scope.lower() != subscription.lower() and request.account.find((), scope) is None:
        yield f"the scope {request.inputs['scope']} does not exist"


def _describe_identity(request: ResourceRequest) -> dict[str, Any]:
    return {
        "clientId": guid(request.id, "client", str(request.created_at)),
        "principalId": guid(request.id, "principal", str(request.created_at)),
        "tenantId": TENANT,
    }


TYPES = (
    arm_type(
        IDENTITY, IDENTITY_PATH, 128, "location", name=(PLAIN_NAME, 3), describe=_describe_identity
    ),
    arm_type(
        CREDENTIAL, CREDENTIAL_PATH, 120, name=(PLAIN_NAME, 3),
        rules=(
            value_rule("issuer of a credential", "issuer",
                       matches("https://.*", "is not an HTTPS address"), FEDERATION),
            value_rule("subject of a credential", "subject", _subject, FEDERATION),
            value_rule("audience of a credential", "audiences", _one_audience, FEDERATION),
        ),
        preconditions=(
            Precondition("credentials of an identity", FEDERATION, "Conflict", _credentials),
        ),
        exclusive_key=lambda inputs: f"{inputs['resourceGroupName']}/{inputs['resourceName']}",
        exclusive_code="ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
    ),
    arm_type(
        ASSIGNMENT, ASSIGNMENT_PATH, 36, "principalId", "roleDefinitionId", "principalType",
        "condition",
        name=None, generated=False, parent=None,
        rules=(
            value_rule("name of an assignment", "roleAssignmentName",
                       matches(GUID.pattern, "is not a GUID", re.IGNORECASE), RBAC),
            value_rule("principal id of an assignment", "principalId",
                       matches(GUID.pattern, "is not an object id: a GUID, not a name or client id",
                               re.IGNORECASE), RBAC),
            value_rule("scope id of an assignment", "scope", matches("/.*", "is not an ARM id"), RBAC),
            value_rule("role of an assignment", "roleDefinitionId", _role, RBAC),
        ),
        preconditions=(
            Precondition("scope of an assignment", RBAC, "ResourceNotFound", _scope_exists),
            Precondition("principal of an assignment", RBAC, "PrincipalNotFound", _principal_exists),
            Precondition("one assignment of a role", RBAC, "RoleAssignmentExists", _assigned_once),
        ),
        unique_code="RoleAssignmentExists",
    ),
)  # fmt: skip
