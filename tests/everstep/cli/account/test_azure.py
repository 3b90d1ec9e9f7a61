"""`everstep doctor --stack` for Azure: Azure's SDK over HTTPS against the twin's subscription."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.accounts import AZURE_SUBSCRIPTION
from cloudtwin.providers.account import Account
from cloudtwin.providers.azure.common import GROUP, TENANT
from cloudtwin.providers.azure.identity import CLUSTER
from cloudtwin.providers.azure.storage import ACCOUNT, CONTAINER, REGISTRY
from cloudtwin.providers.inventory import Resource

from components.azure.names import account_name
from components.config import from_mapping
from everstep.cli.account.azure import allows
from everstep.cli.account.azure_account import Permission
from everstep.cli.account.checks import AccountCheck
from everstep.cli.account.doctor import account_checks
from tests.everstep.cli.account.cases import (
    Case,
    Doctor,
    check_case,
    check_named,
    check_plain_values,
    failed_checks,
    only_failed_check,
)
from twin.tests.account_api.azure import AzureApi, SubscriptionFacts
from twin.tests.account_api.azure_https import serve

STACK = "aks-test"
GROUP_NAME, NODE_GROUP = f"everstep-{STACK}", f"everstep-{STACK}-nodes"
ROOT = f"/subscriptions/{AZURE_SUBSCRIPTION}/resourceGroups"
PROVIDERS = f"{ROOT}/{GROUP_NAME}/providers"
ADMIN_GROUP, OTHER_GROUP = (
    "11111111-2222-3333-4444-555555555555",
    "66666666-7777-8888-9999-aaaaaaaaaaaa",
)
TAGS = {"owner": "vision", "costCenter": "4711", "environment": "dev"}
STORAGE_NAME = account_name("everstep", f"{ROOT}/{GROUP_NAME}")
T4, A100 = "Standard_NC4as_T4_v3", "Standard_NC24ads_A100_v4"
SIZES = [{"name": "t4", "vmSize": T4}, {"name": "a100", "vmSize": A100}]
CLUSTER_CONFIG: dict[str, Any] = {
    "kind": "aks",
    "subscription": AZURE_SUBSCRIPTION,
    "administrators": [ADMIN_GROUP],
    "authorizedRanges": ["203.0.113.0/24"],
    "gpuPool": {"vmSizes": SIZES, "maxNodes": 4},
}
SUFFICIENT_FACTS = SubscriptionFacts(
    groups=frozenset({ADMIN_GROUP}),
    limits={"lowPriorityCores": 200, "standardDSv5Family": 20},
)
SPOT_FIELD = "cluster.gpuPool.vmSizes[0].vmSize"


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Return a function that checks a subscription with given facts for a stack with given keys."""

    def check(
        *,
        cluster: Mapping[str, Any] | None = None,
        sections: Mapping[str, Any] | None = None,
        vault: str = "",
        login: Mapping[str, str | None] | None = None,
        **facts: Any,
    ) -> list[AccountCheck]:
        config = from_mapping(
            {"tags": TAGS, "cluster": {**CLUSTER_CONFIG, **(cluster or {})}, **(sections or {})}
        )
        with serve(AzureApi(tmp_path, replace(SUFFICIENT_FACTS, **facts))) as environment:
            for name, value in {**environment, **(login or {})}.items():
                if value is None:
                    monkeypatch.delenv(name, raising=False)
                else:
                    monkeypatch.setenv(name, value)
            return account_checks(config, STACK, vault)

    return check


def add_resource(state: Path, token: str, path: str, **inputs: Any) -> None:
    """Add a resource to the subscription."""
    with Account(state, "azure-native").transaction() as transaction:
        resource = Resource(token=token, id=path, urn="", inputs=inputs, outputs={}, ready=True)
        transaction.put(resource)


