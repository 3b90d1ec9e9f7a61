"""A Blob container as the shared volume: access, network rules, mount options and retention."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pulumi
import pytest

from components.azure import blob
from components.azure.blob import BlobArgs, BlobStorage, address_rule
from components.azure.network import Vnet, VnetArgs
from components.interface import VolumeSource
from components.platform import claim
from everstep.catalog.names import JOB_NAMESPACE, TRAINER_SERVICE_ACCOUNT
from tests.components.azure.aks_stack import blob_of, cluster_of
from tests.components.recorder import Graph, record

GROUP = "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/g"
SUBNET = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v/subnets/nodes"
ISSUER = "https://eastus.oic.test/everstep/"


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
        declare_claim(blob_storage.volume)
        return {"where": blob_storage.volume.location}

    return record(program)


def declare_claim(source: VolumeSource) -> claim.SharedClaim:
    return claim.SharedClaim(
        "shared", claim.SharedClaimArgs(source=source, namespace=JOB_NAMESPACE)
    )


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


def test_an_account_has_no_keys_no_public_blobs_and_no_old_tls(graph: Graph) -> None:
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
    inputs = fuse().one("StorageAccount").inputs["networkRuleSet"]

    assert inputs["defaultAction"] == "Deny"
    assert [
        virtual_network_rule["virtualNetworkResourceId"]
        for virtual_network_rule in inputs["virtualNetworkRules"]
    ] == [SUBNET]
    assert [ip_rule["iPAddressOrRange"] for ip_rule in inputs["ipRules"]] == [
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


def test_ssds_need_an_account_of_another_kind() -> None:
    standard, premium = (stack().one("StorageAccount").inputs for stack in (fuse, nfs))

    assert (standard["kind"], standard["accessTier"]) == ("StorageV2", "Hot")
    assert premium["kind"] == "BlockBlobStorage"
    assert "accessTier" not in premium, (
        "a premium account has no access tier, and Azure refuses one"
    )


def test_only_the_trainer_may_read_and_write_blobs() -> None:
    role = fuse().one("RoleAssignment").inputs

    assert role["roleDefinitionId"].endswith("/ba92f5b4-2d11-453d-a403-e96b0029c9fe")
    assert role["principalId"] == "everstep-trainer-principal"
    assert role["scope"].rpartition("/")[2] == fuse().one("StorageAccount").inputs["accountName"]


def test_the_tokens_of_one_service_account_of_this_cluster_are_trusted() -> None:
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
    csi = spec["csi"]
    assert "actimeo=5" in spec["mountOptions"], "a node must see a checkpoint of another node soon"

    assert csi["volumeAttributes"]["protocol"] == "nfs"
    assert "clientID" not in csi["volumeAttributes"]
    assert "nolock" in nfs()["shared-volume"].inputs["spec"]["mountOptions"]


def test_workers_see_what_others_wrote_within_seconds() -> None:
    options = dict(
        blobfuse_option.removeprefix("-o ").lstrip("-").partition("=")[::2]
        for blobfuse_option in blob.BLOBFUSE_OPTIONS
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


def test_two_pods_of_a_node_do_not_share_a_cache_folder() -> None:
    assert not any("tmp-path" in blobfuse_option for blobfuse_option in blob.BLOBFUSE_OPTIONS), (
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
def test_address_ranges_have_the_format_of_a_storage_account(
    block: str, expected: list[str]
) -> None:
    assert address_rule(block) == expected, "an account accepts no block smaller than a /30"


def network(**cluster: Any) -> Graph:
    def program() -> Mapping[str, Any]:
        config = cluster_of(cluster=cluster)
        args = VnetArgs(
            name=config.name,
            stack="dev",
            location=config.location,
            cidr=config.network.cidr,
            resource_group=config.resource_group,
            subnet_id=config.network.subnet_id,
            firewall_ip=config.network.firewall_ip,
            tags={"owner": "vision"},
        )
        vnet = Vnet("net", args)
        return {"group": vnet.group, "subnet": vnet.subnet_id, "egress": vnet.egress}

    return record(program)


def test_nodes_have_a_nat_gateway_and_an_endpoint_for_storage() -> None:
    graph = network()
    subnet = graph.one("Subnet").inputs

    assert subnet["natGateway"]["id"].endswith("/NatGateway/everstep-gateway")
    assert subnet["defaultOutboundAccess"] is False
    assert subnet["serviceEndpoints"] == [{"service": "Microsoft.Storage"}], (
        "without it the account could not identify traffic from the nodes"
    )
    assert graph.one("PublicIPAddress").inputs["publicIPAllocationMethod"] == "Static"
    assert graph.outputs["egress"] == "198.51.100.7"


def test_all_egress_of_a_subnet_with_a_firewall_passes_it() -> None:
    graph = network(network={"egress": "userDefinedRouting", "firewallIp": "10.100.0.4"})
    subnet, table = graph.one("Subnet").inputs, graph.one("RouteTable").inputs

    assert subnet["routeTable"]["id"].endswith("/RouteTable/everstep-routes")
    assert [(r["addressPrefix"], r["nextHopIpAddress"]) for r in table["routes"]] == [
        ("0.0.0.0/0", "10.100.0.4")
    ]
    assert table["disableBgpRoutePropagation"] is True
    assert not graph.of_type("NatGateway") + graph.of_type("PublicIPAddress")
    assert graph.outputs["egress"] is None, "the API admits only the ranges of the stack file"


def test_an_existing_group_and_subnet_are_not_changed() -> None:
    graph = network(resourceGroup="theirs", network={"subnetId": SUBNET})

    assert not graph.resources_of("azure-native")
    assert graph.outputs == {"group": "theirs", "subnet": SUBNET, "egress": None}
