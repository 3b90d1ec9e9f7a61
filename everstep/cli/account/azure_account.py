"""An Azure subscription as `everstep doctor` reads it, through Azure's SDK. No request changes anything.

Requests go to the public cloud. Credentials and subscription come from the places that Pulumi's provider reads:
the ARM_* variables, else the login of `az`.
"""

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from everstep.cli.account.azure_login import TRANSPORT, credential, subscription_of_cli
from everstep.cli.account.checks import RequestError
from everstep.optional_packages import AZURE_SDK

ARM, GRAPH = "https://management.azure.com", "https://graph.microsoft.com"
PROVIDERS_VERSION = "2022-09-01"
PERMISSIONS_VERSION = "2022-04-01"
LOGIN_ACTION = "an Entra token"
T = TypeVar("T")


@dataclass(frozen=True)
class Login:
    """The identity that sends the requests.

    Attributes:
        object_id: object id of the user, service principal or managed identity.
        tenant: id of its tenant.
        name: its name for the user.
    """

    object_id: str
    tenant: str
    name: str


@dataclass(frozen=True)
class Subscription:
    """A subscription.

    Attributes:
        id: its id, a GUID.
        name: its display name.
        state: state, such as `Enabled`.
        offer: quota id of its offer, such as `PayAsYouGo_2014-09-01`.
    """

    id: str
    name: str
    state: str
    offer: str


@dataclass(frozen=True)
class SizeOffer:
    """A VM size in a location.

    Attributes:
        family: name of its quota.
        vcpus: virtual CPUs.
        zones: zones in which the subscription may use it.
        restriction: reason why the subscription cannot use the size in the location; empty if it can.
        spot: True if spot machines can have this size.
    """

    family: str
    vcpus: int
    zones: frozenset[str]
    restriction: str
    spot: bool


@dataclass(frozen=True)
class UsageQuota:
    """A quota of a location.

    Attributes:
        label: name for the user.
        limit: allowed amount, such as vCPUs.
        used: amount in use.
    """

    label: str
    limit: int
    used: int


@dataclass(frozen=True)
class Permission:
    """Actions that one role allows the caller, and actions that it excludes."""

    actions: tuple[str, ...]
    excluded: tuple[str, ...]


