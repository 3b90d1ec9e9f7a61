"""Azure Storage and Container Registry. Pure.

Sources: Azure Storage documentation ("Storage account overview", "NFS 3.0 protocol support", "Configure
network security"), Container Registry documentation; Resource Manager, naming rules. Read 2026-11.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from cloudtwin.providers.azure.common import CREATION_TIME, PLAIN_NAME, arm_type, parent_of
from cloudtwin.providers.azure.network import SUBNET
from cloudtwin.providers.conditions import (
    block_error,
    block_of,
    failure_at,
    is_private,
    matches,
    section,
    value_rule,
)
from cloudtwin.providers.model import InputRule, Inputs, Precondition, Reference, ResourceRequest
from cloudtwin.providers.schema.check import CheckFailure, nearest

ACCOUNT = "azure-native:storage:StorageAccount"
CONTAINER = "azure-native:storage:BlobContainer"
REGISTRY = "azure-native:containerregistry:Registry"
ACCOUNT_PATH = "Microsoft.Storage/storageAccounts/{accountName}"
SERVICE_PATH = f"{ACCOUNT_PATH}/blobServices/{{blobServicesName}}"
CONTAINER_PATH = f"{ACCOUNT_PATH}/blobServices/default/containers/{{containerName}}"
POLICY_PATH = f"{ACCOUNT_PATH}/managementPolicies/{{managementPolicyName}}"
REGISTRY_PATH = "Microsoft.ContainerRegistry/registries/{registryName}"
MAX_BLOCK_PREFIX, MAX_RETENTION_DAYS = 30, 365
STORAGE_SERVICE = "Microsoft.Storage"
DOCS = "Azure Storage documentation"
PREMIUM_ONLY = ("networkRuleSet", "encryption", "zoneRedundancy", "dataEndpointEnabled")


def _sku(inputs: Inputs) -> str:
    return str(section(inputs, "sku").get("name") or "")


def _zones(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for an update to or from the redundancy over zones, which needs a migration of the account."""
    old, new = (
        (_sku(request.previous.inputs), _sku(request.inputs)) if request.previous else ("", "")
    )
    if old and new and ("ZRS" in old) != ("ZRS" in new):
        yield f"an update cannot change {old} to {new}: start a migration of the account"


def _kind(inputs: Inputs) -> Iterable[CheckFailure]:
    kind, sku = inputs.get("kind"), _sku(inputs)
    if kind in ("BlockBlobStorage", "FileStorage") and sku and not sku.startswith("Premium"):
        yield failure_at("sku.name", f"{kind} is premium: it cannot have the SKU {sku}")
    if kind == "StorageV2" and sku.startswith("Premium"):
        yield failure_at("kind", f"{sku} for block blobs needs the kind BlockBlobStorage")
    if kind == "BlockBlobStorage" and inputs.get("accessTier") is not None:
        yield failure_at("accessTier", "a premium account has no access tier")


def _nfs(inputs: Inputs) -> Iterable[CheckFailure]:
    if not inputs.get("enableNfsV3"):
        return
    if not inputs.get("isHnsEnabled"):
        yield failure_at("isHnsEnabled", "NFS 3.0 needs the hierarchical namespace")
    if section(inputs, "networkRuleSet").get("defaultAction") != "Deny":
        yield failure_at(
            "networkRuleSet.defaultAction", "NFS 3.0 needs an account that denies by default"
        )
    if _sku(inputs).endswith(("_GZRS", "_RAGZRS", "_RAGRS")):
        yield failure_at("sku.name", f"NFS 3.0 is not supported with {_sku(inputs)}")


def _address(value: object) -> str | None:
    text, block = str(value), block_of(value)
    if block is None:
        return block_error(text)
    if "/" in text and block.prefixlen > MAX_BLOCK_PREFIX:
        return f"{text}: list the one or two addresses individually"
    return f"{text} is private; rules are for public addresses" if is_private(block) else None


def _subnets(request: ResourceRequest) -> Iterable[str]:
    rules = section(request.inputs, "networkRuleSet").get("virtualNetworkRules") or ()
    for rule in rules:
        subnet = request.account.find((SUBNET,), rule.get("virtualNetworkResourceId"))
        endpoints = (subnet.inputs.get("serviceEndpoints") or ()) if subnet else ()
        services = [str(endpoint.get("service")) for endpoint in endpoints]
        if subnet and not any(service.startswith(STORAGE_SERVICE) for service in services):
            yield f"Subnet {subnet.name} has no service endpoint for {STORAGE_SERVICE}"


def _describe_account(request: ResourceRequest) -> dict[str, Any]:
    name = request.inputs["accountName"]
    kinds = ("blob", "dfs", "file", "queue", "table", "web")
    return {
        "primaryEndpoints": {kind: f"https://{name}.{kind}.core.windows.net/" for kind in kinds},
        "primaryLocation": request.inputs.get("location") or "",
        "statusOfPrimary": "available",
        "creationTime": CREATION_TIME,
    }


def _retention(inputs: Inputs) -> Iterable[CheckFailure]:
    for name in ("deleteRetentionPolicy", "containerDeleteRetentionPolicy"):
        policy = section(inputs, name)
        days = policy.get("days")
        if isinstance(days, int) and not 1 <= days <= MAX_RETENTION_DAYS:
            yield failure_at(f"{name}.days", f"{days} days: 1 to {MAX_RETENTION_DAYS} are allowed")
        if policy.get("enabled") and days is None:
            yield failure_at(f"{name}.days", "an enabled policy needs a number of days")


def _versions(request: ResourceRequest) -> Iterable[str]:
    account = request.account.find((ACCOUNT,), parent_of(request.id))
    has_versions = request.inputs.get("isVersioningEnabled")
    if account and account.inputs.get("isHnsEnabled") and has_versions:
        yield "versioning is not supported with the hierarchical namespace"


