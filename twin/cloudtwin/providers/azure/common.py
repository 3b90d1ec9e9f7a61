"""Rules and values that all Azure resources share: ARM ids, locations, names. Pure."""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cloudfacts import azure

from cloudtwin.accounts import AZURE_SUBSCRIPTION
from cloudtwin.providers.conditions import failure_at, matches, value_rule
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import (
    Function,
    InputRule,
    Inputs,
    Naming,
    ProviderConfig,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.values import Object
from cloudtwin.providers.schema.check import CheckFailure, nearest
from cloudtwin.providers.schema.limits import limits_of
from cloudtwin.providers.schema.model import ResourceSchema

TENANT = "00000000-0000-4000-8000-000000000001"
CALLER = "00000000-0000-4000-8000-000000000002"
ROOT = f"/subscriptions/{AZURE_SUBSCRIPTION}"
GROUP = "azure-native:resources:ResourceGroup"
CREATION_TIME = "2026-01-01T00:00:00Z"
MAX_TAGS = 50
PLAIN_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9_])?"
NAMES = "Resource Manager, naming rules"
ZONAL = frozenset(name for name, location in azure.LOCATIONS.items() if location.has_zones)
LOCATIONS = frozenset(azure.LOCATIONS) | {"global"}
ARGUMENTS = frozenset({
    "location", "subscriptionId", "tenantId", "clientId", "clientSecret", "environment", "useMsi",
    "useOidc", "oidcToken", "oidcRequestToken", "oidcRequestUrl", "msiEndpoint", "partnerId",
    "disablePulumiPartnerId", "metadataHost", "auxiliaryTenantIds", "clientCertificatePath",
    "clientCertificatePassword", "version", "useDefaultAzureCredential", "pluginDownloadURL",
    "disableInstanceDiscovery", "oidcTokenFilePath", "msiClientId",
})  # fmt: skip

limits = partial(limits_of, Path(__file__).parent)


def location_of(text: object) -> str:
    """Return a location in the form that Azure compares: `eastus` for `East US`."""
    return str(text).replace(" ", "").lower()


def arm_id(path: str, inputs: Inputs) -> str:
    """Return an ARM id.

    Args:
        path: path that begins with the resource provider, with inputs in braces: `Microsoft.X/ys/{yName}`. The
            resource is in a resource group, unless the path begins with an input such as `{scope}`.
        inputs: values of the inputs.
    """
    group = f"{ROOT}/resourceGroups/{{resourceGroupName}}/providers/"
    full_path = path if path.startswith("{") else group + path
    return full_path.format(**{name: inputs.get(name, "") for name in _inputs(full_path)})


def parent_of(resource_id: str) -> str:
    """Return the id of a resource's parent; empty if the parent always exists."""
    parts = resource_id.strip("/").split("/")
    # providers/Microsoft.X/kind/name, not a nested kind/name
    is_top_level = parts[-4:-3] == ["providers"]
    parts = parts[:-4] if is_top_level else parts[:-2]
    if parts[-2:] == ["blobServices", "default"]:  # each storage account has exactly this service
        parts = parts[:-2]
    return "/" + "/".join(parts) if len(parts) > 2 else ""


