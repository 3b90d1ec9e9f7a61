"""The control plane of an EKS cluster, its users, add-ons and nodes."""

import json
from typing import Any

import pytest

from components.cluster.eks import short
from components.cluster.eks_efa import cards
from components.cluster.eks_nodes import gpu_pools
from components.config.catalog import addon_versions
from tests.unit.components.eks_stack import (
    ADMINISTRATOR,
    cluster_of,
    document,
    full,
    own,
    plain,
)
from tests.unit.components.recorder import Graph

SPOT, SYSTEM, FALLBACK = "eks-nodes-gpu-spot", "eks-nodes-system", "eks-nodes-gpu-on-demand"


def control_plane(graph: Graph) -> dict[str, Any]:
    return dict(graph["eks-cluster-control-plane"].inputs)


def taints(graph: Graph, group: str) -> set[tuple[str, str | None, str]]:
    return {
        (one["key"], one.get("value"), one["effect"])
        for one in graph[group].inputs.get("taints", [])
    }


def test_users_stand_in_access_entries_alone() -> None:
    access = control_plane(plain())["accessConfig"]
    entry = plain().one("AccessEntry").inputs
    association = plain().one("AccessPolicyAssociation").inputs

    assert access["authenticationMode"] == "API"
    assert entry["principalArn"] == association["principalArn"] == ADMINISTRATOR
    assert entry["type"] == "STANDARD"
    assert association["policyArn"].endswith(":cluster-access-policy/AmazonEKSClusterAdminPolicy")
    assert association["accessScope"] == {"type": "cluster"}


def test_whoever_makes_the_cluster_administers_it_only_where_nobody_is_named() -> None:
    key = "bootstrapClusterCreatorAdminPermissions"

    assert control_plane(plain())["accessConfig"][key] is False, "two entries of one role clash"
    assert control_plane(own())["accessConfig"][key] is True, "nobody could enter"
    assert f"accessConfig.{key}" in plain()["eks-cluster-control-plane"].ignore_changes, (
        "naming an administrator later would make a new cluster"
    )


def test_administrators_of_one_name_in_two_accounts_are_two() -> None:
    one, other = (f"arn:aws:iam::{account}:role/admin" for account in ("1" * 12, "2" * 12))

    assert short(one) != short(other)
    assert short(one).startswith("admin-")


def test_the_api_is_reached_from_the_vpc_and_by_list() -> None:
    said = control_plane(plain())["vpcConfig"]

    assert said["endpointPrivateAccess"] is True
    assert said["endpointPublicAccess"] is True
    assert said["publicAccessCidrs"] == ["203.0.113.0/24"]


def test_without_a_list_the_api_is_private() -> None:
    said = control_plane(own())["vpcConfig"]

    assert said["endpointPublicAccess"] is False
    assert "publicAccessCidrs" not in said


def test_secrets_are_encrypted_by_a_key_that_is_rotated() -> None:
    said = control_plane(plain())["encryptionConfig"]
    key = plain()["eks-cluster-key"]

    assert said["resources"] == ["secrets"]
    assert said["provider"]["keyArn"].endswith(key.name)
    assert key.inputs["enableKeyRotation"] is True
    assert key.inputs["deletionWindowInDays"] == 7
    assert full()["eks-cluster-key"].inputs["deletionWindowInDays"] == 30


def test_everything_is_logged_to_a_group_that_forgets_in_time() -> None:
    logs = plain().one("LogGroup").inputs

    assert set(control_plane(plain())["enabledClusterLogTypes"]) == {
        *("api", "audit", "authenticator", "controllerManager", "scheduler"),
    }
    assert logs["name"] == "/aws/eks/everstep/cluster", "EKS writes to no other"
    assert logs["retentionInDays"] == 30


def test_the_cluster_does_not_slide_into_extended_support() -> None:
    assert control_plane(plain())["upgradePolicy"] == {"supportType": "STANDARD"}


