"""Blob containers that can be mounted, and the identities that may mount them. Pure.

Sources: Blob CSI driver, "static provisioning with workload identity"; Azure Storage documentation,
"Authorize access to blobs using Microsoft Entra ID".
"""

from collections.abc import Mapping
from typing import Any

from cloudtwin.providers.azure.aks_rules import POOL, subnets
from cloudtwin.providers.azure.common import is_child_of
from cloudtwin.providers.azure.identity import (
    AUDIENCE,
    BLOB_CONTRIBUTOR,
    BLOB_OWNER,
    CLUSTER,
    CREDENTIAL,
    IDENTITY,
    granted_roles,
)
from cloudtwin.providers.azure.storage import ACCOUNT, CONTAINER
from cloudtwin.providers.conditions import section
from cloudtwin.providers.inventory import Inventory, Resource


def volumes(subscription: Inventory) -> dict[str, dict[str, Any]]:
    """Return an entry for every container, by the handle that the driver's examples use."""
    result: dict[str, dict[str, Any]] = {}
    for container in subscription.all(CONTAINER):
        inputs = container.inputs
        name, storage = str(inputs["containerName"]), str(inputs["accountName"])
        accounts = subscription.where(ACCOUNT, accountName=storage)
        access, reason = _access(subscription, next(iter(accounts), None), container)
        result[f"{inputs['resourceGroupName']}#{storage}#{name}"] = {
            "folder": f"{storage}/{name}",
            "attributes": {"storageaccount": storage, "containerName": name},
            "allowed": access,
            "reason": reason,
        }
    return result


def _access(
    subscription: Inventory, storage: Resource | None, container: Resource
) -> tuple[bool | Mapping[str, list[str]], str]:
    if storage is None:
        return False, "ResourceNotFound: the storage account does not exist"
    if not _is_reachable(subscription, storage):
        return False, "AuthorizationFailure: the account's network settings exclude the nodes"
    if storage.inputs.get("enableNfsV3"):
        return True, ""
    return _federated_subjects(subscription, container), ""


def _is_reachable(subscription: Inventory, storage: Resource) -> bool:
    rules = section(storage.inputs, "networkRuleSet")
    if storage.inputs.get("publicNetworkAccess") == "Disabled":
        return False
    if rules.get("defaultAction", "Allow") == "Allow":
        return True
    allowed_subnets = {
        str(rule.get("virtualNetworkResourceId")).lower()
        for rule in rules.get("virtualNetworkRules") or ()
    }
    node_subnets = {
        subnet.lower()
        for pool in subscription.all(CLUSTER, POOL)
        for subnet in subnets(pool.inputs)
    }
    return bool(node_subnets) and node_subnets <= allowed_subnets


def _federated_subjects(subscription: Inventory, container: Resource) -> dict[str, list[str]]:
    """Return the federated subjects of each identity that may write a container's blobs, by client id."""
    issuers = {
        str(section(cluster.outputs, "oidcIssuerProfile").get("issuerURL"))
        for cluster in subscription.all(CLUSTER)
        if section(cluster.inputs, "securityProfile", "workloadIdentity").get("enabled")
    }
    result: dict[str, list[str]] = {}
    for identity in subscription.all(IDENTITY):
        roles = set(granted_roles(subscription, str(identity.outputs["principalId"]), container.id))
        if roles & {BLOB_CONTRIBUTOR, BLOB_OWNER}:
            result[str(identity.outputs["clientId"])] = [
                str(credential.inputs["subject"])
                for credential in filter(is_child_of(identity.id), subscription.all(CREDENTIAL))
                if credential.inputs["issuer"] in issuers
                and AUDIENCE in credential.inputs["audiences"]
            ]
    return result
