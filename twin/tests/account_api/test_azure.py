"""The twin's Azure: responses in the shape of the SDK's models, and requests that Azure refuses."""

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from azure.mgmt.compute import models as compute
from azure.mgmt.containerregistry import models as containerregistry
from azure.mgmt.containerservice import models as containerservice
from azure.mgmt.keyvault import models as keyvault
from azure.mgmt.resource.resources import models as resources
from azure.mgmt.resource.subscriptions import models as subscriptions
from azure.mgmt.storage import models as storage
from cloudtwin.accounts import AZURE_SUBSCRIPTION
from cloudtwin.providers.account import Account
from cloudtwin.providers.azure.common import GROUP, TENANT
from cloudtwin.providers.azure.identity import CLUSTER
from cloudtwin.providers.azure.storage import ACCOUNT, CONTAINER, REGISTRY
from cloudtwin.providers.inventory import Resource

from twin.tests.account_api.azure import (
    OPERATIONS,
    AzureApi,
    AzureError,
    AzureRequest,
    SubscriptionFacts,
)
from twin.tests.account_api.azure_https import AzureHosts

ROOT = f"/subscriptions/{AZURE_SUBSCRIPTION}"
TEAM = f"{ROOT}/resourceGroups/team"
CLUSTER_PATH = f"{TEAM}/providers/Microsoft.ContainerService/managedClusters/one"
ACCOUNT_PATH = f"{TEAM}/providers/Microsoft.Storage/storageAccounts/data"
CONTAINER_PATH = f"{ACCOUNT_PATH}/blobServices/default/containers/photos"
REGISTRY_PATH = f"{TEAM}/providers/Microsoft.ContainerRegistry/registries/images"
VERSION = {"api-version": "2026-01-01"}
FACTS = SubscriptionFacts(
    restricted=frozenset({("Standard_D4s_v5", "1"), ("Standard_D2s_v5", "")}),
    deleted_vaults=frozenset({"old"}),
)
EASTUS = {"$filter": "location eq 'eastus'"}
STORAGE_NAME = {"name": "data", "type": "Microsoft.Storage/storageAccounts"}
REGISTRY_NAME = {"name": "new", "type": "Microsoft.ContainerRegistry/registries"}

ItemKey = str
# request -> (model of the response or of each item, key of the items or empty, query, body)
SHAPES: dict[str, tuple[type[Any], ItemKey, Mapping[str, str], Mapping[str, str]]] = {
    f"GET {ROOT}": (subscriptions.Subscription, "", {}, {}),
    f"GET {ROOT}/providers": (resources.Provider, "value", {}, {}),
    f"GET {TEAM}": (resources.ResourceGroup, "", {}, {}),
    f"GET {ROOT}/providers/Microsoft.Compute/skus": (compute.ResourceSku, "value", EASTUS, {}),
    f"GET {ROOT}/providers/Microsoft.Compute/locations/eastus/usages":
        (compute.Usage, "value", {}, {}),
    f"GET {ROOT}/providers/Microsoft.ContainerService/locations/eastus/kubernetesVersions":
        (containerservice.KubernetesVersion, "values", {}, {}),
    f"GET {CLUSTER_PATH}": (containerservice.ManagedCluster, "", {}, {}),
    f"GET {ACCOUNT_PATH}": (storage.StorageAccount, "", {}, {}),
    f"GET {CONTAINER_PATH}": (storage.BlobContainer, "", {}, {}),
    f"GET {REGISTRY_PATH}": (containerregistry.Registry, "", {}, {}),
    f"POST {ROOT}/providers/Microsoft.Storage/checkNameAvailability":
        (storage.CheckNameAvailabilityResult, "", {}, STORAGE_NAME),
    f"POST {ROOT}/providers/Microsoft.ContainerRegistry/checkNameAvailability":
        (containerregistry.RegistryNameStatus, "", {}, REGISTRY_NAME),
    f"GET {ROOT}/providers/Microsoft.KeyVault/deletedVaults": (keyvault.DeletedVault, "value", {}, {}),
}  # fmt: skip
ACTION_WITHOUT_MODEL = "Microsoft.Authorization/permissions/read"
"""The SDK has no operation for the permissions in a subscription."""


@pytest.fixture
def api(tmp_path: Path) -> AzureApi:
    """Return the APIs of a subscription with one resource of each kind."""
    inputs: dict[str, dict[str, Any]] = {
        GROUP: {"tags": {"stack": "dev"}},
        ACCOUNT: {"accountName": "data"},
    }
    paths = {
        GROUP: TEAM,
        CLUSTER: CLUSTER_PATH,
        ACCOUNT: ACCOUNT_PATH,
        CONTAINER: CONTAINER_PATH,
        REGISTRY: REGISTRY_PATH,
    }
    with Account(tmp_path, "azure-native").transaction() as transaction:
        for token, path in paths.items():
            resource_inputs = inputs.get(token, {})
            resource = Resource(
                token=token, id=path, urn="", inputs=resource_inputs, outputs={}, ready=True
            )
            transaction.put(resource)
    return AzureApi(tmp_path, FACTS)


