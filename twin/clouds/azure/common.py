"""What holds for every Azure resource: ARM ids, locations, what Resource Manager adds. Pure."""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twin.clouds.model import Inputs, Making, ResourceType, Settings
from twin.clouds.rules import at, known
from twin.clouds.wire.check import Mistake, nearest
from twin.clouds.wire.model import Wire
from twin.clouds.world import Resource, World
from twin.pulumi.provider.convert import Object
from twin.pulumi.provider.errors import ProviderError

SUBSCRIPTION = "00000000-0000-4000-8000-000000000000"
TENANT = "00000000-0000-4000-8000-000000000001"
CALLER = "00000000-0000-4000-8000-000000000002"
ROOT = f"/subscriptions/{SUBSCRIPTION}"
GROUP = "azure-native:resources:ResourceGroup"
# Azure documentation, "List of Azure regions", 2026-10; those with availability zones first.
ZONAL = frozenset({
    "eastus", "eastus2", "southcentralus", "westus2", "westus3", "centralus", "canadacentral",
    "brazilsouth", "northeurope", "westeurope", "uksouth", "francecentral", "germanywestcentral",
    "switzerlandnorth", "norwayeast", "swedencentral", "italynorth", "spaincentral", "polandcentral",
    "eastasia", "southeastasia", "japaneast", "japanwest", "koreacentral", "centralindia",
    "australiaeast", "southafricanorth", "uaenorth", "qatarcentral", "israelcentral",
})  # fmt: skip
LOCATIONS = ZONAL | {
    "northcentralus", "westus", "westcentralus", "canadaeast", "ukwest", "francesouth",
    "germanynorth", "switzerlandwest", "koreasouth", "southindia", "westindia", "australiasoutheast",
    "australiacentral", "global",
}  # fmt: skip
ARGUMENTS = frozenset({
    "location", "subscriptionId", "tenantId", "clientId", "clientSecret", "environment", "useMsi",
    "useOidc", "oidcToken", "oidcRequestToken", "oidcRequestUrl", "msiEndpoint", "partnerId",
    "disablePulumiPartnerId", "metadataHost", "auxiliaryTenantIds", "clientCertificatePath",
    "clientCertificatePassword", "version", "useDefaultAzureCredential", "pluginDownloadURL",
    "disableInstanceDiscovery", "oidcTokenFilePath", "msiClientId",
})  # fmt: skip


def location_of(text: str) -> str:
    """Return a location as Azure compares it: `East US` is `eastus`."""
    return text.replace(" ", "").lower()


def arm(path: str) -> Callable[[Making], str]:
    """Return a maker of ARM ids.

    Args:
        path: from the provider on, `{...}` where an input stands: `Microsoft.X/ys/{yName}`. It is
            in a resource group, unless it begins with `{scope}`.
    """

    def identify(making: Making) -> str:
        return arm_id(path, making.inputs)

    return identify


def arm_id(path: str, inputs: Inputs) -> str:
    """Return the ARM id for a path and inputs."""
    start = (
        "" if path.startswith("{") else f"{ROOT}/resourceGroups/{{resourceGroupName}}/providers/"
    )
    names = re.findall(r"\{(\w+)\}", start + path)
    return (start + path).format(**{name: inputs.get(name, "") for name in names})


def parent_of(identity: str) -> str:
    """Return the id of what a resource is in; nothing where that is always there."""
    parts = identity.strip("/").split("/")
    whole = parts[-4:-3] == ["providers"]  # providers/Microsoft.X/kind/name, not a kind/name below
    parts = parts[:-4] if whole else parts[:-2]
    if parts[-2:] == ["blobServices", "default"]:  # each account has exactly this one
        parts = parts[:-2]
    return "/" + "/".join(parts) if len(parts) > 2 else ""


def guid(*of: str) -> str:
    """Return a GUID that is always the same for the same."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(of).lower()))


def settings(given: Mapping[str, Any]) -> Settings:
    """Read the provider's arguments.

    Raises:
        ProviderError: an argument or location that does not exist.
    """
    for name in given:
        if name not in ARGUMENTS and not name.startswith("__"):
            near = nearest(name, dict.fromkeys(ARGUMENTS))
            raise ProviderError(f"azure_native.Provider has no argument {name!r}{near}")
    location = location_of(str(given.get("location") or ""))
    if location and location not in LOCATIONS:
        near = nearest(location, dict.fromkeys(LOCATIONS))
        raise ProviderError(f"{location!r} is no Azure location{near}")
    return Settings(cloud="azure-native", region=location)


def complete(inputs: Object, wire: Wire, settings: Settings) -> Object:
    """Add the provider's location to what has one and is not told."""
    if "location" in wire.inputs and inputs.get("location") is None and settings.region:
        return {**inputs, "location": settings.region}
    return inputs


def faults(wire: Wire, inputs: Inputs, _settings: Settings) -> Iterable[Mistake]:
    """Refuse a location, a zone or tags that Azure does not know."""
    location = inputs.get("location")
    if isinstance(location, str) and location_of(location) not in LOCATIONS:
        near = nearest(location_of(location), dict.fromkeys(LOCATIONS))
        yield at("location", f"{location!r} is no Azure location{near}")
    tags = inputs.get("tags")
    if isinstance(tags, Mapping) and len(tags) > 50:
        yield at("tags", f"{len(tags)} tags: a resource has at most 50 (Resource Manager, tags)")
    for key in tags if isinstance(tags, Mapping) else ():
        if any(mark in key for mark in "<>%&\\?/") and "location" in wire.inputs:
            yield at("tags", f"{key!r} holds one of <>%&\\?/ (Resource Manager, tags)")


def adds(making: Making) -> dict[str, Any]:
    """Return what Resource Manager answers of any resource."""
    parts = making.id.strip("/").split("/")
    after = parts[len(parts) - 1 - parts[::-1].index("providers") :] if "providers" in parts else []
    kind = "/".join([after[1], *after[2::2]]) if after else "Microsoft.Resources/resourceGroups"
    return {
        "name": parts[-1],
        "type": kind,
        "azureApiVersion": "2025-09-01",
        "provisioningState": "Succeeded",
        "eTag": making.digits("etag", 12),
        "etag": making.digits("etag", 12),
    }


def named(path: str, *rest: str) -> tuple[str, ...]:
    """Return the inputs in an ARM path: a change of any of them is another resource."""
    names = re.findall(r"\{(\w+)\}", path)
    group = () if path.startswith("{") else ("resourceGroupName",)
    return (*group, *names, *rest)


def goes_with(gone: Resource, world: World) -> Iterable[Resource]:
    """Return a resource and all that is below it: Resource Manager deletes a whole tree."""
    start = f"{gone.id}/".lower()
    return [gone, *(each for each in world.all() if each.id.lower().startswith(start))]


def looked_up(kind: ResourceType) -> Callable[[Inputs, Settings, World], Object]:
    """Return the function that looks a resource up by its name."""

    def look_up(arguments: Inputs, settings: Settings, world: World) -> Object:
        making = Making(inputs=arguments, settings=settings, world=world, entropy="")
        identity = kind.identify(making)
        found = world.find((kind.token,), identity)
        if found is None:
            raise ProviderError(f"ResourceNotFound: the account has no {identity}")
        return {**found.outputs, "id": found.id}

    return look_up


def text_is(value: object) -> bool:
    """Tell whether a value is known text."""
    return known(value) and isinstance(value, str)