def add_stack(state: Path) -> None:
    """Add the resources of a stack that is up."""
    tags = {"stack": STACK}
    add_resource(state, GROUP, f"{ROOT}/{GROUP_NAME}", tags=tags)
    add_resource(state, GROUP, f"{ROOT}/{NODE_GROUP}")
    cluster = f"{PROVIDERS}/Microsoft.ContainerService/managedClusters/everstep"
    add_resource(state, CLUSTER, cluster, tags=tags)
    account = f"{PROVIDERS}/Microsoft.Storage/storageAccounts/{STORAGE_NAME}"
    add_resource(state, ACCOUNT, account, accountName=STORAGE_NAME, isHnsEnabled=True)
    registry = f"{PROVIDERS}/Microsoft.ContainerRegistry/registries/visionimages"
    add_resource(state, REGISTRY, registry, registryName="visionimages")


def test_a_subscription_that_has_everything_passes_all_checks(doctor: Doctor) -> None:
    checks = doctor()

    assert failed_checks(checks) == []
    assert {check.name for check in checks} == {
        *("identity", "subscription", "administrators", "registrations", "permissions"),
        *("role assignments", "names", "Kubernetes", "GPU pool t4", "GPU pool a100", "system pool"),
        *("quota, GPU pool t4, GPU pool a100", "quota, system pool", "images"),
    }


def test_an_expired_secret_ends_the_checks(doctor: Doctor) -> None:
    (check,) = doctor(secret="renewed")

    assert "AADSTS7000222" in check.observed
    assert "az login" in check.fix
    assert check.fatal


