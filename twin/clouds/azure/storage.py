"""Azure Storage and Container Registry. Pure.

Sources: Azure Storage documentation ("Storage account overview", "NFS 3.0 protocol support", "Configure
network security"), Container Registry documentation; Resource Manager, naming rules. Read 2026-11.
"""

# ruff: noqa: S106  (a token is the name of a type here, and no password)

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

from twin.clouds.azure.common import arm, named, parent_of
from twin.clouds.azure.network import SUBNET, plain_name
from twin.clouds.model import Demand, Inputs, Making, Naming, Reference, ResourceType, Rule
from twin.clouds.rules import at, is_private
from twin.clouds.wire.check import Mistake

ACCOUNT = "azure-native:storage:StorageAccount"
CONTAINER = "azure-native:storage:BlobContainer"
REGISTRY = "azure-native:containerregistry:Registry"
ACCOUNT_PATH = "Microsoft.Storage/storageAccounts/{accountName}"
SERVICE_PATH = f"{ACCOUNT_PATH}/blobServices/{{blobServicesName}}"
CONTAINER_PATH = f"{ACCOUNT_PATH}/blobServices/default/containers/{{containerName}}"
POLICY_PATH = f"{ACCOUNT_PATH}/managementPolicies/{{managementPolicyName}}"
REGISTRY_PATH = "Microsoft.ContainerRegistry/registries/{registryName}"
TASK_PATH = f"{REGISTRY_PATH}/tasks/{{taskName}}"
STORAGE_NAME = re.compile(r"[a-z0-9]{3,24}")
REGISTRY_NAME = re.compile(r"[A-Za-z0-9]{5,50}")
CONTAINER_NAME = re.compile(r"(?!.*--)[a-z0-9$][a-z0-9-]{1,61}[a-z0-9]")
SMALLEST_BLOCK, MOST_RETENTION_DAYS = 30, 365
STORAGE_SERVICE = "Microsoft.Storage"
DOCS = "Azure Storage documentation"


def _kind(inputs: Inputs) -> Iterable[Mistake]:
    kind, sku = inputs.get("kind"), str((inputs.get("sku") or {}).get("name") or "")
    if kind in ("BlockBlobStorage", "FileStorage") and sku and not sku.startswith("Premium"):
        yield at("sku.name", f"{kind} is premium: {sku} does not go with it")
    if kind == "StorageV2" and sku.startswith("Premium"):
        yield at("kind", f"{sku} for block blobs needs the kind BlockBlobStorage")
    if kind == "BlockBlobStorage" and inputs.get("accessTier") is not None:
        yield at("accessTier", "a premium account has no tier of its own")


def _nfs(inputs: Inputs) -> Iterable[Mistake]:
    if not inputs.get("enableNfsV3"):
        return
    if not inputs.get("isHnsEnabled"):
        yield at("isHnsEnabled", "NFS 3.0 needs the hierarchical namespace")
    if (inputs.get("networkRuleSet") or {}).get("defaultAction") != "Deny":
        yield at("networkRuleSet.defaultAction", "NFS 3.0 needs an account that denies by default")
    sku = str((inputs.get("sku") or {}).get("name") or "")
    if sku.endswith(("_GZRS", "_RAGZRS", "_RAGRS")):
        yield at("sku.name", f"NFS 3.0 is not supported with {sku}")


def _addresses(inputs: Inputs) -> Iterable[Mistake]:
    rules = (inputs.get("networkRuleSet") or {}).get("ipRules")
    for position, rule in enumerate(rules if isinstance(rules, list) else []):
        text = rule.get("iPAddressOrRange") if isinstance(rule, Mapping) else None
        path = f"networkRuleSet.ipRules[{position}]"
        if not isinstance(text, str):
            continue
        try:
            block = ipaddress.ip_network(text)
        except ValueError as error:
            yield at(path, f"{text!r}: {error}")
            continue
        if "/" in text and block.prefixlen > SMALLEST_BLOCK:
            yield at(path, f"{text}: blocks of two addresses or one are written address by address")
        if is_private(block):
            yield at(path, f"{text} is private; rules are for public addresses")


def _subnets(making: Making) -> Iterable[str]:
    rules = (making.inputs.get("networkRuleSet") or {}).get("virtualNetworkRules") or ()
    for rule in rules:
        subnet = making.world.find((SUBNET,), str(rule.get("virtualNetworkResourceId")))
        services = [
            str(each.get("service")) for each in (subnet.inputs.get("serviceEndpoints") or ())
        ] if subnet else []  # fmt: skip
        if subnet and not any(each.startswith(STORAGE_SERVICE) for each in services):
            yield f"Subnet {subnet.name} has no service endpoint for {STORAGE_SERVICE}"


def _describe_account(making: Making) -> dict[str, Any]:
    name = making.inputs["accountName"]
    kinds = ("blob", "dfs", "file", "queue", "table", "web")
    return {
        "primaryEndpoints": {kind: f"https://{name}.{kind}.core.windows.net/" for kind in kinds},
        "primaryLocation": making.inputs.get("location") or "",
        "statusOfPrimary": "available",
        "creationTime": "2026-01-01T00:00:00Z",
    }