def guid(*parts: str) -> str:
    """Return a GUID that is always the same for the same arguments."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(parts).lower()))


def _inputs(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)


def name_rule(property_name: str, pattern: str = PLAIN_NAME, min_length: int = 1) -> InputRule:
    """Return the rule for the name of a resource."""
    form = matches(pattern, f"is not a valid name: it must match {pattern}")

    def check(name: object) -> str | None:
        is_short = isinstance(name, str) and len(name) < min_length
        return f"{name!r} has fewer than {min_length} characters" if is_short else form(name)

    return value_rule(f"name in {property_name}", property_name, check, NAMES)


def arm_type(
    token: str,
    path: str,
    max_length: int,
    *fixed: str,
    name: tuple[str, int] | None = (PLAIN_NAME, 1),
    generated: bool = True,
    rules: tuple[InputRule, ...] = (),
    **fields: Any,  # noqa: ANN401  fields of the type
) -> ResourceType:
    """Return a resource type with an ARM id.

    Args:
        token: type token.
        path: path of `arm_id`; the inputs in it are immutable, the last input is the name.
        max_length: maximum length of the name.
        fixed: other immutable inputs.
        name: pattern and minimum length of the name; None for no rule, or if `rules` check it.
        generated: True if the provider generates a missing name.
        rules: other input rules.
        fields: other fields of the resource type.
    """
    names = _inputs(path)
    group = () if path.startswith("{") else ("resourceGroupName",)
    name_rules = (name_rule(names[-1], *name),) if name else ()
    defaults: dict[str, Any] = {"unique_code": "Conflict", "parent": parent_of}
    return ResourceType(
        token=token,
        identify=lambda request: arm_id(path, request.inputs),
        naming=Naming(names[-1], max_length, generated),
        immutable=(*group, *names, *fixed),
        rules=(*name_rules, *rules),
        **{**defaults, **fields},
    )


def configure(arguments: Mapping[str, Any]) -> ProviderConfig:
    """Return the provider's configuration.

    Raises:
        ProviderError: an unknown argument or location.
    """
    for name in arguments:
        if name not in ARGUMENTS and not name.startswith("__"):
            closest = nearest(name, ARGUMENTS)
            raise ProviderError(f"azure_native.Provider has no argument {name!r}{closest}")
    location = location_of(arguments.get("location") or "")
    if location and location not in LOCATIONS:
        closest = nearest(location, LOCATIONS)
        raise ProviderError(f"{location!r} is not an Azure location that the twin has{closest}")
    return ProviderConfig(cloud="azure-native", region=location)


def with_defaults(inputs: Object, schema: ResourceSchema, config: ProviderConfig) -> Object:
    """Return inputs with the provider's location."""
    if "location" in schema.inputs and inputs.get("location") is None and config.region:
        return {**inputs, "location": config.region}
    return inputs


def common_rules(
    schema: ResourceSchema, inputs: Inputs, _config: ProviderConfig
) -> Iterable[CheckFailure]:
    """Yield an error for an invalid location and invalid tags."""
    location = inputs.get("location")
    if isinstance(location, str) and location_of(location) not in LOCATIONS:
        closest = nearest(location_of(location), LOCATIONS)
        yield failure_at(
            "location", f"{location!r} is not an Azure location that the twin has{closest}"
        )
    tags = inputs.get("tags")
    if not isinstance(tags, Mapping):
        return
    if len(tags) > MAX_TAGS:
        yield failure_at(
            "tags", f"{len(tags)} tags, at most {MAX_TAGS} are allowed (Resource Manager, tags)"
        )
    for key in tags:
        if any(mark in key for mark in "<>%&\\?/") and "location" in schema.inputs:
            yield failure_at("tags", f"{key!r} has one of <>%&\\?/ (Resource Manager, tags)")


def common_outputs(request: ResourceRequest) -> dict[str, Any]:
    """Return the outputs of every Azure resource."""
    parts = request.id.strip("/").split("/")
    type_parts = (
        parts[len(parts) - 1 - parts[::-1].index("providers") :] if "providers" in parts else []
    )
    resource_type = (
        "/".join([type_parts[1], *type_parts[2::2]])
        if type_parts
        else "Microsoft.Resources/resourceGroups"
    )
    return {
        "name": parts[-1],
        "type": resource_type,
        "azureApiVersion": "2025-09-01",
        "provisioningState": "Succeeded",
        "eTag": request.digits("etag", 12),
        "etag": request.digits("etag", 12),
    }


def deleted_with(root: Resource, subscription: Inventory) -> Iterable[Resource]:
    """Return a resource and everything below it: Resource Manager deletes whole trees."""
    start = f"{root.id}/".lower()
    return [
        root,
        *(resource for resource in subscription.all() if resource.id.lower().startswith(start)),
    ]


def lookup(resource_type: ResourceType) -> Function:
    """Return the function that looks up a resource by its name."""

    def look_up(arguments: Inputs, config: ProviderConfig, subscription: Inventory) -> Object:
        request = ResourceRequest(inputs=arguments, config=config, account=subscription, entropy="")
        resource_id = resource_type.identify(request)
        resource = subscription.find((resource_type.token,), resource_id)
        if resource is None:
            raise ProviderError(f"ResourceNotFound: the subscription has no {resource_id}")
        return {**resource.outputs, "id": resource.id}

    return look_up


def is_child_of(parent_id: str) -> Callable[[Resource], bool]:
    """Return a predicate that is True for a resource whose parent has this id."""
    return lambda resource: parent_of(resource.id).lower() == parent_id.lower()
