"""Responses of Resource Manager, Microsoft Graph and the registries about the twin's subscription.

They have the shapes of the REST APIs that Azure's SDK calls, and errors with the codes of the services.
`azure_https` serves them under the services' own host names, and issues the tokens of Entra.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias

from cloudfacts.azure import LOCATIONS, VM_SIZES, VmSize
from cloudfacts.kubernetes import STANDARD_SUPPORT
from cloudtwin.accounts import AZURE_SUBSCRIPTION
from cloudtwin.providers.account import Account
from cloudtwin.providers.azure.common import CALLER, GROUP, TENANT
from cloudtwin.providers.azure.identity import CLUSTER
from cloudtwin.providers.azure.storage import ACCOUNT, CONTAINER, REGISTRY
from cloudtwin.providers.inventory import Inventory

AzureResponse: TypeAlias = Mapping[str, Any]

ARM, GRAPH, LOGIN = "management.azure.com", "graph.microsoft.com", "login.microsoftonline.com"
REGISTRY_DOMAIN = ".azurecr.io"
NAMESPACES = (
    "AlertsManagement", "Authorization", "Compute", "Consumption", "ContainerRegistry",
    "ContainerService", "Insights", "KeyVault", "ManagedIdentity", "Monitor", "Network",
    "OperationalInsights", "Storage",
)  # fmt: skip
ZONES = ("1", "2", "3")
REGIONAL_CORES, SPOT_CORES = "cores", "lowPriorityCores"
# Quotas of a new subscription.
DEFAULT_LIMITS: Mapping[str, int] = {REGIONAL_CORES: 100, SPOT_CORES: 3}
DEFAULT_FAMILY_LIMIT = 10
GPU_FAMILY_LIMIT = 0
PREVIEW_VERSION = "1.38"  # version of Kubernetes that AKS offers as a preview
OWNER: Mapping[str, Any] = {
    "actions": ["*"],
    "notActions": [],
    "dataActions": [],
    "notDataActions": [],
}


@dataclass(frozen=True)
class AzureError(Exception):
    """A refusal, with the error code and status of the service."""

    code: str
    message: str
    status: HTTPStatus = HTTPStatus.BAD_REQUEST


@dataclass(frozen=True)
class SubscriptionFacts:
    """Properties of the subscription and its tenant that no resource of the twin has.

    Attributes:
        caller: object id of the identity that sends requests.
        groups: Entra groups that it is a member of.
        objects: other objects of the tenant: object id -> kind, `user` or `group`.
        secret: client secret with which it logs in.
        state: state of the subscription, such as `Enabled` or `Warned`.
        offer: quota id of its offer.
        unregistered: resource providers without registration.
        zone_subscriptions: further subscription -> state of Microsoft.ContainerService in it.
        permissions: permissions of the caller on the subscription, as roles list them.
        denied: actions for which all requests are refused; `graph`: all requests to Microsoft Graph.
        limits: name of a quota -> its limit, where it differs from a new subscription's.
        used: name of a quota -> its current use.
        not_offered: VM sizes that the location does not have.
        restricted: pairs of a VM size and a zone that the subscription may not use; an empty zone: the whole location.
        not_on_spot: VM sizes without spot machines.
        kubernetes: versions of Kubernetes that AKS offers, with their support plans.
        taken: names of storage accounts and registries that are taken.
        deleted_vaults: names of soft-deleted key vaults.
        images: images of the registries, as `repository:tag` or `repository@digest`.
    """

    caller: str = CALLER
    groups: frozenset[str] = frozenset()
    objects: Mapping[str, str] = field(default_factory=dict)
    secret: str = "secret"
    state: str = "Enabled"
    offer: str = "PayAsYouGo_2014-09-01"
    unregistered: frozenset[str] = frozenset()
    zone_subscriptions: Mapping[str, str] = field(default_factory=dict)
    permissions: Sequence[Mapping[str, Any]] = (OWNER,)
    denied: frozenset[str] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    not_offered: frozenset[str] = frozenset()
    restricted: frozenset[tuple[str, str]] = frozenset()
    not_on_spot: frozenset[str] = frozenset()
    kubernetes: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: dict.fromkeys(
            STANDARD_SUPPORT, ("KubernetesOfficial", "AKSLongTermSupport")
        )
    )
    taken: frozenset[str] = frozenset()
    deleted_vaults: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()


@dataclass(frozen=True)
class AzureRequest:
    """A request of a client with a valid token.

    Attributes:
        method: HTTP method.
        path: path of the URL, decoded.
        query: parameters of the URL.
        body: JSON body; empty if there is none.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any]


