"""A Blob container as the shared volume: who may mount it, from where, and what is kept."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pulumi
import pytest

from components.network.vnet import Vnet, VnetArgs
from components.stack import NAMESPACE
from components.storage import VolumeSource, blob, claim
from components.storage.blob import BlobArgs, BlobStorage, address_rule
from tests.unit.components.aks_stack import blob_of, cluster_of
from tests.unit.components.recorder import Graph, record

GROUP = "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/g"
SUBNET = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v/subnets/nodes"
ISSUER = "https://eastus.oic.test/everstep/"


def storage(protect: bool = False, **said: Any) -> Graph:
    """Declare a volume alone, with the claim on it as the stack would make it."""
    out = pulumi.Output.from_input

    def program() -> Mapping[str, Any]:
        made = BlobStorage(
            "blob",
            BlobArgs(
                config=blob_of(**said),
                cluster_name="everstep",
                location="eastus",
                group=out("g"),
                group_id=out(GROUP),
                subnet_id=out(SUBNET),
                issuer=out(ISSUER),
                visitors=["203.0.113.0/24", "198.51.100.9/32"],
                tags={"owner": "vision"},
                protect=protect,
            ),
        )
        claimed(made.volume)
        return {"where": made.volume.where}

    return record(program)


def claimed(source: VolumeSource) -> claim.SharedClaim:
    return claim.SharedClaim("shared", claim.SharedClaimArgs(source=source, namespace=NAMESPACE))


@cache
def fuse() -> Graph:
    return storage()


@cache
def nfs() -> Graph:
    return storage(protocol="nfs", redundancy="Premium_LRS", retainDays=0)


@pytest.fixture(params=[fuse, nfs], ids=["fuse", "nfs"])
def graph(request: pytest.FixtureRequest) -> Graph:
    found: Graph = request.param()
    return found


def test_an_account_has_no_keys_no_public_blobs_and_no_old_tls(graph: Graph) -> None:
    said = graph.one("StorageAccount").inputs

    assert said["allowSharedKeyAccess"] is False
    assert said["allowBlobPublicAccess"] is False
    assert said["allowCrossTenantReplication"] is False
    assert said["minimumTlsVersion"] == "TLS1_2"
    assert said["enableHttpsTrafficOnly"] is True
    assert graph.one("BlobContainer").inputs["publicAccess"] == "None"


def test_a_rename_is_one_step(graph: Graph) -> None:
    assert graph.one("StorageAccount").inputs["isHnsEnabled"] is True, (
        "a checkpoint is a folder that is renamed when it is whole"
    )


def test_only_the_nodes_and_known_people_reach_the_data() -> None:
    said = fuse().one("StorageAccount").inputs["networkRuleSet"]

    assert said["defaultAction"] == "Deny"
    assert [one["virtualNetworkResourceId"] for one in said["virtualNetworkRules"]] == [SUBNET]
    assert [one["iPAddressOrRange"] for one in said["ipRules"]] == [
        "203.0.113.0/24",
        "198.51.100.9",
    ]


def test_over_nfs_the_subnet_is_the_only_lock() -> None:
    said = nfs().one("StorageAccount").inputs

    assert said["enableNfsV3"] is True
    assert said["networkRuleSet"]["defaultAction"] == "Deny"
    assert "ipRules" not in said["networkRuleSet"], "NFS knows no users: an address would do"
    assert not nfs().of("FederatedIdentityCredential")
    assert not nfs().of("RoleAssignment")


def test_ssds_are_an_account_of_another_kind() -> None:
    standard, premium = (one().one("StorageAccount").inputs for one in (fuse, nfs))

    assert (standard["kind"], standard["accessTier"]) == ("StorageV2", "Hot")
    assert premium["kind"] == "BlockBlobStorage"
    assert "accessTier" not in premium, "it has none, and Azure refuses one"


def test_the_trainer_may_read_and_write_and_nobody_else() -> None:
    role = fuse().one("RoleAssignment").inputs

    assert role["roleDefinitionId"].endswith("/ba92f5b4-2d11-453d-a403-e96b0029c9fe")
    assert role["principalId"] == "everstep-trainer-principal"
    assert role["scope"].rpartition("/")[2] == fuse().one("StorageAccount").inputs["accountName"]


def test_the_tokens_of_one_service_account_of_this_cluster_are_trusted() -> None:
    said = fuse().one("FederatedIdentityCredential").inputs

    assert said["issuer"] == ISSUER
    assert said["subject"] == "system:serviceaccount:elastic-job:trainer"
    assert said["audiences"] == ["api://AzureADTokenExchange"]
    assert said["resourceName"] == "everstep-trainer"


def test_the_account_that_is_trusted_is_the_one_that_pods_run_as() -> None:
    account = fuse()["shared-account"].inputs["metadata"]

    assert f"system:serviceaccount:{account['namespace']}:{account['name']}" in blob.USERS
    assert blob.NAMESPACE == NAMESPACE
    assert account["annotations"] == {
        "azure.workload.identity/client-id": "everstep-trainer-client"
    }


def test_credentials_are_written_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob, "USERS", ("system:serviceaccount:a:x", "system:serviceaccount:a:y"))

    graph = storage()

    assert "blob-trust-x" in graph.ancestors("blob-trust-y"), "Azure refuses two at once"


def test_the_volume_is_mounted_with_a_token() -> None:
    said = fuse()["shared-volume"].inputs
    csi = said["spec"]["csi"]
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
    assert said["metadata"]["annotations"] == {
        "pv.kubernetes.io/provisioned-by": "blob.csi.azure.com"
    }


def test_over_nfs_it_is_mounted_without() -> None:
    csi = nfs()["shared-volume"].inputs["spec"]["csi"]

    assert csi["volumeAttributes"]["protocol"] == "nfs"
    assert "clientID" not in csi["volumeAttributes"]
    assert "nolock" in nfs()["shared-volume"].inputs["spec"]["mountOptions"]


def test_workers_see_what_others_wrote_within_seconds() -> None:
    options = dict(
        one.removeprefix("-o ").lstrip("-").partition("=")[::2] for one in blob.BLOBFUSE_OPTIONS
    )

    assert options["negative_timeout"] == "0", "a checkpoint that was missing may be there now"
    for cache_of in ("attr_timeout", "entry_timeout", "attr-cache-timeout"):
        assert int(options[cache_of]) <= 5, f"{cache_of} hides a new checkpoint for longer"
    assert options["use-adls"] == "true", "the account has a hierarchical namespace"


def test_files_belong_to_the_user_that_workers_run_as() -> None:
    options = set(blob.BLOBFUSE_OPTIONS)

    assert {"-o allow_other", "-o uid=10001", "-o gid=10001"} <= options, (
        "blobfuse2 does not look into a pod's fsGroup"
    )


def test_two_pods_of_a_node_do_not_share_a_cache_folder() -> None:
    assert not any("tmp-path" in one for one in blob.BLOBFUSE_OPTIONS), (
        "the driver names a folder for each mount; one of ours would be the same for all"
    )


def test_rights_are_there_before_the_mount_and_after_it() -> None:
    needed = {"blob-container", "blob-data-contributor", "blob-trust-trainer", "blob-account"}

    assert needed <= fuse().ancestors("shared-volume")
    assert "blob-container" in nfs().ancestors("shared-volume")


def test_deleted_blobs_can_be_had_back_for_the_days_asked_for() -> None:
    for policy in ("deleteRetentionPolicy", "containerDeleteRetentionPolicy"):
        assert fuse().one("BlobServiceProperties").inputs[policy] == {"enabled": True, "days": 7}
        assert nfs().one("BlobServiceProperties").inputs[policy] == {"enabled": False}


def test_an_account_of_the_users_is_taken_as_it_is() -> None:
    graph = storage(account="theiraccount", accountResourceGroup="theirs", container="runs")

    assert not graph.of("StorageAccount")
    assert not graph.of("BlobServiceProperties"), "its settings are the user's"
    container = graph.one("BlobContainer").inputs
    assert (container["accountName"], container["resourceGroupName"]) == ("theiraccount", "theirs")
    assert graph.one("RoleAssignment").inputs["scope"].endswith("/storageAccounts/theiraccount")
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
def test_addresses_are_written_as_an_account_takes_them(block: str, expected: list[str]) -> None:
    assert address_rule(block) == expected, "an account takes no block smaller than a /30"


def network(**cluster: Any) -> Graph:
    def program() -> Mapping[str, Any]:
        config = cluster_of(cluster=cluster)
        made = Vnet("net", VnetArgs(config=config, stack="dev", tags={"owner": "vision"}))
        return {"group": made.group, "subnet": made.subnet_id, "egress": made.egress}

    return record(program)


def test_nodes_have_one_way_out_and_a_short_one_to_storage() -> None:
    graph = network()
    subnet = graph.one("Subnet").inputs

    assert subnet["natGateway"]["id"].endswith("/NatGateway/everstep-gateway")
    assert subnet["defaultOutboundAccess"] is False
    assert subnet["serviceEndpoints"] == [{"service": "Microsoft.Storage"}], (
        "without it the account could not tell the nodes from anybody else"
    )
    assert graph.one("PublicIPAddress").inputs["publicIPAllocationMethod"] == "Static"
    assert graph.outputs["egress"] == "198.51.100.7"


def test_the_users_own_group_and_subnet_are_taken_as_they_are() -> None:
    graph = network(resourceGroup="theirs", network={"subnetId": SUBNET})

    assert not graph.custom("azure-native")
    assert graph.outputs == {"group": "theirs", "subnet": SUBNET, "egress": None}
