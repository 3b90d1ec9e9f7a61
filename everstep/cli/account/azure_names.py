"""Checks of names for a stack of kind aks: each name is free, or belongs to a resource of the stack."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from everstep.cli.account.azure_account import AzureAccount
from everstep.cli.account.checks import AccountCheck, fault, success

if TYPE_CHECKING:
    from components.config import AksConfig, StackConfig

VAULT = re.compile(r"azurekeyvault://(?P<name>[^./]+)\.")


def check_names(
    account: AzureAccount, config: "StackConfig", cluster: "AksConfig", stack: str
) -> Iterator[AccountCheck]:
    """Check that names are free, and that the resources that the stack file names exist."""
    faults = [
        *_group_faults(account, cluster, stack),
        *_storage_faults(account, config, cluster, stack),
        *_source_faults(account, config, cluster, stack),
        *_registry_faults(account, config, cluster, stack),
    ]
    yield from faults or [
        success("names", f"{cluster.name} is free or this stack's", "cluster.name")
    ]


def group_of(cluster: "AksConfig", stack: str) -> str:
    """Return the resource group of a stack."""
    from components.azure.names import group_name

    return cluster.resource_group or group_name(cluster.name, stack)


def _group_faults(
    account: AzureAccount, cluster: "AksConfig", stack: str
) -> Iterator[AccountCheck]:
    """Yield a fault for each resource group or cluster that is missing, left over, or of another stack."""
    from components.azure.names import node_group_name

    subject, key, name = "names", "cluster.name", cluster.name
    group = group_of(cluster, stack)
    tags = account.group_tags(group)
    if tags is None and cluster.resource_group:
        yield fault(subject, f"{group} does not exist", "cluster.resourceGroup",
                     f"az group create --name {group} --location {cluster.location}")  # fmt: skip
        return
    if tags is not None and not cluster.resource_group and tags.get("stack") != stack:
        fix = "Choose another name, or set cluster.resourceGroup to use this group."
        yield fault(subject, f"another resource group is named {group}", key, fix)
    other = account.cluster_tags(group, name) if tags is not None else None
    if other is not None and other.get("stack") != stack:
        yield fault(subject, f"{group} has another cluster {name}", key, "Choose another name.")
    nodes = node_group_name(name, stack)
    if other is None and account.group_tags(nodes) is not None:
        fix = f"It remains from a deleted cluster: az group delete --name {nodes}"
        yield fault(subject, f"the resource group {nodes} exists", key, fix)


def _storage_faults(
    account: AzureAccount, config: "StackConfig", cluster: "AksConfig", stack: str
) -> Iterator[AccountCheck]:
    """Yield a fault if the storage account is missing or unsuitable, or its name is taken."""
    from components.azure.names import account_name
    from components.config import BlobConfig, as_kind

    storage, group = as_kind(config.storage, BlobConfig), group_of(cluster, stack)
    if storage.account is not None:
        account_group, key = storage.account_resource_group or group, "storage.account"
        has_namespace = account.has_hierarchical_namespace(account_group, storage.account)
        if has_namespace is None:
            fix = "Correct the key or storage.accountResourceGroup: az storage account list --output table"
            yield fault(
                "names", f"{account_group} has no storage account {storage.account}", key, fix
            )
        elif not has_namespace:
            fix = "Use an account with one; `az storage account hns-migration start` adds it permanently."
            yield fault("names", f"{storage.account} has no hierarchical namespace", key, fix)
        return
    group_id = f"/subscriptions/{account.subscription_id}/resourceGroups/{group}"
    name = account_name(cluster.name, group_id)
    if (
        not account.account_name_is_free(name)
        and account.has_hierarchical_namespace(group, name) is None
    ):
        fix = "Choose another name for the cluster: the account's is derived from it, and unique in all of Azure."
        yield fault(
            "names", f"the storage account {name} belongs to another owner", "cluster.name", fix
        )


def _source_faults(
    account: AzureAccount, config: "StackConfig", cluster: "AksConfig", stack: str
) -> Iterator[AccountCheck]:
    """Yield a fault if the container with the data of the stack does not exist."""
    section = config.data.cache or config.data
    origin, key = section.origin, "data.cache.source" if config.data.cache else "data.source"
    if origin is None or origin.kind != "az":
        return
    group = section.source_resource_group or group_of(cluster, stack)
    if not account.has_container(group, origin.account, origin.bucket):
        observed = (
            f"{group} has no storage account {origin.account} with a container {origin.bucket}"
        )
        fix = "Correct the key or sourceResourceGroup: az storage account list --output table"
        yield fault("names", observed, key, fix)


def _registry_faults(
    account: AzureAccount, config: "StackConfig", cluster: "AksConfig", stack: str
) -> Iterator[AccountCheck]:
    """Yield a fault if the name of the registry is taken."""
    name = config.registry.name
    if config.registry.kind != "acr" or account.registry_name_is_free(name):
        return
    if not account.has_registry(group_of(cluster, stack), name):
        fix = "Choose another name: it is unique in all of Azure."
        yield fault("names", f"the registry {name} belongs to another owner", "registry.name", fix)


def check_secrets_vault(account: AzureAccount, secrets_provider: str) -> Iterator[AccountCheck]:
    """Check that the key vault of the stack's secrets is not soft-deleted."""
    match = VAULT.match(secrets_provider)
    if not match:
        return
    name = match["name"]
    if name.lower() in (deleted.lower() for deleted in account.deleted_vaults()):
        fix = f"Recover it with its keys: az keyvault recover --name {name}"
        yield fault("secrets provider", f"the key vault {name} is soft-deleted", "", fix)
    else:
        yield success("secrets provider", f"the key vault {name} is not deleted")