def family_of(size: str) -> str:
    """Return the name of the quota that a VM size counts against: `standardDSv5Family`."""
    series = re.sub(r"^Standard_([A-Z]+)\d+", r"\1_", size)
    letters, _, version = series.partition("_")
    lower = re.match(r"[a-z]*", version)
    features = (lower[0] if lower else "").upper()
    model = re.sub(r"[^A-Za-z0-9]", "", version[len(features) :])
    return f"standard{letters}{features}{model}Family"


@dataclass(frozen=True)
class AzureApi:
    """The APIs about one twin's subscription.

    Attributes:
        state: folder of the twin.
        facts: properties of the subscription.
    """

    state: Path
    facts: SubscriptionFacts = field(default_factory=SubscriptionFacts)

    @property
    def inventory(self) -> Inventory:
        """The resources of the subscription."""
        return Account(self.state, "azure-native").read()

    def manage(self, request: AzureRequest) -> AzureResponse:
        """Return the response of Resource Manager.

        Raises:
            AzureError: Resource Manager refuses the request.
        """
        version = request.query.get("api-version", "")
        if not re.fullmatch(r"\d{4}-\d\d-\d\d(-preview)?", version):
            raise AzureError(
                "MissingApiVersionParameter" if not version else "InvalidApiVersionParameter",
                f"The api-version {version!r} is invalid: it has the form yyyy-MM-dd.",
            )
        resource = re.fullmatch(r"/subscriptions/([^/]+)(/.*)?", request.path)
        if resource and resource[1] in self.facts.zone_subscriptions:
            return self._zone_subscription(resource[1], resource[2] or "")
        if resource and resource[1].lower() != AZURE_SUBSCRIPTION:
            message = f"The subscription '{resource[1]}' could not be found."
            raise AzureError("SubscriptionNotFound", message, HTTPStatus.NOT_FOUND)
        path_below = (resource[2] or "") if resource else ""
        for (method, pattern, action), operation in OPERATIONS.items():
            match = re.fullmatch(pattern, path_below, re.IGNORECASE)
            if resource and match and method == request.method:
                self._authorize(action, request.path)
                return operation(self, request, match)
        message = f"The twin has no {request.method} {request.path}"
        raise AzureError("InvalidResourceType", message, HTTPStatus.NOT_FOUND)

    def _zone_subscription(self, subscription: str, path: str) -> AzureResponse:
        """Return the registration of AKS, or the permissions of the caller, in another subscription."""
        if path.endswith("/providers/Microsoft.Authorization/permissions"):
            return {"value": list(self.facts.permissions)}
        if path != "/providers/Microsoft.ContainerService":
            raise _not_found(path)
        state = self.facts.zone_subscriptions[subscription]
        return {"namespace": "Microsoft.ContainerService", "registrationState": state}

    def _authorize(self, action: str, scope: str) -> None:
        if action in self.facts.denied:
            message = (
                f"The client '{self.facts.caller}' with object id '{self.facts.caller}' does not have "
                f"authorization to perform action '{action}' over scope '{scope}'."
            )
            raise AzureError("AuthorizationFailed", message, HTTPStatus.FORBIDDEN)
        namespace = action.partition("/")[0]
        if namespace in self.facts.unregistered:
            message = f"The subscription is not registered to use namespace '{namespace}'."
            raise AzureError("MissingSubscriptionRegistration", message, HTTPStatus.CONFLICT)

    # -- operations of Resource Manager

    def subscription(self, _request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return the subscription."""
        return {
            "id": f"/subscriptions/{AZURE_SUBSCRIPTION}",
            "subscriptionId": AZURE_SUBSCRIPTION,
            "displayName": "Twin",
            "tenantId": TENANT,
            "state": self.facts.state,
            "subscriptionPolicies": {
                "locationPlacementId": "Public_2014-09-01",
                "quotaId": self.facts.offer,
                "spendingLimit": "Off",
            },
            "authorizationSource": "RoleBased",
        }

    def providers(self, _request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return the resource providers with their registrations."""
        names = [f"Microsoft.{name}" for name in NAMESPACES]
        # Azure returns this namespace in lower case.
        spellings = {"Microsoft.Insights": "microsoft.insights"}
        return {
            "value": [
                {
                    "id": f"/subscriptions/{AZURE_SUBSCRIPTION}/providers/{name}",
                    "namespace": spellings.get(name, name),
                    "registrationState": "NotRegistered"
                    if name in self.facts.unregistered
                    else "Registered",
                    "registrationPolicy": "RegistrationRequired",
                    "resourceTypes": [],
                }
                for name in names
            ]
        }

    def permissions(self, _request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return the permissions of the caller."""
        return {"value": list(self.facts.permissions)}

    def group(self, _request: AzureRequest, match: re.Match[str]) -> AzureResponse:
        """Return a resource group."""
        group_id = f"/subscriptions/{AZURE_SUBSCRIPTION}/resourceGroups/{match['group']}"
        resource = self.inventory.find((GROUP,), group_id)
        if resource is None:
            message = f"Resource group '{match['group']}' could not be found."
            raise AzureError("ResourceGroupNotFound", message, HTTPStatus.NOT_FOUND)
        return {
            "id": resource.id,
            "name": match["group"],
            "type": "Microsoft.Resources/resourceGroups",
            "location": str(resource.inputs.get("location") or "eastus"),
            "tags": dict(resource.inputs.get("tags") or {}),
            "properties": {"provisioningState": "Succeeded"},
        }

    def sizes(self, request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return the VM sizes of a location with their zones and restrictions."""
        location_filter = re.fullmatch(
            r"location eq '([a-z0-9]+)'", request.query.get("$filter", "")
        )
        if not location_filter or location_filter[1] not in LOCATIONS:
            raise AzureError("InvalidFilter", "The filter must be: location eq '{location}'.")
        sizes = [size for size in VM_SIZES.values() if size.name not in self.facts.not_offered]
        return {"value": [self._size(size, location_filter[1]) for size in sizes]}

    def _size(self, size: VmSize, location: str) -> AzureResponse:
        zones = ZONES if LOCATIONS[location].has_zones else ()
        spot = size.name not in self.facts.not_on_spot
        return {
            "resourceType": "virtualMachines",
            "name": size.name,
            "tier": "Standard",
            "size": size.name.removeprefix("Standard_"),
            "family": family_of(size.name),
            "locations": [location],
            "locationInfo": [{"location": location, "zones": list(zones), "zoneDetails": []}],
            "capabilities": [
                {"name": "vCPUs", "value": str(size.vcpus)},
                {"name": "LowPriorityCapable", "value": str(spot)},
            ],
            "restrictions": [
                {
                    "type": "Zone" if zone else "Location",
                    "values": [location],
                    "restrictionInfo": {
                        "locations": [location],
                        **({"zones": [zone]} if zone else {}),
                    },
                    "reasonCode": "NotAvailableForSubscription",
                }
                for name, zone in sorted(self.facts.restricted)
                if name == size.name
            ],
        }

    def usages(self, _request: AzureRequest, match: re.Match[str]) -> AzureResponse:
        """Return the quotas of a location with their use."""
        gpu = {family_of(size.name) for size in VM_SIZES.values() if size.gpus}
        families = dict.fromkeys(
            (family_of(size.name) for size in VM_SIZES.values()), DEFAULT_FAMILY_LIMIT
        )
        limits = {
            **families,
            **dict.fromkeys(gpu, GPU_FAMILY_LIMIT),
            **DEFAULT_LIMITS,
            **self.facts.limits,
        }
        return {
            "value": [
                {
                    "unit": "Count",
                    "currentValue": self.facts.used.get(name, 0),
                    "limit": limit,
                    "name": {"value": name, "localizedValue": f"{name} in {match['location']}"},
                }
                for name, limit in limits.items()
            ]
        }

    def kubernetes_versions(self, _request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return the versions of Kubernetes."""
        versions = {**self.facts.kubernetes, PREVIEW_VERSION: ("KubernetesOfficial",)}
        return {
            "values": [
                {
                    "version": version,
                    "isPreview": version == PREVIEW_VERSION,
                    "capabilities": {"supportPlan": list(plans)},
                    "patchVersions": {f"{version}.1": {"upgrades": []}},
                }
                for version, plans in versions.items()
            ]
        }

    def cluster(self, request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return a cluster with its tags."""
        resource = self.inventory.find((CLUSTER,), request.path)
        if resource is None:
            raise _not_found(request.path)
        return {
            "id": resource.id,
            "location": "eastus",
            "tags": dict(resource.inputs.get("tags") or {}),
        }

    def storage_account(self, request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return a storage account."""
        resource = self.inventory.find((ACCOUNT,), request.path)
        if resource is None:
            raise _not_found(request.path)
        has_namespace = bool(resource.inputs.get("isHnsEnabled"))
        return {
            "id": resource.id,
            "location": str(resource.inputs.get("location") or "eastus"),
            "kind": str(resource.inputs.get("kind") or "StorageV2"),
            "properties": {"isHnsEnabled": has_namespace},
        }

    def container(self, request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return a container of a storage account."""
        resource = self.inventory.find((CONTAINER,), request.path)
        if resource is None:
            raise _not_found(request.path)
        return {"id": resource.id, "properties": {"publicAccess": "None"}}

    def registry(self, request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return a registry."""
        resource = self.inventory.find((REGISTRY,), request.path)
        if resource is None:
            raise _not_found(request.path)
        return {
            "id": resource.id,
            "location": "eastus",
            "sku": {"name": "Standard"},
            "properties": {"loginServer": str(resource.outputs.get("loginServer") or "")},
        }

    def storage_name(self, request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return whether a name is available for a storage account."""
        return self._availability(
            request, "Microsoft.Storage/storageAccounts", ACCOUNT, "accountName"
        )

    def registry_name(self, request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return whether a name is available for a registry."""
        kind = "Microsoft.ContainerRegistry/registries"
        return self._availability(request, kind, REGISTRY, "registryName")

    def _availability(
        self, request: AzureRequest, kind: str, token: str, key: str
    ) -> AzureResponse:
        if request.body.get("type") != kind:
            message = f"The type {request.body.get('type')!r} is not {kind}."
            raise AzureError("InvalidRequestContent", message)
        name = str(request.body.get("name"))
        existing = {str(resource.inputs.get(key)) for resource in self.inventory.all(token)}
        if name in self.facts.taken | existing:
            message = f"The name {name} is already in use."
            return {"nameAvailable": False, "reason": "AlreadyExists", "message": message}
        return {"nameAvailable": True}

    def vaults(self, _request: AzureRequest, _match: re.Match[str]) -> AzureResponse:
        """Return the soft-deleted key vaults."""
        root = f"/subscriptions/{AZURE_SUBSCRIPTION}"
        return {
            "value": [
                {
                    "id": f"{root}/providers/Microsoft.KeyVault/locations/eastus/deletedVaults/{name}",
                    "name": name,
                    "type": "Microsoft.KeyVault/deletedVaults",
                    "properties": {
                        "vaultId": f"{root}/resourceGroups/state/providers/Microsoft.KeyVault/vaults/{name}",
                        "location": "eastus",
                        "deletionDate": "2026-11-01T00:00:00Z",
                        "scheduledPurgeDate": "2027-01-30T00:00:00Z",
                    },
                }
                for name in sorted(self.facts.deleted_vaults)
            ]
        }

    # -- Microsoft Graph and registries

    def graph(self, request: AzureRequest) -> AzureResponse:
        """Return the response of Microsoft Graph.

        Raises:
            AzureError: Microsoft Graph refuses the request.
        """
        if "graph" in self.facts.denied:
            message = "Insufficient privileges to complete the operation."
            raise AzureError("Authorization_RequestDenied", message, HTTPStatus.FORBIDDEN)
        if (request.method, request.path) == ("POST", "/v1.0/directoryObjects/getByIds"):
            kinds = {**dict.fromkeys(self.facts.groups, "group"), **self.facts.objects}
            return {
                "value": [
                    {"@odata.type": f"#microsoft.graph.{kinds[resource_id]}", "id": resource_id}
                    for resource_id in request.body["ids"]
                    if resource_id in kinds
                ]
            }
        member = f"/v1.0/directoryObjects/{self.facts.caller}/checkMemberGroups"
        if (request.method, request.path) == ("POST", member):
            return {
                "value": [
                    resource_id
                    for resource_id in request.body["groupIds"]
                    if resource_id in self.facts.groups
                ]
            }
        message = f"Resource not found for the segment '{request.path}'."
        raise AzureError("Request_ResourceNotFound", message, HTTPStatus.NOT_FOUND)

    def image(self, request: AzureRequest) -> AzureResponse:
        """Return a tag or a manifest of a registry.

        Raises:
            AzureError: the registry has no such image, or the request is not a GET of a tag or a manifest.
        """
        resource = re.fullmatch(r"/acr/v1/(.+)/_(tags|manifests)/([^/]+)", request.path)
        if resource is None or request.method != "GET":
            message = f"the twin has no {request.method} {request.path}"
            raise AzureError("UNSUPPORTED", message, HTTPStatus.NOT_FOUND)
        repository, kind, reference = resource.groups()
        separator, code = (":", "TAG_UNKNOWN") if kind == "tags" else ("@", "MANIFEST_UNKNOWN")
        if f"{repository}{separator}{reference}" not in self.facts.images:
            raise AzureError(code, f"{reference} is not known", HTTPStatus.NOT_FOUND)
        digest = reference if kind == "manifests" else "sha256:" + "0" * 64
        attributes = ("deleteEnabled", "listEnabled", "readEnabled", "writeEnabled")
        details = {
            "digest": digest,
            "createdTime": "2026-11-01T00:00:00Z",
            "lastUpdateTime": "2026-11-01T00:00:00Z",
            "changeableAttributes": dict.fromkeys(attributes, True),
        }
        content = {"name": reference, **details} if kind == "tags" else {"imageSize": 1, **details}
        return {"registry": "", "imageName": repository, kind.removesuffix("s"): content}


def _not_found(path: str) -> AzureError:
    message = f"The Resource '{path}' was not found."
    return AzureError("ResourceNotFound", message, HTTPStatus.NOT_FOUND)


IN_GROUP = r"/resourceGroups/(?P<group>[^/]+)"
PROVIDER = r"/providers/Microsoft\."
Operation: TypeAlias = Callable[[AzureApi, AzureRequest, "re.Match[str]"], AzureResponse]
OPERATIONS: Mapping[tuple[str, str, str], Operation] = {
    ("GET", "", "Microsoft.Resources/subscriptions/read"): AzureApi.subscription,
    ("GET", "/providers", "Microsoft.Resources/subscriptions/providers/read"): AzureApi.providers,
    ("GET", f"({IN_GROUP}(/providers/.+)?)?{PROVIDER}Authorization/permissions",
     "Microsoft.Authorization/permissions/read"): AzureApi.permissions,
    ("GET", IN_GROUP, "Microsoft.Resources/subscriptions/resourceGroups/read"): AzureApi.group,
    ("GET", f"{PROVIDER}Compute/skus", "Microsoft.Compute/skus/read"): AzureApi.sizes,
    ("GET", f"{PROVIDER}Compute/locations/(?P<location>[^/]+)/usages",
     "Microsoft.Compute/locations/usages/read"): AzureApi.usages,
    ("GET", f"{PROVIDER}ContainerService/locations/[^/]+/kubernetesVersions",
     "Microsoft.ContainerService/locations/kubernetesVersions/read"): AzureApi.kubernetes_versions,
    ("GET", f"{IN_GROUP}{PROVIDER}ContainerService/managedClusters/[^/]+",
     "Microsoft.ContainerService/managedClusters/read"): AzureApi.cluster,
    ("GET", f"{IN_GROUP}{PROVIDER}Storage/storageAccounts/[^/]+",
     "Microsoft.Storage/storageAccounts/read"): AzureApi.storage_account,
    ("GET", f"{IN_GROUP}{PROVIDER}Storage/storageAccounts/[^/]+/blobServices/default/containers/[^/]+",
     "Microsoft.Storage/storageAccounts/blobServices/containers/read"): AzureApi.container,
    ("GET", f"{IN_GROUP}{PROVIDER}ContainerRegistry/registries/[^/]+",
     "Microsoft.ContainerRegistry/registries/read"): AzureApi.registry,
    ("POST", f"{PROVIDER}Storage/checkNameAvailability",
     "Microsoft.Storage/checknameavailability/read"): AzureApi.storage_name,
    ("POST", f"{PROVIDER}ContainerRegistry/checkNameAvailability",
     "Microsoft.ContainerRegistry/checkNameAvailability/read"): AzureApi.registry_name,
    ("GET", f"{PROVIDER}KeyVault/deletedVaults", "Microsoft.KeyVault/deletedVaults/read"): AzureApi.vaults,
}  # fmt: skip
"""Method, path below the subscription and required action -> operation."""