def _anonymous_access(request: ResourceRequest) -> Iterable[str]:
    account = request.account.find((ACCOUNT,), parent_of(request.id))
    is_public = request.inputs.get("publicAccess", "None") != "None"
    if account and is_public and not account.inputs.get("allowBlobPublicAccess"):
        yield "Public access is not permitted on this storage account: set its allowBlobPublicAccess"


def _registry_sku(inputs: Inputs) -> Iterable[CheckFailure]:
    sku = section(inputs, "sku").get("name")
    for name in PREMIUM_ONLY if sku != "Premium" else ():
        if inputs.get(name) not in (None, "Disabled", False):
            yield failure_at(name, f"requires the tier Premium, not {sku}")
    if sku != "Premium" and inputs.get("publicNetworkAccess") == "Disabled":
        yield failure_at("publicNetworkAccess", f"Disabled requires the tier Premium, not {sku}")


def _task_step(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for an invalid step: its type in the SDK is a union, so the schema check accepts any value."""
    step = inputs.get("step")
    if step is None or inputs.get("isSystemTask"):
        return
    kind = str(step.get("type")) if isinstance(step, Mapping) else ""
    if kind not in TASK_STEPS:
        yield failure_at("step.type", f"{kind!r} is not one of {', '.join(TASK_STEPS)}")
    elif not isinstance(step.get(TASK_STEPS[kind]), str):
        yield failure_at(f"step.{TASK_STEPS[kind]}", f"a step of type {kind} needs it, as a string")
    for name in step if isinstance(step, Mapping) else ():
        if name not in STEP_INPUTS:
            yield failure_at(
                f"step.{name}", f"there is no such property{nearest(name, STEP_INPUTS)}"
            )


def _default_name(name: str, path: str) -> InputRule:
    return value_rule(name, path, matches("default", "must be default"), "Storage REST API")


# Container Registry REST API: type of a step -> its required property.
TASK_STEPS = {
    "Docker": "dockerFilePath",
    "EncodedTask": "encodedTaskContent",
    "FileTask": "taskFilePath",
}
STEP_INPUTS = (
    *TASK_STEPS.values(), "type", "contextPath", "contextAccessToken", "imageNames", "isPushEnabled",
    "noCache", "target", "arguments", "values", "valuesFilePath", "encodedValuesContent",
)  # fmt: skip
CONTAINER_OUTPUTS: Mapping[str, Any] = {
    "hasImmutabilityPolicy": False,
    "hasLegalHold": False,
    "leaseState": "Available",
    "leaseStatus": "Unlocked",
}
TYPES = (
    arm_type(
        ACCOUNT, ACCOUNT_PATH, 24, "location", "kind", "isHnsEnabled", "enableNfsV3",
        name=("[a-z0-9]{3,24}", 1),
        describe=_describe_account,
        rules=(
            InputRule("kind of an account", f"{DOCS}, account overview", _kind),
            InputRule("NFS of an account", f"{DOCS}, NFS 3.0", _nfs),
            value_rule("addresses of an account", "networkRuleSet.ipRules.*.iPAddressOrRange",
                       _address, f"{DOCS}, network security"),
        ),
        references=(
            Reference("networkRuleSet.virtualNetworkRules.*.virtualNetworkResourceId", (SUBNET,),
                      "NetworkAclsValidationFailure"),
        ),
        preconditions=(
            Precondition("subnets of an account", f"{DOCS}, network security",
                         "NetworkAclsValidationFailure", _subnets),
            Precondition("zones of an account", f"{DOCS}, change how a storage account is replicated",
                         "StorageAccountTypeUpdateNotAllowed", _zones),
        ),
        unique=("accountName",),
        unique_code="StorageAccountAlreadyTaken",
    ),
    arm_type(
        CONTAINER, CONTAINER_PATH, 63,
        name=(r"(?!.*--)[a-z0-9$][a-z0-9-]{1,61}[a-z0-9]", 1),
        describe=lambda _request: CONTAINER_OUTPUTS,
        preconditions=(
            Precondition("anonymous access to blobs", f"{DOCS}, anonymous read access",
                         "PublicAccessNotPermitted", _anonymous_access),
        ),
        unique_code="ContainerAlreadyExists",
    ),
    arm_type(
        "azure-native:storage:BlobServiceProperties", SERVICE_PATH, 63, name=None, generated=False,
        rules=(
            _default_name("name of a blob service", "blobServicesName"),
            InputRule("days of retention", f"{DOCS}, soft delete", _retention),
        ),
        preconditions=(
            Precondition("versions of blobs", f"{DOCS}, blob versioning",
                         "FeatureNotSupportedForAccount", _versions),
        ),
    ),
    arm_type(
        "azure-native:storage:ManagementPolicy", POLICY_PATH, 63, name=None, generated=False,
        rules=(_default_name("name of a management policy", "managementPolicyName"),),
    ),
    arm_type(
        REGISTRY, REGISTRY_PATH, 50, "location", name=("[A-Za-z0-9]{5,50}", 1),
        describe=lambda request: {
            "loginServer": f"{str(request.inputs['registryName']).lower()}.azurecr.io",
            "creationDate": CREATION_TIME,
        },
        rules=(
            InputRule("tier of a registry", "Container Registry documentation, tiers", _registry_sku),
        ),
        unique=("registryName",),
        unique_code="AlreadyInUse",
    ),
    arm_type(
        "azure-native:containerregistry:Task", f"{REGISTRY_PATH}/tasks/{{taskName}}", 50, "location",
        name=(PLAIN_NAME, 5),
        rules=(InputRule("step of a task", "Container Registry REST API, tasks", _task_step),),
    ),
)  # fmt: skip