def test_only_production_cannot_be_deleted() -> None:
    assert control_plane(plain())["deletionProtection"] is False
    assert control_plane(full())["deletionProtection"] is True


def test_no_add_on_comes_or_changes_by_itself() -> None:
    found = {one.inputs["addonName"]: one.inputs for one in plain().of("Addon")}

    assert control_plane(plain())["bootstrapSelfManagedAddons"] is False
    assert {name: said["addonVersion"] for name, said in found.items()} == addon_versions("1.36")


def test_a_stack_may_choose_the_version_of_an_add_on() -> None:
    chosen, pinned = own()["eks-late-coredns"].inputs, own()["eks-early-vpc-cni"].inputs

    assert chosen["addonVersion"] == "v1.13.2-eksbuild.9"
    assert pinned["addonVersion"] == addon_versions("1.36")["vpc-cni"]


def test_network_policies_are_enforced() -> None:
    said = json.loads(plain()["eks-early-vpc-cni"].inputs["configurationValues"])

    assert said["enableNetworkPolicy"] == "true", "they would be stored and mean nothing"


@pytest.mark.parametrize(
    ("addon", "account"),
    [
        ("eks-early-vpc-cni", "aws-node"),
        ("eks-late-aws-fsx-csi-driver", "fsx-csi-controller-sa"),
    ],
)
def test_add_ons_that_speak_to_aws_have_a_role_of_their_own(addon: str, account: str) -> None:
    (identity,) = plain()[addon].inputs["podIdentityAssociations"]
    (trust,) = document(plain()[f"{addon}-role-role"], "assumeRolePolicy")

    assert identity["serviceAccount"] == account
    assert identity["roleArn"].endswith(addon.split("-", 2)[2])
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(trust["Action"]) == {"sts:AssumeRole", "sts:TagSession"}, "pod identity needs both"


def test_the_driver_may_look_at_the_one_file_system_and_do_nothing() -> None:
    for graph, named in ((plain(), "eks-storage-system-id"), (own(), "fs-0123456789abcdef0")):
        (statement,) = document(graph["eks-late-aws-fsx-csi-driver-role-aws-fsx-csi-driver"])
        assert statement["Action"] == ["fsx:DescribeFileSystems"]
        assert statement["Resource"] == [f"arn:aws:fsx:us-east-1:123456789012:file-system/{named}"]


