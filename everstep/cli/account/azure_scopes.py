"""The parts of Azure in which a stack of kind aks changes something. Pure.

Nearly all resources are in the stack's resource group. With `cluster.resourceGroup`, an identity may have its roles in
this group only, but the stack has a budget of the subscription and grants roles on what the stack file names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudfacts.azure_actions import (
    ASSIGNMENT,
    BUDGET,
    CONTAINER,
    JOIN_FOR_STORAGE,
    JOIN_SUBNET,
    KINDS,
    actions_of,
)

if TYPE_CHECKING:
    from components.config import AksConfig, StackConfig

RBAC_ADMINISTRATOR = "Role Based Access Control Administrator"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """A subscription, resource group or resource in which a stack changes something.

    Attributes:
        id: its id in Resource Manager.
        label: its name for the user.
        field: key of the stack file because of which the stack changes it.
        actions: actions that the stack needs there.
        roles: built-in roles with these actions.
    """

    id: str
    label: str
    field: str
    actions: tuple[str, ...]
    roles: str


def main_scope_id(cluster: "AksConfig", subscription: str) -> str:
    """Return the id of the existing resource group of a stack, else of the subscription."""
    root = f"/subscriptions/{subscription}"
    return f"{root}/resourceGroups/{cluster.resource_group}" if cluster.resource_group else root


def further_scopes(
    config: "StackConfig", cluster: "AksConfig", subscription: str
) -> Iterator[Scope]:
    """Yield the scopes that are not inside the main scope, whose roles do not apply there.

    Args:
        config: the configuration of the stack.
        cluster: its `cluster` section.
        subscription: id of the subscription.
    """
    main = main_scope_id(cluster, subscription).lower()
    for scope in _named_scopes(config, cluster, subscription):
        if not f"{scope.id.lower()}/".startswith(f"{main}/"):
            yield scope


def _named_scopes(
    config: "StackConfig", cluster: "AksConfig", subscription: str
) -> Iterator[Scope]:
    """Yield all scopes besides the main scope that a stack file leads to."""
    root = f"/subscriptions/{subscription}"
    if config.cost.budget is not None:
        yield Scope(
            id=root,
            label="the subscription",
            field="cost.budget",
            actions=actions_of(BUDGET),
            roles="Cost Management Contributor",
        )
    yield from _network_scopes(config, cluster)
    yield from _storage_scopes(config, root)
    yield from _source_scopes(config, root)


def _network_scopes(config: "StackConfig", cluster: "AksConfig") -> Iterator[Scope]:
    """Yield the scopes of an existing subnet and of an existing DNS zone."""
    from components.config import BlobConfig, as_kind

    subnet, zone = cluster.network.subnet_id, cluster.dns_zone_id
    if subnet is not None:
        new_account = as_kind(config.storage, BlobConfig).account is None
        joins = (JOIN_SUBNET, JOIN_FOR_STORAGE) if new_account else (JOIN_SUBNET,)
        # With an existing zone, a role on the whole network allows AKS to link it.
        yield Scope(
            id=subnet.rsplit("/", 2)[0] if zone else subnet,
            label="the virtual network of the subnet" if zone else "the subnet",
            field="cluster.network.subnetId",
            actions=(*actions_of(ASSIGNMENT), *joins),
            roles=f"Network Contributor and {RBAC_ADMINISTRATOR}",
        )
    if zone is not None:
        yield Scope(
            id=zone,
            label="the DNS zone",
            field="cluster.privateDnsZone",
            actions=actions_of(ASSIGNMENT),
            roles=RBAC_ADMINISTRATOR,
        )


def _storage_scopes(config: "StackConfig", root: str) -> Iterator[Scope]:
    """Yield the scope of an existing storage account in another resource group."""
    from components.config import BlobConfig, as_kind

    storage = as_kind(config.storage, BlobConfig)
    if storage.account is None or storage.account_resource_group is None:
        return
    assignment = () if storage.protocol == "nfs" else actions_of(ASSIGNMENT)
    yield Scope(
        id=_account_id(root, storage.account_resource_group, storage.account),
        label=f"the storage account {storage.account}",
        field="storage.accountResourceGroup",
        actions=("Microsoft.Storage/storageAccounts/read", *actions_of(CONTAINER), *assignment),
        roles=f"Storage Account Contributor and {RBAC_ADMINISTRATOR}",
    )


def _source_scopes(config: "StackConfig", root: str) -> Iterator[Scope]:
    """Yield the scope of the container with the data, if it is in another resource group."""
    section = config.data.cache or config.data
    origin, group = section.origin, section.source_resource_group
    if origin is None or origin.kind != "az" or group is None:
        return
    account = _account_id(root, group, origin.account)
    yield Scope(
        id=f"{account}/blobServices/default/containers/{origin.bucket}",
        label=f"the container {origin.bucket} of {origin.account}",
        field="data.cache.source" if config.data.cache else "data.source",
        actions=(f"{KINDS[CONTAINER]}/read", *actions_of(ASSIGNMENT)),
        roles=f"Reader and {RBAC_ADMINISTRATOR}",
    )


def _account_id(root: str, group: str, account: str) -> str:
    """Return the id of a storage account."""
    return f"{root}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts/{account}"
