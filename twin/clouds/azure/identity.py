"""Azure identities and rights. Pure.

Sources: Microsoft Entra, "Workload identity federation: considerations"; Azure RBAC, "Azure built-in
roles", role assignments REST API. Read 2026-11.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from twin.clouds.azure.common import SUBSCRIPTION, TENANT, arm, guid, named, parent_of
from twin.clouds.azure.network import plain_name
from twin.clouds.model import Demand, Inputs, Making, Naming, ResourceType, Rule
from twin.clouds.rules import at
from twin.clouds.wire.check import Mistake
from twin.clouds.world import World

IDENTITY = "azure-native:managedidentity:UserAssignedIdentity"
CREDENTIAL = "azure-native:managedidentity:FederatedIdentityCredential"
ASSIGNMENT = "azure-native:authorization:RoleAssignment"
IDENTITY_PATH = "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}"
CREDENTIAL_PATH = (
    f"{IDENTITY_PATH}/federatedIdentityCredentials/{{federatedIdentityCredentialResourceName}}"
)
ASSIGNMENT_PATH = "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}"
MOST_CREDENTIALS = 20
GUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
SUBJECT = re.compile(r"system:serviceaccount:[^:]+:[^:]+")
AUDIENCE = "api://AzureADTokenExchange"
FEDERATION = "Microsoft Entra, workload identity federation"
BUILT_IN = "Azure RBAC, built-in roles"

NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
BLOB_OWNER = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
OWNER = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
ROLES = frozenset({
    NETWORK_CONTRIBUTOR, IDENTITY_OPERATOR, BLOB_CONTRIBUTOR, BLOB_OWNER, CONTRIBUTOR, OWNER,
    "7f951dda-4ed3-4680-a7ca-43fe172d538d",  # AcrPull
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


def granted(world: World, principal: str, scope: str) -> Iterator[str]:
    """Yield the roles that a principal plays on a scope, or on what it is in."""
    inside = f"{scope}/".lower()
    for each in world.all(ASSIGNMENT):
        where = f"{str(each.inputs['scope']).rstrip('/')}/".lower()
        if each.inputs["principalId"] == principal and inside.startswith(where):
            yield str(each.inputs["roleDefinitionId"]).rpartition("/")[2].lower()


def _describe_identity(making: Making) -> dict[str, Any]:
    return {
        "clientId": guid(making.id, "client", str(making.made_at)),
        "principalId": guid(making.id, "principal", str(making.made_at)),
        "tenantId": TENANT,
    }


def _credential(inputs: Inputs) -> Iterable[Mistake]:
    issuer, subject = inputs.get("issuer"), inputs.get("subject")
    if isinstance(issuer, str) and not issuer.startswith("https://"):
        yield at("issuer", f"{issuer!r} is no HTTPS address")
    if isinstance(subject, str) and not subject:
        yield at("subject", "it is empty")
    of_account = isinstance(subject, str) and subject.startswith("system:serviceaccount:")
    if of_account and not SUBJECT.fullmatch(str(subject)):
        yield at("subject", f"{subject!r} is not system:serviceaccount:NAMESPACE:NAME")
    audiences = inputs.get("audiences")
    if isinstance(audiences, list) and len(audiences) != 1:
        yield at("audiences", f"a credential has one audience, not {len(audiences)}")


def _credential_count(making: Making) -> Iterable[str]:
    beside = [
        each
        for each in making.world.all(CREDENTIAL)
        if parent_of(each.id).lower() == parent_of(making.id).lower() and each.id != making.id
    ]
    if len(beside) >= MOST_CREDENTIALS:
        yield f"an identity has at most {MOST_CREDENTIALS} federated credentials"
    for each in beside:
        if all(each.inputs[key] == making.inputs[key] for key in ("issuer", "subject")):
            yield f"issuer and subject are those of {each.name} already"


def _assignment(inputs: Inputs) -> Iterable[Mistake]:
    name, role = inputs.get("roleAssignmentName"), inputs.get("roleDefinitionId")
    principal, scope = inputs.get("principalId"), inputs.get("scope")
    if isinstance(name, str) and not GUID.fullmatch(name):
        yield at("roleAssignmentName", f"{name!r} is no GUID")
    if isinstance(principal, str) and not GUID.fullmatch(principal):
        yield at("principalId", f"{principal!r} is no object id: a GUID, not a name or client id")
    if isinstance(scope, str) and not scope.startswith("/"):
        yield at("scope", f"{scope!r} is no ARM id")
    if isinstance(role, str):
        start, _, wanted = role.rpartition("/")
        if not start.lower().endswith("/providers/microsoft.authorization/roledefinitions"):
            yield at("roleDefinitionId", f"{role!r} is no id of a role definition")
        elif wanted.lower() not in ROLES:
            yield at("roleDefinitionId", f"{wanted!r} is no built-in role that the twin knows")


def _principal_there(making: Making) -> Iterable[str]:
    """A program's identity must be there; people and groups are in a directory that the twin lacks."""
    wanted = making.inputs["principalId"]
    if making.inputs.get("principalType", "ServicePrincipal") != "ServicePrincipal":
        return
    ours = {str(each.outputs.get("principalId")) for each in making.world.all(IDENTITY)}
    own = (
        str((each.outputs.get("identity") or {}).get("principalId"))
        for each in making.world.all("azure-native:containerservice:ManagedCluster")
    )
    if wanted not in ours | set(own):
        yield f"Principal {wanted} does not exist in the directory {TENANT}"