def test_no_login_is_a_result_and_not_a_traceback(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (check,) = doctor(login={"ARM_CLIENT_SECRET": None})

    assert "Azure CLI not found" in check.observed
    assert "az login" in check.fix


def test_an_invalid_tenant_is_a_result_and_not_a_traceback(doctor: Doctor) -> None:
    (check,) = doctor(login={"ARM_TENANT_ID": "my tenant"})

    assert "nvalid tenant" in check.observed
    assert "ARM_*" in check.fix


def test_a_pipeline_without_a_token_names_the_missing_variable(doctor: Doctor) -> None:
    (check,) = doctor(login={"ARM_USE_OIDC": "true"})

    assert "ACTIONS_ID_TOKEN_REQUEST_URL" in check.observed


@pytest.mark.parametrize(
    "source",
    [
        {"ARM_OIDC_TOKEN_FILE_PATH": "/nowhere/token"},
        {
            "ACTIONS_ID_TOKEN_REQUEST_URL": "http://127.0.0.1:1/",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "not-a-secret",
        },
    ],
    ids=["no file", "no response"],
)
def test_a_token_of_a_pipeline_that_cannot_be_read_is_a_result_and_not_a_traceback(
    doctor: Doctor, source: Mapping[str, str]
) -> None:
    (check,) = doctor(login={"ARM_USE_OIDC": "true", **source})

    assert check.name == "identity"
    assert "no token of a CI pipeline" in check.observed
    assert "not-a-secret" not in check.observed


def test_no_subscription_ends_the_checks(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    checks = doctor(cluster={"subscription": None}, login={"ARM_SUBSCRIPTION_ID": None})

    assert [check.name for check in checks] == ["identity", "subscription"]
    assert "az account set" in checks[1].fix


def test_an_unknown_subscription_ends_the_checks(doctor: Doctor) -> None:
    checks = doctor(cluster={"subscription": OTHER_GROUP})

    assert [check.name for check in checks] == ["identity", "subscription"]
    assert "SubscriptionNotFound" in checks[1].observed


CONTRIBUTOR = {"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Delete",
    "Microsoft.Authorization/*/Write", "Microsoft.Authorization/elevateAccess/Action"]}  # fmt: skip
READER = {"actions": ["*/read"], "notActions": []}
ACR = {"kind": "acr", "name": "visionimages"}
SOURCE = {
    "dataset": "imagefolder", "source": "az://visiondata/photos/x", "sourceResourceGroup": "data"
}  # fmt: skip
IMAGE = "visionimages.azurecr.io/everstep/trainer"
DIGEST = f"sha256:{'a' * 64}"

CASES: dict[str, Case] = {
    "no subscription named": (
        {"cluster": {"subscription": None}}, {}, "cluster.subscription",
        (AZURE_SUBSCRIPTION, "no other subscription"), False,
    ),
    "a disabled subscription": (
        {}, {"state": "Disabled"}, "cluster.subscription", ("is Disabled", "deleted only"), True,
    ),
    "a subscription that will be disabled": (
        {}, {"state": "Warned"}, "cluster.subscription", ("is Warned", "deleted only"), True,
    ),
    "a subscription with an open payment": (
        {}, {"state": "PastDue"}, "cluster.subscription", ("is PastDue", "Pay the open"), False,
    ),
    "an offer without spot machines": (
        {}, {"offer": "FreeTrial_2014-09-01"}, "cluster.gpuPool.capacity",
        ("FreeTrial_2014-09-01", "onDemand"), True,
    ),
    "no administrators": (
        {"cluster": {"administrators": []}}, {}, "cluster.administrators",
        ("local accounts are disabled",), True,
    ),
    "the caller is in no group": (
        {"cluster": {"administrators": [OTHER_GROUP]}}, {"objects": {OTHER_GROUP: "group"}},
        "cluster.administrators", ("is in none of them", f"--group {OTHER_GROUP} --member-id"), True,
    ),
    "a user in place of a group": (
        {"cluster": {"administrators": [ADMIN_GROUP, OTHER_GROUP]}}, {"objects": {OTHER_GROUP: "user"}},
        "cluster.administrators[1]", (f"{OTHER_GROUP} is a user", "az ad group list"), True,
    ),
    "a group of another tenant": (
        {"cluster": {"administrators": [ADMIN_GROUP, OTHER_GROUP]}}, {}, "cluster.administrators[1]",
        (f"the tenant has no object {OTHER_GROUP}",), True,
    ),
    "the directory cannot be read": (
        {}, {"denied": frozenset({"graph"})}, "",
        ("not checked: Microsoft Graph: Directory.Read.All: Authorization_RequestDenied",), False,
    ),
    "a resource provider that is not registered": (
        {"cluster": {"monitoring": {"managedPrometheus": True}}},
        {"unregistered": frozenset({"Microsoft.Monitor"})}, "cluster.monitoring.managedPrometheus",
        ("Microsoft.Monitor is NotRegistered", "az provider register --namespace Microsoft.Monitor"),
        True,
    ),
    "role assignments are not allowed": (
        {}, {"permissions": [CONTRIBUTOR]}, "",
        ("Microsoft.Authorization/roleAssignments/write", "Role Based Access Control Administrator"),
        True,
    ),
    "permissions cannot be read": (
        {}, {"denied": frozenset({"Microsoft.Authorization/permissions/read"})}, "",
        ("not checked: Microsoft.Authorization/permissions/read: AuthorizationFailed",), False,
    ),
    "a resource group that does not exist": (
        {"cluster": {"resourceGroup": "team"}}, {}, "cluster.resourceGroup",
        ("team does not exist", "az group create --name team"), True,
    ),
    "a storage account of another owner": (
        {}, {"taken": frozenset({STORAGE_NAME})}, "cluster.name",
        (f"the storage account {STORAGE_NAME} belongs to another owner",), True,
    ),
    "a storage account of the user that does not exist": (
        {"sections": {"storage": {"kind": "blob", "account": "visiondata"}}}, {}, "storage.account",
        (f"{GROUP_NAME} has no storage account visiondata",), True,
    ),
    "a container of photographs that does not exist": (
        {"sections": {"data": SOURCE}}, {}, "data.source",
        ("data has no storage account visiondata with a container photos", "sourceResourceGroup"), True,
    ),
    "a container of shards that does not exist": (
        {"sections": {"data": {"dataset": "imagefolder", "cache": {
            "source": "az://visiondata/shards", "sourceResourceGroup": "data"}}}}, {},
        "data.cache.source", ("visiondata with a container shards", "az storage account list"), True,
    ),
    "a registry of another owner": (
        {"sections": {"registry": ACR}}, {"taken": frozenset({"visionimages"})}, "registry.name",
        ("the registry visionimages belongs to another owner", "unique in all of Azure"), True,
    ),
    "a deleted key vault": (
        {"vault": "azurekeyvault://ORG-everstep.vault.azure.net/keys/state"},
        {"deleted_vaults": frozenset({"ORG-everstep"})}, "",
        ("ORG-everstep is soft-deleted", "az keyvault recover --name ORG-everstep"), True,
    ),
    "a version of Kubernetes that is not offered": (
        {"cluster": {"kubernetesVersion": "1.37"}}, {"kubernetes": {"1.36": ("KubernetesOfficial",)}},
        "cluster.kubernetesVersion", ("does not offer 1.37", "Use 1.36."), True,
    ),
    "a version with long-term support only": (
        {"cluster": {"kubernetesVersion": "1.35"}},
        {"kubernetes": {"1.35": ("AKSLongTermSupport",), "1.36": ("KubernetesOfficial",)}},
        "cluster.kubernetesVersion", ("AKSLongTermSupport only", "Use 1.36."), True,
    ),
    "a size that the location lacks": (
        {}, {"not_offered": frozenset({T4})}, SPOT_FIELD,
        (f"{T4} is not offered in eastus", "az vm list-skus"), True,
    ),
    "a size that the subscription may not use": (
        {}, {"restricted": frozenset({(T4, "")})}, SPOT_FIELD,
        ("NotAvailableForSubscription", "support request"), True,
    ),
    "a size without spot machines": (
        {}, {"not_on_spot": frozenset({T4})}, SPOT_FIELD, (f"{T4} has no spot machines",), True,
    ),
    "a zone without the size": (
        {}, {"restricted": frozenset({("Standard_D4s_v5", "1")})}, "cluster.systemPool.zones",
        ("Standard_D4s_v5 is not available in zone 1", "Use one of its zones: 2, 3"), True,
    ),
    "the default spot quota": (
        {}, {"limits": {"standardDSv5Family": 20}}, SPOT_FIELD,
        ("3 of 3 vCPUs free, 112 for all nodes: lowPriorityCores", "Request 112"), True,
    ),
    "a spot quota for a part of the nodes": (
        {}, {"limits": {"standardDSv5Family": 20, "lowPriorityCores": 60}}, SPOT_FIELD,
        ("60 of 60 vCPUs free",), False,
    ),
    "a quota that others use": (
        {}, {"used": {"standardDSv5Family": 18}}, "cluster.systemPool.vmSize",
        ("2 of 20 vCPUs free, 12 for all nodes: standardDSv5Family", "Request 30"), True,
    ),
    "no quota for the fallback": (
        {"cluster": {"gpuPool": {"vmSizes": SIZES[:1], "maxNodes": 4, "fallbackNodes": 2}}}, {},
        SPOT_FIELD, ("0 of 0 vCPUs free, 8 for all nodes: standardNCAST4v3Family",), True,
    ),
    "quotas cannot be read": (
        {}, {"denied": frozenset({"Microsoft.Compute/locations/usages/read"})}, "",
        ("not checked: Microsoft.Compute/locations/usages/read", "check it by hand"), False,
    ),
    "a tag that was not pushed": (
        {"sections": {"job": {"image": f"{IMAGE}:1.0"}}},
        {"images": frozenset({"everstep/trainer:0.9"})}, "job.image",
        (f"{IMAGE}:1.0 does not exist", "everstep images push"), True,
    ),
    "a digest that was not pushed": (
        {"sections": {"job": {"image": f"{IMAGE}@{DIGEST}"}}}, {}, "job.image",
        (f"{IMAGE}@{DIGEST} does not exist",), True,
    ),
    "an image of a DaemonSet that was not pushed": (
        {"sections": {"platform": {"spot": {"image": f"{IMAGE}:1.0"}}}}, {}, "platform.spot.image",
        (f"{IMAGE}:1.0 does not exist",), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_fault_of_the_subscription_names_its_field_and_fix(doctor: Doctor, name: str) -> None:
    assert len(check_case(doctor, CASES[name])) == 1, "one fault is one result"


def test_a_push_needs_its_permission_if_the_stack_has_a_registry(doctor: Doctor) -> None:
    without_push = {
        "actions": ["*"],
        "notActions": ["Microsoft.ContainerRegistry/registries/push/*"],
    }

    assert failed_checks(doctor(permissions=[without_push])) == []
    check = only_failed_check(doctor(permissions=[without_push], sections={"registry": ACR}))
    assert check.observed == "not allowed: Microsoft.ContainerRegistry/registries/push/write"


def test_each_scope_outside_the_resource_group_is_queried(doctor: Doctor, tmp_path: Path) -> None:
    add_resource(tmp_path, GROUP, f"{ROOT}/team")
    network = f"{ROOT}/hub/providers/Microsoft.Network/virtualNetworks/v"
    cluster = {"resourceGroup": "team", "network": {"subnetId": f"{network}/subnets/s"}}
    budget = {"budget": {"monthlyUsd": 500, "email": "owner@example.org"}}

    checks = doctor(cluster=cluster, sections={"cost": budget})

    fields = [check.field for check in checks if check.name == "permissions" and check.passed]
    assert fields == ["", "cost.budget", "cluster.network.subnetId"]


def test_a_reader_lacks_every_permission_to_change_something(doctor: Doctor) -> None:
    checks = doctor(permissions=[READER])

    assert "Contributor" in check_named(checks, "permissions").fix
    assert "more" in check_named(checks, "permissions").observed
    assert not check_named(checks, "role assignments").passed


def test_two_roles_together_are_enough(doctor: Doctor) -> None:
    rbac = {"actions": ["Microsoft.Authorization/roleAssignments/*"], "notActions": []}

    assert failed_checks(doctor(permissions=[CONTRIBUTOR, rbac])) == []


def test_a_resource_provider_may_be_spelled_in_lower_case(doctor: Doctor) -> None:
    monitoring = {"monitoring": {"containerInsights": True}}

    assert failed_checks(doctor(cluster=monitoring)) == []


HUB = "99999999-3333-4444-5555-666666666666"


def zone_in(subscription: str) -> dict[str, Any]:
    """Return the cluster section of a private API with a DNS zone in a subscription."""
    zones = f"/subscriptions/{subscription}/resourceGroups/dns/providers/Microsoft.Network/privateDnsZones"
    zone = f"{zones}/privatelink.eastus.azmk8s.io"
    return {"privateApi": True, "privateDnsZone": zone, "authorizedRanges": []}


def test_aks_has_to_be_registered_in_the_subscription_of_the_dns_zone(doctor: Doctor) -> None:
    check = only_failed_check(
        doctor(cluster=zone_in(HUB), zone_subscriptions={HUB: "NotRegistered"})
    )

    assert (check.name, check.field, check.fatal) == (
        "registrations",
        "cluster.privateDnsZone",
        True,
    )
    assert "Microsoft.ContainerService is NotRegistered" in check.observed
    assert f"--namespace Microsoft.ContainerService --subscription {HUB}" in check.fix


def test_a_dns_zone_of_a_registered_subscription_passes(doctor: Doctor) -> None:
    checks = doctor(cluster=zone_in(HUB), zone_subscriptions={HUB: "Registered"})

    assert failed_checks(checks) == []
    fields = [check.field for check in checks if check.name == "registrations"]
    assert fields == ["", "cluster.privateDnsZone"]


def test_an_unreadable_subscription_of_the_dns_zone_is_a_warning(doctor: Doctor) -> None:
    failed = failed_checks(doctor(cluster=zone_in(HUB)))

    assert {check.name for check in failed} == {"registrations", "permissions"}
    for check in failed:
        assert check.observed.startswith("not checked: "), check.name
        assert not check.fatal, check.name


def test_a_dns_zone_of_the_same_subscription_is_registered_with_it(doctor: Doctor) -> None:
    checks = doctor(cluster=zone_in(AZURE_SUBSCRIPTION.upper()))

    assert len([check for check in checks if check.name == "registrations"]) == 1


def test_an_unregistered_provider_does_not_hide_the_other_results(doctor: Doctor) -> None:
    checks = doctor(unregistered=frozenset({"Microsoft.Compute"}))

    assert check_named(checks, "registrations").fatal
    assert "MissingSubscriptionRegistration" in check_named(checks, "VM sizes").observed
    for name in ("permissions", "names", "Kubernetes"):
        assert check_named(checks, name).passed


def test_a_node_resource_group_that_a_deleted_cluster_left_is_named(
    doctor: Doctor, tmp_path: Path
) -> None:
    add_resource(tmp_path, GROUP, f"{ROOT}/{NODE_GROUP}")
    check = only_failed_check(doctor())

    assert check.field == "cluster.name"
    assert f"az group delete --name {NODE_GROUP}" in check.fix


def test_a_resource_group_of_another_stack_is_named(doctor: Doctor, tmp_path: Path) -> None:
    add_resource(tmp_path, GROUP, f"{ROOT}/{GROUP_NAME}", tags={"stack": "theirs"})
    check = only_failed_check(doctor())

    assert f"another resource group is named {GROUP_NAME}" in check.observed


def test_a_cluster_of_another_stack_in_the_group_is_named(doctor: Doctor, tmp_path: Path) -> None:
    add_resource(tmp_path, GROUP, f"{ROOT}/team")
    path = f"{ROOT}/team/providers/Microsoft.ContainerService/managedClusters/everstep"
    add_resource(tmp_path, CLUSTER, path, tags={"stack": "theirs"})
    check = only_failed_check(doctor(cluster={"resourceGroup": "team"}))

    assert "team has another cluster everstep" in check.observed


def test_an_existing_account_needs_a_hierarchical_namespace(doctor: Doctor, tmp_path: Path) -> None:
    path = f"{ROOT}/data/providers/Microsoft.Storage/storageAccounts/visiondata"
    add_resource(tmp_path, ACCOUNT, path, accountName="visiondata", isHnsEnabled=False)
    storage = {"kind": "blob", "account": "visiondata", "accountResourceGroup": "data"}
    check = only_failed_check(doctor(sections={"storage": storage}))

    assert check.field == "storage.account"
    assert "hierarchical namespace" in check.observed


def test_a_container_of_photographs_that_exists_passes(doctor: Doctor, tmp_path: Path) -> None:
    account = f"{ROOT}/data/providers/Microsoft.Storage/storageAccounts/visiondata"
    add_resource(tmp_path, CONTAINER, f"{account}/blobServices/default/containers/photos")

    assert failed_checks(doctor(sections={"data": SOURCE})) == []


def test_a_stack_that_is_up_collides_with_nothing(doctor: Doctor, tmp_path: Path) -> None:
    add_stack(tmp_path)
    usage = {"lowPriorityCores": 150, "standardDSv5Family": 12}

    assert failed_checks(doctor(sections={"registry": ACR}, used=usage)) == []


def test_pushed_images_pass(doctor: Doctor) -> None:
    job, controller = f"{IMAGE}@{DIGEST}", "visionimages.azurecr.io/everstep/controller:1.0"
    images = frozenset({f"everstep/trainer@{DIGEST}", "everstep/controller:1.0"})
    sections = {"job": {"image": job}, "controller": {"image": controller}}

    checks = doctor(sections=sections, images=images)

    assert [(check.field, check.passed) for check in checks if check.name == "images"] == [
        ("job.image", True),
        ("controller.image", True),
        ("", True),  # images of other registries
    ]


def test_the_login_is_shown_with_its_tenant(doctor: Doctor) -> None:
    assert TENANT in doctor()[0].observed


def test_the_results_are_plain_values(doctor: Doctor) -> None:
    check_plain_values(doctor())


@pytest.mark.parametrize(
    ("actions", "excluded", "allowed"),
    [
        (("*",), (), True),
        (("Microsoft.Network/*",), (), True),
        (("microsoft.network/NATGATEWAYS/write",), (), True),
        (("Microsoft.Network/natGateways",), (), False),
        (("*/read",), (), False),
        (("*",), ("Microsoft.Network/*/Write",), False),
        ((), (), False),
    ],
)
def test_wildcards_in_a_role_match_as_in_azure(
    actions: tuple[str, ...], excluded: tuple[str, ...], allowed: bool
) -> None:
    action = "Microsoft.Network/natGateways/write"

    assert allows([Permission(actions, excluded)], action) is allowed