def test_nodes_may_join_and_pull_and_nothing_else() -> None:
    attached = {
        one.inputs["policyArn"].rpartition("/")[2]
        for one in plain().of("RolePolicyAttachment")
        if one.inputs["role"] == "everstep-nodes"
    }

    assert attached == {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"}


def test_system_nodes_stay_in_all_zones_and_take_any_pod() -> None:
    said = plain()[SYSTEM].inputs

    assert said["capacityType"] == "ON_DEMAND"
    assert said["amiType"] == "AL2023_x86_64_STANDARD"
    assert said["labels"] == {"everstep/pool": "system"}
    assert said["scalingConfig"] == {"minSize": 2, "desiredSize": 2, "maxSize": 3}
    assert len(said["subnetIds"]) == 2
    assert taints(plain(), SYSTEM) == set(), "coredns would find no place"


def test_gpu_nodes_are_spot_of_several_types_in_the_zone_of_the_file_system() -> None:
    said = plain()[SPOT].inputs

    assert said["capacityType"] == "SPOT"
    assert said["amiType"] == "AL2023_x86_64_NVIDIA"
    assert said["instanceTypes"] == ["g5.xlarge", "g6.xlarge"]
    assert said["labels"]["everstep/pool"] == "gpu-spot"
    assert said["scalingConfig"] == {"minSize": 0, "desiredSize": 3, "maxSize": 6}
    assert said["subnetIds"] == [plain().one("LustreFileSystem").inputs["subnetIds"]]


def test_gpu_nodes_follow_the_zone_that_the_stack_names() -> None:
    assert full()[SPOT].inputs["subnetIds"] == ["eks-network-private-us-east-1b-id"]
    assert full().one("LustreFileSystem").inputs["subnetIds"] == "eks-network-private-us-east-1b-id"


@pytest.mark.parametrize("group", [SPOT, FALLBACK])
def test_gpu_nodes_keep_others_away_and_wait_for_the_driver(group: str) -> None:
    assert taints(full(), group) == {
        ("everstep/spot", "true", "NO_SCHEDULE"),
        ("fsx.csi.aws.com/agent-not-ready", None, "NO_EXECUTE"),
    }


def test_workers_put_up_with_every_taint_that_stays() -> None:
    from components.cluster.eks_nodes import CSI_STARTUP_TAINT, GPU_PLACEMENT

    tolerated = {(one.key, one.value, one.effect) for one in GPU_PLACEMENT.tolerations}
    kept = {
        (taint.key, taint.value, str(taint.effect).title().replace("_", ""))
        for pool in gpu_pools(cluster_of(gpuPool={"fallbackNodes": 1}))
        for taint in pool.taints
        if taint.key != CSI_STARTUP_TAINT
    }

    assert kept == tolerated
    assert GPU_PLACEMENT.selector.items() <= plain()[SPOT].inputs["labels"].items()


def test_a_fall_back_is_the_same_but_bought_on_demand_from_zero() -> None:
    spot, other = full()[SPOT].inputs, full()[FALLBACK].inputs

    assert other["capacityType"] == "ON_DEMAND"
    assert other["scalingConfig"] == {"minSize": 0, "desiredSize": 0, "maxSize": 2}
    assert other["labels"] == {**spot["labels"], "everstep/capacity": "on-demand"}
    for key in ("instanceTypes", "subnetIds", "amiType", "taints", "nodeRoleArn"):
        assert other[key] == spot[key]


def test_there_is_no_fall_back_unless_asked_for() -> None:
    assert {one.name for one in plain().of("NodeGroup")} == {SYSTEM, SPOT}


def test_gpus_bought_on_demand_say_so() -> None:
    (pool,) = gpu_pools(cluster_of(gpuPool={"capacity": "onDemand"}))

    assert pool.capacity == "ON_DEMAND"
    assert pool.labels["everstep/capacity"] == "on-demand"
    assert pool.labels["everstep/pool"] == "gpu-spot"


def test_the_number_of_nodes_is_the_autoscalers_only_where_there_is_one() -> None:
    for group in (SYSTEM, SPOT):
        assert plain()[group].ignore_changes == ("scalingConfig.desiredSize",)
        assert own()[group].ignore_changes == (), "a changed number of nodes would mean nothing"


def test_a_new_gpu_group_waits_for_the_quota_of_the_old_one_and_system_nodes_do_not() -> None:
    assert plain()[SPOT].delete_before_replace
    assert plain()[SPOT].inputs["nodeGroupName"] == "everstep-gpu-spot"
    assert not plain()[SYSTEM].delete_before_replace, "etcd would lose all its members at once"
    assert plain()[SYSTEM].inputs["nodeGroupNamePrefix"] == "everstep-system-", (
        "two groups cannot have one name"
    )


@pytest.mark.parametrize("group", [SYSTEM, SPOT])
def test_nodes_follow_their_template_and_the_control_planes_version(group: str) -> None:
    said = plain()[group].inputs
    read = plain()[group].property_dependencies["version"]

    assert said["launchTemplate"] == {"id": f"{group}-template-id", "version": "1"}
    assert said["version"] == "1.36"
    assert plain()["eks-cluster-control-plane"].urn in read, "it would not upgrade first"
    assert "diskSize" not in said, "EKS refuses it beside a launch template"


@pytest.mark.parametrize("group", [SYSTEM, SPOT])
def test_broken_nodes_are_repaired(group: str) -> None:
    assert plain()[group].inputs["nodeRepairConfig"] == {"enabled": True}


@pytest.mark.parametrize(("group", "hops"), [(SYSTEM, 1), (SPOT, 2)])
def test_the_metadata_service_wants_a_token_and_reaches_workers_only(group: str, hops: int) -> None:
    said = plain()[f"{group}-template"].inputs["metadataOptions"]

    assert said == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": hops,
    }