class AzureAccount:
    """A subscription in one location. Close it after use."""

    def __init__(self, location: str, subscription: str | None) -> None:
        """Prepare the clients; this sends no request.

        Args:
            location: Azure location.
            subscription: id of the subscription; None: the subscription of the environment or of `az`.

        Raises:
            EverstepError: Azure's SDK is not installed.
            RequestError: an ARM_* variable is invalid, such as the tenant id.
        """
        try:
            import azure.identity
            import azure.mgmt.core  # noqa: F401
        except ModuleNotFoundError:
            raise AZURE_SDK.missing_error(
                "the checks of an Azure subscription need Azure's SDK"
            ) from None
        self.location = location
        self._configured_subscription = subscription
        self._open = ExitStack()
        self._clients: dict[type[Any], Any] = {}
        try:
            self._credential = credential()
        except ValueError as error:
            raise RequestError(LOGIN_ACTION, type(error).__name__, str(error)) from None

    def close(self) -> None:
        """Close all connections."""
        self._open.close()
        close = getattr(self._credential, "close", None)
        if close:
            close()

    # -- requests

    def _call(self, action: str, request: Callable[[], T]) -> T:
        """Return the result of a request.

        Args:
            action: permission that the request needs, as Azure names it.
            request: function that sends the request.

        Raises:
            RequestError: the request was refused, or there was no response.
        """
        from azure.core.exceptions import AzureError, HttpResponseError

        try:
            return request()
        except HttpResponseError as error:
            code = (error.error and error.error.code) or error.status_code or type(error).__name__
            detail = (error.error and error.error.message) or str(error)
            raise RequestError(action, str(code), _first_line(detail)) from None
        except AzureError as error:
            raise RequestError(action, type(error).__name__, _first_line(str(error))) from None

    def _call_if_exists(self, action: str, request: Callable[[], T]) -> T | None:
        """Return the result of a request; None if the resource does not exist."""
        from azure.core.exceptions import ResourceNotFoundError

        def find() -> T | None:
            try:
                return request()
            except ResourceNotFoundError:
                return None

        return self._call(action, find)

    def _client(self, kind: type[Any], *arguments: object) -> Any:  # noqa: ANN401  a client of the SDK
        """Return the client of a service, which is opened once."""
        if kind not in self._clients:
            client = kind(self._credential, *arguments, **TRANSPORT)
            self._clients[kind] = self._open.enter_context(client)
        return self._clients[kind]

    def _send(self, base: str, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  JSON
        """Return the response to a request that no SDK client offers."""
        from azure.core.pipeline.policies import BearerTokenCredentialPolicy
        from azure.core.rest import HttpRequest
        from azure.mgmt.core import ARMPipelineClient
        from azure.mgmt.core.policies import ARMHttpLoggingPolicy

        login = BearerTokenCredentialPolicy(self._credential, f"{base}/.default")
        policies = [login, ARMHttpLoggingPolicy()]
        with ARMPipelineClient(base, policies=policies, **TRANSPORT) as client:
            response = client.send_request(HttpRequest(method, path, json=body))
            response.raise_for_status()
            return response.json()

    # -- identity and subscription

    @cached_property
    def login(self) -> Login:
        """The identity of the credentials, from its access token for Resource Manager."""
        token = self._call(
            LOGIN_ACTION, lambda: self._credential.get_token(f"{ARM}/.default").token
        )
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        names = (claims.get(key) for key in ("upn", "unique_name", "app_displayname", "appid"))
        name = next((str(name) for name in names if name), str(claims["oid"]))
        return Login(str(claims["oid"]), str(claims["tid"]), name)

    @cached_property
    def subscription_id(self) -> str:
        """Id of the subscription.

        Raises:
            RequestError: no subscription is configured.
        """
        subscription_id = (
            self._configured_subscription
            or os.environ.get("ARM_SUBSCRIPTION_ID")
            or subscription_of_cli()
        )
        if not subscription_id:
            problem = "no subscription is configured"
            raise RequestError("Microsoft.Resources/subscriptions/read", "NoSubscription", problem)
        return subscription_id

    @cached_property
    def subscription(self) -> Subscription:
        """The subscription."""
        from azure.mgmt.resource.subscriptions import SubscriptionClient

        client = self._client(SubscriptionClient)
        response = self._call(
            "Microsoft.Resources/subscriptions/read",
            lambda: client.subscriptions.get(self.subscription_id),
        )
        policies = response.subscription_policies
        offer = str(policies.quota_id or "") if policies else ""
        return Subscription(
            self.subscription_id, str(response.display_name), _text(response.state), offer
        )

    def kinds_in_directory(self, object_ids: Sequence[str]) -> dict[str, str]:
        """Return the kind of each object that the tenant has: `group`, `user`, ..."""
        body = {"ids": list(object_ids)}
        path = f"{GRAPH}/v1.0/directoryObjects/getByIds"
        response = self._call(
            "Microsoft Graph: Directory.Read.All", lambda: self._send(GRAPH, "POST", path, body)
        )
        return {item["id"]: item["@odata.type"].rpartition(".")[2] for item in response["value"]}

    def groups_of_caller(self, groups: Sequence[str]) -> set[str]:
        """Return the groups that the caller is a member of, directly or through other groups."""
        path = f"{GRAPH}/v1.0/directoryObjects/{self.login.object_id}/checkMemberGroups"
        body = {"groupIds": list(groups)}
        response = self._call(
            "Microsoft Graph: GroupMember.Read.All", lambda: self._send(GRAPH, "POST", path, body)
        )
        return set(response["value"])

    # -- permissions and registrations

    def permissions(self, scope: str) -> list[Permission]:
        """Return the caller's permissions in a scope: the id of a subscription, resource group or resource."""
        path = f"{ARM}{scope}/providers/Microsoft.Authorization/permissions"
        action = "Microsoft.Authorization/permissions/read"
        url: str | None = f"{path}?api-version={PERMISSIONS_VERSION}"
        entries: list[Mapping[str, Any]] = []
        while url:
            page = self._call(action, lambda url=url: self._send(ARM, "GET", url))  # type: ignore[misc]
            entries += page["value"]
            url = page.get("nextLink")
        return [
            Permission(tuple(item.get("actions") or ()), tuple(item.get("notActions") or ()))
            for item in entries
        ]

    def registrations(self) -> dict[str, str]:
        """Return the state of each resource provider, by lower-case name: `Registered`, ...

        Azure returns `microsoft.insights` as well as `Microsoft.Insights`.
        """
        from azure.mgmt.resource.resources import ResourceManagementClient

        client = self._client(ResourceManagementClient, self.subscription_id)
        response = self._call(
            "Microsoft.Resources/subscriptions/providers/read",
            lambda: list(client.providers.list()),
        )
        return {str(item.namespace).lower(): str(item.registration_state) for item in response}

    def registration(self, subscription: str, namespace: str) -> str:
        """Return the state of a resource provider in a subscription, which may be another one: `Registered`, ...

        Args:
            subscription: id of the subscription.
            namespace: name of the resource provider.
        """
        path = f"{ARM}/subscriptions/{subscription}/providers/{namespace}"
        url = f"{path}?api-version={PROVIDERS_VERSION}"
        response = self._call(
            "Microsoft.Resources/subscriptions/providers/read",
            lambda: self._send(ARM, "GET", url),
        )
        return str(response["registrationState"])

    # -- offers of the location

    @cached_property
    def sizes(self) -> dict[str, SizeOffer]:
        """VM sizes of the location, by name."""
        from azure.mgmt.compute import ComputeManagementClient

        client = self._client(ComputeManagementClient, self.subscription_id)
        query_filter = f"location eq '{self.location}'"
        response = self._call(
            "Microsoft.Compute/skus/read",
            lambda: list(client.resource_skus.list(filter=query_filter)),
        )
        return {
            str(item.name): _offer(item)
            for item in response
            if item.resource_type == "virtualMachines"
        }

    def quotas(self) -> dict[str, UsageQuota]:
        """Return the compute quotas of the location, by lower-case name."""
        from azure.mgmt.compute import ComputeManagementClient

        client = self._client(ComputeManagementClient, self.subscription_id)
        response = self._call(
            "Microsoft.Compute/locations/usages/read",
            lambda: list(client.usage.list(self.location)),
        )
        return {
            str(item.name.value).lower(): UsageQuota(
                str(item.name.localized_value), int(item.limit), int(item.current_value)
            )
            for item in response
        }

    def kubernetes_versions(self) -> dict[str, tuple[bool, tuple[str, ...]]]:
        """Return whether each offered version of Kubernetes is a preview, and its support plans."""
        from azure.mgmt.containerservice import ContainerServiceClient

        client = self._client(ContainerServiceClient, self.subscription_id)
        response = self._call(
            "Microsoft.ContainerService/locations/kubernetesVersions/read",
            lambda: client.managed_clusters.list_kubernetes_versions(self.location),
        )
        return {
            str(item.version): (
                bool(item.is_preview),
                tuple(_text(plan) for plan in (item.capabilities.support_plan or ()))
                if item.capabilities
                else (),
            )
            for item in response.values_property or ()
        }

    # -- names

    def group_tags(self, name: str) -> dict[str, str] | None:
        """Return the tags of a resource group; None if it does not exist."""
        from azure.mgmt.resource.resources import ResourceManagementClient

        client = self._client(ResourceManagementClient, self.subscription_id)
        action = "Microsoft.Resources/subscriptions/resourceGroups/read"
        response = self._call_if_exists(action, lambda: client.resource_groups.get(name))
        return None if response is None else dict(response.tags or {})

    def cluster_tags(self, group: str, name: str) -> dict[str, str] | None:
        """Return the tags of a cluster; None if it does not exist."""
        from azure.mgmt.containerservice import ContainerServiceClient

        client = self._client(ContainerServiceClient, self.subscription_id)
        action = "Microsoft.ContainerService/managedClusters/read"
        response = self._call_if_exists(action, lambda: client.managed_clusters.get(group, name))
        return None if response is None else dict(response.tags or {})

    def has_hierarchical_namespace(self, group: str, name: str) -> bool | None:
        """Return True if a storage account has a hierarchical namespace; None if the account does not exist."""
        from azure.mgmt.storage import StorageManagementClient

        client = self._client(StorageManagementClient, self.subscription_id)
        action = "Microsoft.Storage/storageAccounts/read"
        response = self._call_if_exists(
            action, lambda: client.storage_accounts.get_properties(group, name)
        )
        return None if response is None else bool(response.is_hns_enabled)

    def has_container(self, group: str, account: str, name: str) -> bool:
        """Return True if a storage account has a container; False also if the account does not exist."""
        from azure.mgmt.storage import StorageManagementClient

        client = self._client(StorageManagementClient, self.subscription_id)
        action = "Microsoft.Storage/storageAccounts/blobServices/containers/read"
        response = self._call_if_exists(
            action, lambda: client.blob_containers.get(group, account, name)
        )
        return response is not None

    def account_name_is_free(self, name: str) -> bool:
        """Return True if a name is free for a storage account."""
        from azure.mgmt.storage import StorageManagementClient

        client = self._client(StorageManagementClient, self.subscription_id)
        body = {"name": name, "type": "Microsoft.Storage/storageAccounts"}
        response = self._call(
            "Microsoft.Storage/checknameavailability/read",
            lambda: client.storage_accounts.check_name_availability(body),
        )
        return bool(response.name_available)

    def has_registry(self, group: str, name: str) -> bool:
        """Return True if a resource group has a registry."""
        from azure.mgmt.containerregistry import ContainerRegistryManagementClient

        client = self._client(ContainerRegistryManagementClient, self.subscription_id)
        action = "Microsoft.ContainerRegistry/registries/read"
        return self._call_if_exists(action, lambda: client.registries.get(group, name)) is not None

    def registry_name_is_free(self, name: str) -> bool:
        """Return True if a name is free for a registry."""
        from azure.mgmt.containerregistry import ContainerRegistryManagementClient

        client = self._client(ContainerRegistryManagementClient, self.subscription_id)
        body = {"name": name, "type": "Microsoft.ContainerRegistry/registries"}
        response = self._call(
            "Microsoft.ContainerRegistry/checkNameAvailability/read",
            lambda: client.registries.check_name_availability(body),
        )
        return bool(response.name_available)

    def deleted_vaults(self) -> list[str]:
        """Return the names of the soft-deleted key vaults of the subscription."""
        from azure.mgmt.keyvault import KeyVaultManagementClient

        client = self._client(KeyVaultManagementClient, self.subscription_id)
        action = "Microsoft.KeyVault/deletedVaults/read"
        response = self._call(action, lambda: list(client.vaults.list_deleted()))
        return [str(item.name) for item in response]

    def has_image(self, host: str, repository: str, reference: str) -> bool:
        """Return True if a registry has an image.

        Args:
            host: host of the registry.
            repository: name of the repository.
            reference: tag, or digest that begins with `sha256:`.
        """
        from azure.containerregistry import ContainerRegistryClient

        with ContainerRegistryClient(f"https://{host}", self._credential, **TRANSPORT) as client:
            action = f"{host}: metadata/read of {repository}"
            look_up: Callable[..., object] = (
                client.get_manifest_properties
                if reference.startswith("sha256:")
                else client.get_tag_properties
            )
            return self._call_if_exists(action, lambda: look_up(repository, reference)) is not None


def _offer(size: Any) -> SizeOffer:  # noqa: ANN401  a ResourceSku of the SDK
    """Return the offer of a VM size to the subscription."""
    capabilities = {item.name: item.value for item in size.capabilities or ()}
    zones = {zone for item in size.location_info or () for zone in item.zones or ()}
    restriction = ""
    for item in size.restrictions or ():
        if _text(item.type) == "Location":
            restriction = _text(item.reason_code)
        elif item.restriction_info:
            zones -= set(item.restriction_info.zones or ())
    return SizeOffer(
        family=str(size.family),
        vcpus=int(capabilities.get("vCPUs") or 0),
        zones=frozenset(zones),
        restriction=restriction,
        spot=capabilities.get("LowPriorityCapable") == "True",
    )


def _text(value: object) -> str:
    """Return a value of the SDK as text: the value of an enumeration, not its name."""
    return str(getattr(value, "value", value) or "")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
