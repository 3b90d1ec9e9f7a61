"""Functions of the Azure provider. Pure."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from cloudtwin.accounts import AZURE_SUBSCRIPTION
from cloudtwin.providers.azure.aks_rules import BAD_REQUEST, CLUSTER_PATH
from cloudtwin.providers.azure.common import CALLER, TENANT, arm_id, lookup
from cloudtwin.providers.azure.identity import CLUSTER
from cloudtwin.providers.errors import CloudError
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import Function, Inputs, ProviderConfig, ResourceType
from cloudtwin.providers.protocol.values import Object, Secret

SERVER_APPLICATION = "6dae42f8-4368-4678-94ff-3960e28e3630"  # AKS's own, the same in every tenant
CLIENT_APPLICATION = "80faf920-1908-4b52-b5ef-a8e7bedfc67a"
LOGIN = ("get-token", "--login", "devicecode", "--server-id", SERVER_APPLICATION, "--client-id",
         CLIENT_APPLICATION, "--tenant-id", TENANT, "--environment", "AzurePublicCloud")  # fmt: skip


def client_config(_arguments: Inputs, _config: ProviderConfig, _account: Inventory) -> Object:
    """Return the ids of the caller, its subscription and its tenant."""
    return {
        "clientId": CALLER,
        "objectId": CALLER,
        "subscriptionId": AZURE_SUBSCRIPTION,
        "tenantId": TENANT,
    }


def user_credentials(arguments: Inputs, _config: ProviderConfig, subscription: Inventory) -> Object:
    """Return the kubeconfig of a cluster; it has no credential, only the command that fetches a credential.

    Raises:
        CloudError: the cluster does not exist.
    """
    resource_id = arm_id(CLUSTER_PATH, arguments)
    resource = subscription.find((CLUSTER,), resource_id)
    if resource is None:
        raise CloudError("ResourceNotFound", f"the subscription has no {resource_id}")
    name = str(arguments["resourceName"])
    user = f"clusterUser_{arguments['resourceGroupName']}_{name}"
    text = base64.b64encode(json.dumps(_kubeconfig(resource, name, user)).encode()).decode()
    return {"kubeconfigs": [{"name": "clusterUser", "value": Secret(text)}]}


def _kubeconfig(cluster: Resource, name: str, user: str) -> dict[str, Any]:
    command = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "kubelogin",
        "args": list(LOGIN),
        "env": None,
        "provideClusterInfo": False,
        "installHint": "kubelogin is not installed",
    }
    endpoint = {
        "server": cluster.private.get("address", ""),
        "certificate-authority-data": cluster.private.get("authority", ""),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": endpoint}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
        "users": [{"name": user, "user": {"exec": command}}],
    }


def admin_credentials(
    arguments: Inputs, _config: ProviderConfig, subscription: Inventory
) -> Object:
    """Refuse: the twin issues no administrator credentials.

    Raises:
        CloudError: always.
    """
    resource = subscription.find((CLUSTER,), arm_id(CLUSTER_PATH, arguments))
    if resource and resource.inputs.get("disableLocalAccounts"):
        reason = "Getting static credential is not allowed because this cluster is set to disable local accounts."
        raise CloudError(BAD_REQUEST, reason)
    raise CloudError(BAD_REQUEST, "the twin issues user credentials only")


def account_keys(arguments: Inputs, _config: ProviderConfig, _account: Inventory) -> Object:
    """Refuse: the twin's accounts have no shared keys.

    Raises:
        CloudError: always.
    """
    name = arguments.get("accountName")
    raise CloudError("KeyBasedAuthenticationNotPermitted", f"the account {name} has no shared keys")


def functions(types: Mapping[str, ResourceType]) -> dict[str, Function]:
    """Return all functions: a lookup for each type, and a few more."""
    result: dict[str, Function] = {}
    for token, resource_type in types.items():
        start, _, name = token.rpartition(":")
        result[f"{start}:get{name}"] = lookup(resource_type)
    credentials = "azure-native:containerservice:listManagedCluster"
    return {
        **result,
        "azure-native:authorization:getClientConfig": client_config,
        f"{credentials}UserCredentials": user_credentials,
        f"{credentials}AdminCredentials": admin_credentials,
        "azure-native:storage:listStorageAccountKeys": account_keys,
    }
