"""A Blob container as the shared volume: access, network rules, mount options and retention."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pulumi
import pytest

from components.azure import blob
from components.azure.blob import BlobArgs, BlobStorage, address_rule
from components.platform import claim
from everstep.catalog.names import JOB_NAMESPACE, TRAINER_SERVICE_ACCOUNT
from tests.components.azure.aks_stack import blob_of
from tests.components.recorder import Graph, record

GROUP = "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/g"
SUBNET = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v/subnets/nodes"
ISSUER = "https://eastus.oic.test/everstep/"
BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"


def storage(
    protect: bool = False,
    service_accounts: Sequence[str] = (TRAINER_SERVICE_ACCOUNT,),
    **config: Any,
) -> Graph:
    """Declare a volume without a cluster, with the claim that the stack adds."""
    output = pulumi.Output.from_input

    def program() -> Mapping[str, Any]:
        blob_storage = BlobStorage(
            "blob",
            BlobArgs(
                config=blob_of(**config),
                cluster="everstep",
                location="eastus",
                group=output("g"),
                group_id=output(GROUP),
                subnet_id=output(SUBNET),
                issuer=output(ISSUER),
                user_ranges=["203.0.113.0/24", "198.51.100.9/32"],
                tags={"owner": "vision"},
                service_accounts=service_accounts,
                protect=protect,
            ),
        )
        claim_args = claim.SharedClaimArgs(source=blob_storage.volume, namespace=JOB_NAMESPACE)
        claim.SharedClaim("shared", claim_args)
        return {"location": blob_storage.volume.location}

    return record(program)


@cache
def fuse() -> Graph:
    return storage()


@cache
def nfs() -> Graph:
    return storage(protocol="nfs", redundancy="Premium_LRS", retainDays=0)


@pytest.fixture(params=[fuse, nfs], ids=["fuse", "nfs"])
def graph(request: pytest.FixtureRequest) -> Graph:
    result: Graph = request.param()
    return result


def test_account_keys_public_blobs_and_old_tls_versions_are_disabled(graph: Graph) -> None:
    inputs = graph.one("StorageAccount").inputs

    assert inputs["allowSharedKeyAccess"] is False
    assert inputs["allowBlobPublicAccess"] is False
    assert inputs["allowCrossTenantReplication"] is False
    assert inputs["minimumTlsVersion"] == "TLS1_2"
    assert inputs["enableHttpsTrafficOnly"] is True
    assert graph.one("BlobContainer").inputs["publicAccess"] == "None"


def test_a_rename_is_atomic(graph: Graph) -> None:
    assert graph.one("StorageAccount").inputs["isHnsEnabled"] is True, (
        "a checkpoint is a folder that is renamed when it is complete"
    )


def test_only_nodes_and_listed_networks_reach_the_data() -> None:
    account = fuse().one("StorageAccount").inputs
    rules = account["networkRuleSet"]

    assert account["publicNetworkAccess"] == "Enabled", "otherwise Azure ignores the rules"
    assert rules["defaultAction"] == "Deny"
    assert [rule["virtualNetworkResourceId"] for rule in rules["virtualNetworkRules"]] == [SUBNET]
    assert [rule["iPAddressOrRange"] for rule in rules["ipRules"]] == [
        "203.0.113.0/24",
        "198.51.100.9",
    ]


def test_over_nfs_only_the_subnet_restricts_access() -> None:
    inputs = nfs().one("StorageAccount").inputs

    assert inputs["enableNfsV3"] is True
    assert inputs["networkRuleSet"]["defaultAction"] == "Deny"
    assert "ipRules" not in inputs["networkRuleSet"], (
        "NFS has no authentication: any allowed address has access"
    )
    assert not nfs().of_type("FederatedIdentityCredential")
    assert not nfs().of_type("RoleAssignment")


def test_ssds_need_a_different_kind_of_account() -> None:
    standard, premium = (stack().one("StorageAccount").inputs for stack in (fuse, nfs))

    assert (standard["kind"], standard["accessTier"]) == ("StorageV2", "Hot")
    assert premium["kind"] == "BlockBlobStorage"
    assert "accessTier" not in premium, (
        "a premium account has no access tier, and Azure refuses one"
    )


def test_only_the_trainer_may_read_and_write_blobs() -> None:
    role = fuse().one("RoleAssignment").inputs

    assert role["roleDefinitionId"].endswith(f"/{BLOB_DATA_CONTRIBUTOR}")
    assert role["principalId"] == "everstep-trainer-principal"
    assert role["scope"].rpartition("/")[2] == fuse().one("BlobContainer").inputs["containerName"]


def test_only_tokens_of_the_trainers_service_account_are_trusted() -> None:
    inputs = fuse().one("FederatedIdentityCredential").inputs

    assert inputs["issuer"] == ISSUER
    assert inputs["subject"] == "system:serviceaccount:elastic-job:trainer"
    assert inputs["audiences"] == ["api://AzureADTokenExchange"]
    assert inputs["resourceName"] == "everstep-trainer"


def test_the_identity_trusts_the_service_account_of_the_pods() -> None:
    account = fuse()["shared-account"].inputs["metadata"]
    trust = fuse()["blob-trust-trainer"].inputs

    assert f"system:serviceaccount:{account['namespace']}:{account['name']}" == trust["subject"]
    assert account["annotations"] == {
        "azure.workload.identity/client-id": "everstep-trainer-client"
    }


def test_federated_credentials_are_created_one_after_the_other() -> None:
    graph = storage(service_accounts=("x", "y"))

    assert "blob-trust-x" in graph.ancestors("blob-trust-y"), "Azure refuses concurrent writes"


def test_the_volume_is_mounted_with_a_token() -> None:
    inputs = fuse()["shared-volume"].inputs
    csi = inputs["spec"]["csi"]
    account = fuse().one("StorageAccount").inputs["accountName"]

    assert csi["driver"] == "blob.csi.azure.com"
    assert csi["volumeHandle"] == f"g#{account}#training"
    assert csi["volumeAttributes"] == {
        "resourcegroup": "g",
        "storageaccount": account,
        "containerName": "training",
        "protocol": "fuse2",
        "clientID": "everstep-trainer-client",
        "mountWithWorkloadIdentityToken": "true",
    }
    assert inputs["metadata"]["annotations"] == {
        "pv.kubernetes.io/provisioned-by": "blob.csi.azure.com"
    }


def test_over_nfs_the_volume_is_mounted_without_a_token() -> None:
    spec = nfs()["shared-volume"].inputs["spec"]
    attributes = spec["csi"]["volumeAttributes"]

    assert attributes["protocol"] == "nfs"
    assert not {"clientID", "mountWithWorkloadIdentityToken"} & set(attributes)
    assert "actimeo=5" in spec["mountOptions"], "a node must see a checkpoint of another node soon"
    assert "nolock" in spec["mountOptions"]


def test_workers_see_new_files_of_other_workers_within_seconds() -> None:
    options = dict(
        option.removeprefix("-o ").lstrip("-").partition("=")[::2]
        for option in blob.BLOBFUSE_OPTIONS
    )

    assert options["negative_timeout"] == "0", "negative caching would hide a new checkpoint"
    for option in ("attr_timeout", "entry_timeout", "attr-cache-timeout"):
        assert int(options[option]) <= 5, f"a longer {option} would hide a new checkpoint"
    assert options["use-adls"] == "true", "the account has a hierarchical namespace"


def test_files_belong_to_the_user_that_workers_run_as() -> None:
    options = set(blob.BLOBFUSE_OPTIONS)

    assert {"-o allow_other", "-o uid=10001", "-o gid=10001"} <= options, (
        "blobfuse2 ignores the fsGroup of a pod"
    )


def test_two_pods_on_a_node_do_not_share_a_cache_folder() -> None:
    assert not any("tmp-path" in option for option in blob.BLOBFUSE_OPTIONS), (
        "the driver creates a folder for each mount; a fixed path would be shared"
    )


def test_the_role_exists_before_the_mount_and_outlives_it() -> None:
    prerequisites = {
        "blob-container",
        "blob-data-contributor",
        "blob-trust-trainer",
        "blob-account",
    }

    assert prerequisites <= fuse().ancestors("shared-volume")
    assert "blob-container" in nfs().ancestors("shared-volume")


def test_deleted_blobs_can_be_restored_for_the_configured_days() -> None:
    for policy in ("deleteRetentionPolicy", "containerDeleteRetentionPolicy"):
        assert fuse().one("BlobServiceProperties").inputs[policy] == {"enabled": True, "days": 7}
        assert nfs().one("BlobServiceProperties").inputs[policy] == {"enabled": False}


def test_an_existing_account_is_not_changed() -> None:
    graph = storage(account="theiraccount", accountResourceGroup="theirs", container="runs")

    assert not graph.of_type("StorageAccount")
    assert not graph.of_type("BlobServiceProperties"), "its settings belong to the user"
    container = graph.one("BlobContainer").inputs
    assert (container["accountName"], container["resourceGroupName"]) == ("theiraccount", "theirs")
    assert graph.one("RoleAssignment").inputs["scope"].endswith("/runs"), "no other container"
    assert graph["shared-volume"].inputs["spec"]["csi"]["volumeHandle"] == (
        "theirs#theiraccount#runs"
    )


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("203.0.113.0/24", ["203.0.113.0/24"]),
        ("203.0.113.4/30", ["203.0.113.4/30"]),
        ("203.0.113.4/31", ["203.0.113.4", "203.0.113.5"]),
        ("203.0.113.4/32", ["203.0.113.4"]),
    ],
)
def test_address_ranges_have_the_format_of_a_storage_account(
    block: str, expected: list[str]
) -> None:
    assert address_rule(block) == expected, "an account accepts no block smaller than a /30"
