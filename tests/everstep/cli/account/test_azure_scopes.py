"""The permissions of an Azure stack outside its resource group."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from cloudfacts.azure_actions import ASSIGNMENT, actions_of

from components.config import AksConfig, as_kind, from_mapping
from everstep.cli.account.azure import check_permissions
from everstep.cli.account.azure_account import AzureAccount, Permission
from everstep.cli.account.azure_scopes import further_scopes
from everstep.cli.account.checks import AccountCheck, RequestError
from everstep.resources import PACKAGES

SUBSCRIPTION = "22222222-3333-4444-5555-666666666666"
HUB = "99999999-3333-4444-5555-666666666666"
ROOT = f"/subscriptions/{SUBSCRIPTION}/resourceGroups"
NETWORK = f"{ROOT}/hub/providers/Microsoft.Network/virtualNetworks/v"
ZONE = (
    f"/subscriptions/{HUB}/resourceGroups/dns/providers/Microsoft.Network/privateDnsZones/"
    "privatelink.eastus.azmk8s.io"
)
DATA = {"dataset": "imagefolder", "source": "az://visiondata/photos/x"}
BUDGET = {"budget": {"monthlyUsd": 500, "email": "owner@example.org"}}
BLOB = {"kind": "blob", "account": "shared", "accountResourceGroup": "data"}


def stack(cluster: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """Return a stack whose resource group is `team`."""
    required = {
        "kind": "aks",
        "subscription": SUBSCRIPTION,
        "resourceGroup": "team",
        "administrators": ["11111111-2222-3333-4444-555555555555"],
    }
    public = {} if cluster.get("privateApi") else {"authorizedRanges": ["203.0.113.7/32"]}
    tags = {"owner": "vision", "costCenter": "4711", "environment": "dev"}
    return {"tags": tags, "cluster": {**required, **public, **cluster}, **sections}


SUBNET = {"network": {"subnetId": f"{NETWORK}/subnets/s"}}
PRIVATE = {"privateApi": True, "privateDnsZone": ZONE}

CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a budget": (
        stack({}, cost=BUDGET), "cost.budget", f"/subscriptions/{SUBSCRIPTION}",
    ),
    "an existing subnet": (
        stack(SUBNET), "cluster.network.subnetId", f"{NETWORK}/subnets/s",
    ),
    "an existing DNS zone": (
        stack({**PRIVATE}), "cluster.privateDnsZone", ZONE,
    ),
    "an existing storage account": (
        stack({}, storage=BLOB), "storage.accountResourceGroup",
        f"{ROOT}/data/providers/Microsoft.Storage/storageAccounts/shared",
    ),
    "data in another resource group": (
        stack({}, data={**DATA, "sourceResourceGroup": "lake"}), "data.source",
        f"{ROOT}/lake/providers/Microsoft.Storage/storageAccounts/visiondata/blobServices/default/containers/photos",
    ),
    "a cache of data in another resource group": (
        stack({}, data={"dataset": "imagefolder", "cache": {"source": "az://visiondata/photos/x",
                                                            "sourceResourceGroup": "lake"}}),
        "data.cache.source",
        f"{ROOT}/lake/providers/Microsoft.Storage/storageAccounts/visiondata/blobServices/default/containers/photos",
    ),
}  # fmt: skip


@dataclass
class OwnerOf:
    """An account whose caller has the role Owner in some scopes and no role elsewhere."""

    scopes: tuple[str, ...] = (f"{ROOT}/team",)
    unreadable: tuple[str, ...] = ()
    subscription_id: str = SUBSCRIPTION
    requested: list[str] = field(default_factory=list)

    def permissions(self, scope: str) -> list[Permission]:
        self.requested.append(scope)
        if scope in self.unreadable:
            action = "Microsoft.Authorization/permissions/read"
            raise RequestError(action, "AuthorizationFailed", f"not authorized in {scope}")
        inherits = any(f"{scope}/".startswith(f"{owned}/") for owned in self.scopes)
        return [Permission(("*",), ())] if inherits else []


def checks(document: dict[str, Any], account: OwnerOf) -> list[AccountCheck]:
    config = from_mapping(document)
    cluster = as_kind(config.cluster, AksConfig)
    return list(check_permissions(cast("AzureAccount", account), config, cluster))


def failed(results: Sequence[AccountCheck]) -> list[AccountCheck]:
    return [check for check in results if not check.passed]


@pytest.mark.parametrize("name", CASES)
def test_a_role_in_the_resource_group_is_not_enough_elsewhere(name: str) -> None:
    document, key, scope = CASES[name]
    account = OwnerOf()

    (check,) = failed(checks(document, account))

    assert (check.field, check.fatal) == (key, True)
    assert "not allowed in the" in check.observed
    assert "Assign " in check.fix
    assert account.requested == [f"{ROOT}/team", scope]


@pytest.mark.parametrize("name", CASES)
def test_a_role_on_the_named_resource_is_enough(name: str) -> None:
    document, key, scope = CASES[name]

    results = checks(document, OwnerOf((f"{ROOT}/team", scope)))

    assert failed(results) == []
    assert key in [check.field for check in results]


def test_a_stack_with_all_of_them_has_one_result_for_each() -> None:
    document = stack({**SUBNET, **PRIVATE}, cost=BUDGET, storage=BLOB)

    assert [check.field for check in failed(checks(document, OwnerOf()))] == [
        "cost.budget",
        "cluster.network.subnetId",
        "cluster.privateDnsZone",
        "storage.accountResourceGroup",
    ]


def test_a_role_in_the_subscription_applies_to_all_resources_in_it() -> None:
    document = stack({**SUBNET, "resourceGroup": None}, cost=BUDGET, storage=BLOB)
    account = OwnerOf((f"/subscriptions/{SUBSCRIPTION}",))

    assert failed(checks(document, account)) == []
    assert account.requested == [f"/subscriptions/{SUBSCRIPTION}"]


def test_a_dns_zone_of_another_subscription_is_checked_with_a_role_in_the_subscription() -> None:
    document = stack({**PRIVATE, "resourceGroup": None})

    (check,) = failed(checks(document, OwnerOf((f"/subscriptions/{SUBSCRIPTION}",))))

    assert check.field == "cluster.privateDnsZone"


def test_with_a_dns_zone_the_roles_are_for_the_whole_network() -> None:
    config = from_mapping(stack({**SUBNET, **PRIVATE}))
    cluster = as_kind(config.cluster, AksConfig)

    assert [scope.id for scope in further_scopes(config, cluster, SUBSCRIPTION)] == [NETWORK, ZONE]


def test_names_of_resource_groups_are_compared_without_case() -> None:
    subnet = f"{NETWORK.replace('/hub/', '/TEAM/')}/subnets/s"
    config = from_mapping(stack({"network": {"subnetId": subnet}}))
    cluster = as_kind(config.cluster, AksConfig)

    assert list(further_scopes(config, cluster, SUBSCRIPTION)) == []


def test_an_unreadable_scope_does_not_hide_the_other_results() -> None:
    account = OwnerOf(unreadable=(f"{NETWORK}/subnets/s",))
    results = failed(checks(stack(SUBNET, cost=BUDGET), account))

    assert [check.field for check in results] == ["cost.budget", ""]
    assert results[1].observed.startswith("not checked: Microsoft.Authorization/permissions/read")


def test_nfs_needs_no_role_on_an_existing_account() -> None:
    config = from_mapping(
        stack({}, storage={**BLOB, "protocol": "nfs", "redundancy": "Premium_LRS"})
    )
    (scope,) = further_scopes(config, as_kind(config.cluster, AksConfig), SUBSCRIPTION)

    assert not set(actions_of(ASSIGNMENT)) & set(scope.actions)


@pytest.mark.parametrize("key", sorted({key for _, key, _ in CASES.values()}))
def test_the_guide_lists_the_scopes(key: str) -> None:
    section = (PACKAGES / "docs/aks.md").read_text().partition("\n## Permissions\n")[2]

    assert f"`{key}`" in section.partition("\n## ")[0]
