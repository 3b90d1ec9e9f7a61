"""The functions of the Azure provider that programs call. Pure."""

import base64
import json
from collections.abc import Mapping

from twin.clouds.azure.aks_rules import CLUSTER, CLUSTER_PATH
from twin.clouds.azure.common import CALLER, SUBSCRIPTION, TENANT, arm_id, looked_up
from twin.clouds.catalog import Function
from twin.clouds.errors import CloudError
from twin.clouds.model import Inputs, ResourceType, Settings
from twin.clouds.world import World
from twin.pulumi.provider.convert import Object, Secret

SERVER_APPLICATION = "6dae42f8-4368-4678-94ff-3960e28e3630"  # AKS's own, the same in every tenant
CLIENT_APPLICATION = "80faf920-1908-4b52-b5ef-a8e7bedfc67a"


def client_config(_arguments: Inputs, _settings: Settings, _world: World) -> Object:
    """Say who asks."""
    return {
        "clientId": CALLER,
        "objectId": CALLER,
        "subscriptionId": SUBSCRIPTION,
        "tenantId": TENANT,
    }


def user_credentials(arguments: Inputs, _settings: Settings, world: World) -> Object:
    """Write the kubeconfig of a cluster; it holds no credential, only whom to ask for one."""
    identity = arm_id(CLUSTER_PATH, arguments)
    found = world.find((CLUSTER,), identity)
    if found is None:
        raise CloudError("ResourceNotFound", f"the account has no {identity}")
    name = str(arguments["resourceName"])
    login = ["get-token", "--login", "devicecode", "--server-id", SERVER_APPLICATION,
             "--client-id", CLIENT_APPLICATION, "--tenant-id", TENANT, "--environment",
             "AzurePublicCloud"]  # fmt: skip
    ask = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "kubelogin",
        "args": login,
        "env": None,
        "provideClusterInfo": False,
        "installHint": "kubelogin is not installed",
    }
    user = f"clusterUser_{arguments['resourceGroupName']}_{name}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": found.notes.get("address", ""),
                    "certificate-authority-data": found.notes.get("authority", ""),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
        "users": [{"name": user, "user": {"exec": ask}}],
    }
    text = base64.b64encode(json.dumps(config).encode()).decode()
    return {"kubeconfigs": [{"name": "clusterUser", "value": Secret(text)}]}


def admin_credentials(arguments: Inputs, _settings: Settings, world: World) -> Object:
    """Refuse: without local accounts there is no administrator, and the twin hands none out."""
    found = world.find((CLUSTER,), arm_id(CLUSTER_PATH, arguments))
    if found and found.inputs.get("disableLocalAccounts"):
        why = "Getting static credential is not allowed because this cluster is set to disable local accounts."
        raise CloudError(BAD, why)
    raise CloudError(BAD, "the twin hands out user credentials only")


def account_keys(arguments: Inputs, _settings: Settings, _world: World) -> Object:
    """Refuse where keys are switched off; the twin's accounts have none otherwise either."""
    name = arguments.get("accountName")
    raise CloudError("KeyBasedAuthenticationNotPermitted", f"the account {name} has no shared keys")


BAD = "BadRequest"


def functions(types: Mapping[str, ResourceType]) -> dict[str, Function]:
    """Return all functions: one that looks each type up, and a few more."""
    found: dict[str, Function] = {}
    for token, kind in types.items():
        start, _, name = token.rpartition(":")
        found[f"{start}:get{name}"] = looked_up(kind)
    credentials = "azure-native:containerservice:listManagedCluster"
    return {
        **found,
        "azure-native:authorization:getClientConfig": client_config,
        f"{credentials}UserCredentials": user_credentials,
        f"{credentials}AdminCredentials": admin_credentials,
        "azure-native:storage:listStorageAccountKeys": account_keys,
    }
