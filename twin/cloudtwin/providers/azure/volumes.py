"""Containers that can be mounted, and the identities that may mount them. Pure.

Sources: Blob CSI driver, "static provisioning with workload identity"; Azure Storage documentation,
"Authorize access to blobs using Microsoft Entra ID".
"""

from collections.abc import Mapping
from typing import Any

from cloudtwin.providers.azure.aks_rules import POOL, subnets
from cloudtwin.providers.azure.common import below
from cloudtwin.providers.azure.identity import (
    AUDIENCE,
    BLOB_CONTRIBUTOR,
    BLOB_OWNER,
    CLUSTER,
    CREDENTIAL,
    IDENTITY,
    granted,
)
from cloudtwin.providers.azure.storage import ACCOUNT, CONTAINER
from cloudtwin.providers.conditions import section
from cloudtwin.providers.inventory import Inventory, Resource


def volumes(account: Inventory) -> dict[str, dict[str, Any]]:
    """Return an entry for every container, by the handle that the driver's examples use."""
    found: dict[str, dict[str, Any]] = {}
    for container in account.all(CONTAINER):
        inputs = container.inputs
        name, storage = str(inputs["containerName"]), str(inputs["accountName"])
        accounts = account.where(ACCOUNT, accountName=storage)
        allowed, reason = _allowed(account, next(iter(accounts), None), container)
        found[f"{inputs['resourceGroupName']}#{storage}#{name}"] = {
            "folder": f"{storage}/{name}",
            "attributes": {"storageaccount": storage, "containerName": name},
            "allowed": allowed,
            "reason": reason,
        }
    return found


def _allowed(
    account: Inventory, storage: Resource | None, container: Resource
) -> tuple[bool | Mapping[str, list[str]], str]:
    if storage is None:
        return False, "ResourceNotFound: the storage account does not exist"
    if not _reachable(account, storage):
        return False, "AuthorizationFailure: the account's network rules exclude the nodes' subnet"
    if storage.inputs.get("enableNfsV3"):
        return True, ""
    return _federated(account, container), ""


def _reachable(account: Inventory, storage: Resource) -> bool:
    rules = section(storage.inputs, "networkRuleSet")
    if storage.inputs.get("publicNetworkAccess") == "Disabled":
        return False
    if rules.get("defaultAction", "Allow") == "Allow":
        return True
    allowed = {
        str(each.get("virtualNetworkResourceId")).lower()
        for each in rules.get("virtualNetworkRules") or ()
    }
    nodes = {each.lower() for pool in account.all(CLUSTER, POOL) for each in subnets(pool.inputs)}
    return bool(nodes) and nodes <= allowed


def _federated(account: Inventory, container: Resource) -> dict[str, list[str]]:
    """Return, by client id, the ServiceAccounts that may act as an identity with the role."""
    issuers = {
        str(section(each.outputs, "oidcIssuerProfile").get("issuerURL"))
        for each in account.all(CLUSTER)
        if section(each.inputs, "securityProfile", "workloadIdentity").get("enabled")
    }
    found: dict[str, list[str]] = {}
    for identity in account.all(IDENTITY):
        roles = set(granted(account, str(identity.outputs["principalId"]), container.id))
        if roles & {BLOB_CONTRIBUTOR, BLOB_OWNER}:
            found[str(identity.outputs["clientId"])] = [
                str(each.inputs["subject"])
                for each in filter(below(identity.id), account.all(CREDENTIAL))
                if each.inputs["issuer"] in issuers and AUDIENCE in each.inputs["audiences"]
            ]
    return found