@pytest.mark.parametrize(("group", "gib"), [(SYSTEM, 50), (SPOT, 100)])
def test_disks_are_encrypted_and_go_with_the_node(group: str, gib: int) -> None:
    (disk,) = plain()[f"{group}-template"].inputs["blockDeviceMappings"]

    assert disk["deviceName"] == "/dev/xvda"
    assert disk["ebs"] == {
        "volumeSize": gib,
        "volumeType": "gp3",
        "encrypted": "true",
        "deleteOnTermination": "true",
    }


def test_the_fabric_has_an_interface_on_every_card() -> None:
    said = full()[f"{SPOT}-template"].inputs
    interfaces = said["networkInterfaces"]

    assert [one["networkCardIndex"] for one in interfaces] == [0, 1, 2, 3]
    assert [one["deviceIndex"] for one in interfaces] == [0, 1, 1, 1]
    assert [one["interfaceType"] for one in interfaces] == ["efa", *["efa-only"] * 3]
    for one in interfaces:
        assert one["securityGroups"] == ["sg-everstep-cluster", "eks-nodes-efa-group-id"], (
            "an interface that names groups does not get the cluster's"
        )
    assert "vpcSecurityGroupIds" not in said
    assert said["placement"] == {"groupName": "everstep-gpu"}
    assert full().one("PlacementGroup").inputs["strategy"] == "cluster"


def test_the_fabric_lets_everything_through_among_its_members_both_ways() -> None:
    for way in ("in", "out"):
        rule = full()[f"eks-nodes-efa-{way}"].inputs
        assert rule["securityGroupId"] == rule["referencedSecurityGroupId"]
        assert rule["ipProtocol"] == "-1"


def test_the_fabric_sets_huge_pages_aside() -> None:
    from base64 import b64decode

    said = b64decode(full()[f"{SPOT}-template"].inputs["userData"]).decode()

    assert said.startswith("MIME-Version: 1.0\n"), "a managed group takes nothing else"
    assert "vm.nr_hugepages=5128" in said


def test_system_nodes_have_no_part_in_the_fabric() -> None:
    assert "networkInterfaces" not in full()[f"{SYSTEM}-template"].inputs
    assert "userData" not in full()[f"{SYSTEM}-template"].inputs


def test_a_stack_without_the_fabric_has_none_of_it() -> None:
    assert not plain().of("PlacementGroup")
    assert "networkInterfaces" not in plain()[f"{SPOT}-template"].inputs


@pytest.mark.parametrize(
    ("machine", "interfaces", "first"),
    [
        ("g5.8xlarge", 1, "efa"),
        ("p4d.24xlarge", 4, "efa"),
        ("p5.48xlarge", 32, "efa"),
        ("p6-b300.48xlarge", 17, "interface"),
    ],
)
def test_cards_are_those_of_the_machine(machine: str, interfaces: int, first: str) -> None:
    found = cards(machine)

    assert [card.index for card in found] == list(range(interfaces))
    assert found[0].type == first, "the first needs an address"
    assert {card.type for card in found[1:]} <= {"efa-only"}


def test_a_machine_without_the_fabric_is_refused() -> None:
    with pytest.raises(ValueError, match=r"g5\.xlarge has no EFA"):
        cards("g5.xlarge")


def test_workers_are_told_of_the_adapters_that_their_nodes_have() -> None:
    assert full().outputs["efaInterfaces"] == 4, "unasked for, none would reach a worker"
    assert plain().outputs["efaInterfaces"] == 0