def unknown_keys(model: Any, value: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the keys of a response that its model does not have."""
    fields = {field._rest_name: name for name, field in type(model)._attr_to_rest_field.items()}
    for key, inner in value.items():
        key_path = f"{path}.{key}"
        if key not in fields:
            yield key_path
            continue
        attribute = getattr(model, fields[key])
        models = attribute if isinstance(attribute, list) else [attribute]
        values = inner if isinstance(inner, list) else [inner]
        for inner_model, inner_value in zip(models, values, strict=False):
            if hasattr(type(inner_model), "_attr_to_rest_field"):
                yield from unknown_keys(inner_model, inner_value, key_path)


@pytest.mark.parametrize("request_line", SHAPES)
def test_a_response_has_only_keys_of_its_model(api: AzureApi, request_line: str) -> None:
    model, item_key, query, body = SHAPES[request_line]
    method, _, path = request_line.partition(" ")

    response = api.manage(AzureRequest(method, path, {**VERSION, **query}, body))

    values = response[item_key] if item_key else [response]
    assert values, "an empty list proves nothing"
    for value in values:
        assert list(unknown_keys(model(value), value)) == []


def test_every_operation_has_a_test_of_its_shape() -> None:
    tested_actions = {
        action
        for method, pattern, action in OPERATIONS
        for line in SHAPES
        if line.startswith(f"{method} ")
        and re.fullmatch(re.escape(ROOT) + pattern, line.partition(" ")[2], re.IGNORECASE)
    }

    assert tested_actions | {ACTION_WITHOUT_MODEL} == {action for _, _, action in OPERATIONS}


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        (ROOT, {}, "MissingApiVersionParameter"),
        (ROOT, {"api-version": "latest"}, "InvalidApiVersionParameter"),
        ("/subscriptions/none", VERSION, "SubscriptionNotFound"),
        (f"{ROOT}/providers/Microsoft.Compute/disks", VERSION, "InvalidResourceType"),
        (f"{ROOT}/providers/Microsoft.Compute/skus", VERSION, "InvalidFilter"),
        (f"{ROOT}/resourceGroups/none", VERSION, "ResourceGroupNotFound"),
    ],
)
def test_a_wrong_request_is_refused_with_azures_code(
    api: AzureApi, path: str, query: Mapping[str, str], code: str
) -> None:
    with pytest.raises(AzureError) as error:
        api.manage(AzureRequest("GET", path, query, {}))

    assert error.value.code == code


def test_the_response_for_a_taken_name_has_the_reason(api: AzureApi) -> None:
    path = f"{ROOT}/providers/Microsoft.Storage/checkNameAvailability"
    response = api.manage(AzureRequest("POST", path, VERSION, STORAGE_NAME))

    assert (response["nameAvailable"], response["reason"]) == (False, "AlreadyExists")


@pytest.mark.parametrize("token", ["", "Bearer none", "Bearer a.b.c"])
def test_a_request_without_an_entra_token_is_refused(api: AzureApi, token: str) -> None:
    headers = {"Authorization": token}
    url = f"{ROOT}?api-version=2022-12-01"
    response = AzureHosts(api).respond("management.azure.com", "GET", url, headers, b"")

    assert response.status is HTTPStatus.UNAUTHORIZED


def test_a_token_for_one_host_is_not_accepted_by_another(api: AzureApi) -> None:
    hosts = AzureHosts(api)
    form = b"client_secret=secret&scope=https%3A%2F%2Fgraph.microsoft.com%2F.default"
    path = f"/{TENANT}/oauth2/v2.0/token"
    token: Any = hosts.respond("login.microsoftonline.com", "POST", path, {}, form).content
    headers = {"Authorization": f"Bearer {token['access_token']}"}
    members = f"/v1.0/directoryObjects/{FACTS.caller}/checkMemberGroups"
    url = f"{ROOT}?api-version=2026-01-01"

    accepted = hosts.respond("graph.microsoft.com", "POST", members, headers, b'{"groupIds": []}')
    refused = hosts.respond("management.azure.com", "GET", url, headers, b"")

    assert (accepted.status, refused.status) == (HTTPStatus.OK, HTTPStatus.UNAUTHORIZED)


def test_a_registry_requires_a_token_and_names_its_token_endpoint(api: AzureApi) -> None:
    path = "/acr/v1/everstep/trainer/_tags/1.0"
    response = AzureHosts(api).respond("images.azurecr.io", "GET", path, {}, b"")

    assert response.status is HTTPStatus.UNAUTHORIZED
    assert 'realm="https://images.azurecr.io/oauth2/token"' in response.headers["WWW-Authenticate"]