def _retention(inputs: Inputs) -> Iterable[Mistake]:
    for name in ("deleteRetentionPolicy", "containerDeleteRetentionPolicy"):
        policy = inputs.get(name)
        days = policy.get("days") if isinstance(policy, Mapping) else None
        if isinstance(days, int) and not 1 <= days <= MOST_RETENTION_DAYS:
            yield at(f"{name}.days", f"{days} days: 1 to {MOST_RETENTION_DAYS}")
        if isinstance(policy, Mapping) and policy.get("enabled") and days is None:
            yield at(f"{name}.days", "a policy that is enabled says for how many days")


def _versions(making: Making) -> Iterable[str]:
    account = making.world.find((ACCOUNT,), parent_of(making.id))
    if account and account.inputs.get("isHnsEnabled") and making.inputs.get("isVersioningEnabled"):
        yield "versioning is not supported with the hierarchical namespace"


def _service_name(inputs: Inputs) -> Iterable[Mistake]:
    for name in ("blobServicesName", "managementPolicyName"):
        if inputs.get(name) not in (None, "default"):
            yield at(name, f"{inputs[name]!r}: it is always named default")


def _registry_sku(inputs: Inputs) -> Iterable[Mistake]:
    sku = (inputs.get("sku") or {}).get("name")
    if sku != "Premium":
        for name in ("networkRuleSet", "encryption", "zoneRedundancy", "dataEndpointEnabled"):
            if inputs.get(name) not in (None, "Disabled", False):
                yield at(name, f"only the tier Premium has it, not {sku}")


TYPES = (
    ResourceType(
        token=ACCOUNT,
        identify=arm(ACCOUNT_PATH),
        describe=_describe_account,
        naming=Naming(property="accountName", longest=24),
        immutable=named(ACCOUNT_PATH, "location", "kind", "isHnsEnabled", "enableNfsV3"),
        parent=parent_of,
        rules=(
            plain_name("accountName", STORAGE_NAME),
            Rule(name="kind of an account", source=f"{DOCS}, account overview", broken=_kind),
            Rule(name="NFS of an account", source=f"{DOCS}, NFS 3.0", broken=_nfs),
            Rule(
                name="addresses of an account",
                source=f"{DOCS}, network security",
                broken=_addresses,
            ),
        ),
        references=(
            Reference(
                path="networkRuleSet.virtualNetworkRules.*.virtualNetworkResourceId",
                to=(SUBNET,),
                code="NetworkAclsValidationFailure",
            ),
        ),
        demands=(
            Demand(
                name="subnets of an account",
                source=f"{DOCS}, network security",
                code="NetworkAclsValidationFailure",
                broken=_subnets,
            ),
        ),
        unique=("accountName",),
        unique_code="StorageAccountAlreadyTaken",
    ),
    ResourceType(
        token=CONTAINER,
        identify=arm(CONTAINER_PATH),
        describe=lambda _making: {
            "hasImmutabilityPolicy": False,
            "hasLegalHold": False,
            "leaseState": "Available",
            "leaseStatus": "Unlocked",
        },
        naming=Naming(property="containerName", longest=63),
        immutable=named(CONTAINER_PATH),
        parent=parent_of,
        rules=(plain_name("containerName", CONTAINER_NAME),),
        unique_code="ContainerAlreadyExists",
    ),
    ResourceType(
        token="azure-native:storage:BlobServiceProperties",
        identify=arm(SERVICE_PATH),
        naming=Naming(property="blobServicesName", longest=63, automatic=False),
        immutable=named(SERVICE_PATH),
        parent=parent_of,
        rules=(
            Rule(name="name of a service", source="Storage REST API", broken=_service_name),
            Rule(name="days of retention", source=f"{DOCS}, soft delete", broken=_retention),
        ),
        demands=(
            Demand(
                name="versions of blobs",
                source=f"{DOCS}, blob versioning",
                code="FeatureNotSupportedForAccount",
                broken=_versions,
            ),
        ),
        unique_code="Conflict",
    ),
    ResourceType(
        token="azure-native:storage:ManagementPolicy",
        identify=arm(POLICY_PATH),
        naming=Naming(property="managementPolicyName", longest=63, automatic=False),
        immutable=named(POLICY_PATH),
        parent=parent_of,
        rules=(
            Rule(
                name="name of a policy of an account",
                source="Storage REST API",
                broken=_service_name,
            ),
        ),
        unique_code="Conflict",
    ),
    ResourceType(
        token=REGISTRY,
        identify=arm(REGISTRY_PATH),
        describe=lambda making: {
            "loginServer": f"{str(making.inputs['registryName']).lower()}.azurecr.io",
            "creationDate": "2026-01-01T00:00:00Z",
        },
        naming=Naming(property="registryName", longest=50),
        immutable=named(REGISTRY_PATH, "location"),
        parent=parent_of,
        rules=(
            plain_name("registryName", REGISTRY_NAME),
            Rule(
                name="tier of a registry",
                source="Container Registry documentation, tiers",
                broken=_registry_sku,
            ),
        ),
        unique=("registryName",),
        unique_code="AlreadyInUse",
    ),
    ResourceType(
        token="azure-native:containerregistry:Task",
        identify=arm(TASK_PATH),
        naming=Naming(property="taskName", longest=50),
        immutable=named(TASK_PATH, "location"),
        parent=parent_of,
        rules=(plain_name("taskName", shortest=5),),
        unique_code="Conflict",
    ),
)