def _once(making: Making) -> Iterable[str]:
    keys = ("scope", "principalId", "roleDefinitionId")
    mine = [str(making.inputs[key]).lower() for key in keys]
    for each in making.world.all(ASSIGNMENT):
        if each.id != making.id and mine == [str(each.inputs[key]).lower() for key in keys]:
            yield f"The role assignment already exists: {each.id}"


def _scope_there(making: Making) -> Iterable[str]:
    scope = str(making.inputs["scope"])
    whole = f"/subscriptions/{SUBSCRIPTION}".lower()
    if scope.lower().rstrip("/") != whole and making.world.find((), scope.rstrip("/")) is None:
        yield f"the scope {scope} does not exist"


RBAC = "Azure RBAC, role assignments"
TYPES = (
    ResourceType(
        token=IDENTITY,
        identify=arm(IDENTITY_PATH),
        describe=_describe_identity,
        naming=Naming(property="resourceName", longest=128),
        immutable=named(IDENTITY_PATH, "location"),
        parent=parent_of,
        rules=(plain_name("resourceName", shortest=3),),
        unique_code="Conflict",
    ),
    ResourceType(
        token=CREDENTIAL,
        identify=arm(CREDENTIAL_PATH),
        naming=Naming(property="federatedIdentityCredentialResourceName", longest=120),
        immutable=named(CREDENTIAL_PATH),
        parent=parent_of,
        rules=(
            plain_name("federatedIdentityCredentialResourceName", shortest=3),
            Rule(name="form of a federated credential", source=FEDERATION, broken=_credential),
        ),
        demands=(
            Demand(
                name="credentials of an identity",
                source=FEDERATION,
                code="Conflict",
                broken=_credential_count,
            ),
        ),
        alone=lambda inputs: f"{inputs['resourceGroupName']}/{inputs['resourceName']}",
        alone_code="ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
        unique_code="Conflict",
    ),
    ResourceType(
        token=ASSIGNMENT,
        identify=arm(ASSIGNMENT_PATH),
        naming=Naming(property="roleAssignmentName", longest=36, automatic=False),
        immutable=("scope", "principalId", "roleDefinitionId", "principalType", "condition"),
        rules=(Rule(name="form of a role assignment", source=RBAC, broken=_assignment),),
        demands=(
            Demand(
                name="scope of an assignment",
                source=RBAC,
                code="ResourceNotFound",
                broken=_scope_there,
            ),
            Demand(
                name="principal of an assignment",
                source=RBAC,
                code="PrincipalNotFound",
                broken=_principal_there,
            ),
            Demand(
                name="one assignment of a role",
                source=RBAC,
                code="RoleAssignmentExists",
                broken=_once,
            ),
        ),
        unique_code="RoleAssignmentExists",
    ),
)
