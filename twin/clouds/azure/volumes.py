"""Which containers can be mounted, and by whom. Pure.

Sources: Blob CSI driver, "static provisioning with workload identity"; Azure Storage documentation,
"Authorize access to blobs using Microsoft Entra ID".
"""

from collections.abc import Mapping
from typing import Any

from twin.clouds.azure.aks_rules import CLUSTER, POOL, subnets
from twin.clouds.azure.common import parent_of
from twin.clouds.azure.identity import (
    AUDIENCE,
    BLOB_CONTRIBUTOR,
    BLOB_OWNER,
    CREDENTIAL,
    IDENTITY,
    granted,
)
from twin.clouds.azure.storage import ACCOUNT, CONTAINER
from twin.clouds.world import Resource, World


def volumes(world: World) -> dict[str, dict[str, Any]]:
    """Return an entry for every container, under the handle that the driver's examples use."""
    found: dict[str, dict[str, Any]] = {}
    for container in world.all(CONTAINER):
        given = container.inputs
        name, account_name = str(given["containerName"]), str(given["accountName"])
        handle = f"{given['resourceGroupName']}#{account_name}#{name}"
        account = next(
            (each for each in world.all(ACCOUNT) if each.inputs["accountName"] == account_name),
            None,
        )
        allowed, reason = _allowed(world, account, container)
        found[handle] = {
            "folder": f"{account_name}/{name}",
            "attributes": {"storageaccount": account_name, "containerName": name},
            "allowed": allowed,
            "reason": reason,
        }
    return found


def _allowed(
    world: World, account: Resource | None, container: Resource
) -> tuple[bool | Mapping[str, list[str]], str]:
    if account is None:
        return False, "ResourceNotFound: the storage account is gone"
    if not _reachable(world, account):
        why = "AuthorizationFailure: the account's network rules do not let the nodes' subnet in"
        return False, why
    if account.inputs.get("enableNfsV3"):
        return True, ""
    return _federated(world, container), ""


def _reachable(world: World, account: Resource) -> bool:
    rules = account.inputs.get("networkRuleSet") or {}
    if account.inputs.get("publicNetworkAccess") == "Disabled":
        return False
    if rules.get("defaultAction", "Allow") == "Allow":
        return True
    allowed = {
        str(each.get("virtualNetworkResourceId")).lower()
        for each in rules.get("virtualNetworkRules") or ()
    }
    nodes = {each.lower() for pool in world.all(CLUSTER, POOL) for each in subnets(pool.inputs)}
    return bool(nodes) and nodes <= allowed


def _federated(world: World, container: Resource) -> dict[str, list[str]]:
    """Return, by client id, the ServiceAccounts whose tokens stand for an identity with the right."""
    issuers = {
        str((each.outputs.get("oidcIssuerProfile") or {}).get("issuerURL"))
        for each in world.all(CLUSTER)
        if ((each.inputs.get("securityProfile") or {}).get("workloadIdentity") or {}).get("enabled")
    }
    found: dict[str, list[str]] = {}
    for identity in world.all(IDENTITY):
        roles = set(granted(world, str(identity.outputs["principalId"]), container.id))
        if roles & {BLOB_CONTRIBUTOR, BLOB_OWNER}:
            found[str(identity.outputs["clientId"])] = [
                str(each.inputs["subject"])
                for each in world.all(CREDENTIAL)
                if parent_of(each.id).lower() == identity.id.lower()
                and each.inputs["issuer"] in issuers
                and AUDIENCE in each.inputs["audiences"]
            ]
    return found
