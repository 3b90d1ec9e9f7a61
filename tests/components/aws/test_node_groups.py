"""The node groups of an EKS cluster: capacity, placement, templates and scaling."""

from base64 import b64decode
from functools import cache

import pytest

from components.aws.node_groups import CSI_STARTUP_TAINT, GPU_PLACEMENT, gpu_pools
from tests.components.aws.eks_stack import (
    all_features_stack,
    cluster_of,
    declare_eks,
    existing_vpc_stack,
    plain_stack,
)
from tests.components.recorder import Graph

SPOT, SYSTEM, FALLBACK = "eks-nodes-gpu-spot", "eks-nodes-system", "eks-nodes-gpu-on-demand"


def taints(graph: Graph, group: str) -> set[tuple[str, str | None, str]]:
    return {
        (taint["key"], taint.get("value"), taint["effect"])
        for taint in graph[group].inputs.get("taints", [])
    }


def test_nodes_may_only_join_the_cluster_and_pull_images() -> None:
    policies = {
        resource.inputs["policyArn"].rpartition("/")[2]
        for resource in plain_stack().of_type("RolePolicyAttachment")
        if resource.inputs["role"] == "everstep-nodes"
    }

    assert policies == {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"}


def test_system_nodes_are_on_demand_in_all_zones_without_taints() -> None:
    inputs = plain_stack()[SYSTEM].inputs

    assert inputs["capacityType"] == "ON_DEMAND"
    assert inputs["amiType"] == "AL2023_x86_64_STANDARD"
    assert inputs["labels"] == {"everstep.dev/pool": "system"}
    assert inputs["scalingConfig"] == {"minSize": 2, "desiredSize": 2, "maxSize": 3}
    assert len(inputs["subnetIds"]) == 2
    assert taints(plain_stack(), SYSTEM) == set(), "coredns would have no node"


def test_gpu_nodes_are_spot_instances_of_several_types_in_the_zone_of_the_file_system() -> None:
    inputs = plain_stack()[SPOT].inputs

    assert inputs["capacityType"] == "SPOT"
    assert inputs["amiType"] == "AL2023_x86_64_NVIDIA"
    assert inputs["instanceTypes"] == ["g5.xlarge", "g6.xlarge", "g6e.xlarge", "g6.8xlarge"]
    assert inputs["labels"]["everstep.dev/pool"] == "gpu-spot"
    assert inputs["scalingConfig"] == {"minSize": 0, "desiredSize": 0, "maxSize": 6}
    assert inputs["subnetIds"] == [plain_stack().one("LustreFileSystem").inputs["subnetIds"]]


def test_gpu_nodes_are_in_the_zone_that_the_stack_names() -> None:
    assert all_features_stack()[SPOT].inputs["subnetIds"] == ["eks-network-private-us-east-1b-id"]
    assert (
        all_features_stack().one("LustreFileSystem").inputs["subnetIds"]
        == "eks-network-private-us-east-1b-id"
    )


@pytest.mark.parametrize("group", [SPOT, FALLBACK])
def test_gpu_nodes_repel_other_pods(group: str) -> None:
    assert taints(all_features_stack(), group) == {("everstep.dev/spot", "true", "NO_SCHEDULE")}, (
        "EKS may apply a startup taint after the driver has looked for it, so that it stays"
    )


@pytest.mark.parametrize("group", [SPOT, FALLBACK])
def test_gpu_nodes_register_with_the_startup_taint_of_the_driver(group: str) -> None:
    user_data = b64decode(all_features_stack()[f"{group}-template"].inputs["userData"]).decode()

    assert user_data.count("--register-with-taints=") == 1, "the kubelet uses only the last one"
    assert (
        "--register-with-taints=everstep.dev/spot=true:NoSchedule,"
        "fsx.csi.aws.com/agent-not-ready:NoExecute\n" in user_data
    ), "the flag replaces the one of EKS, so it names all taints"


def test_a_gpu_group_of_any_kind_has_the_startup_taint_in_its_user_data_only() -> None:
    configs = (
        cluster_of(gpuPool={"fallbackNodes": 1}),
        cluster_of(gpuPool={"capacity": "onDemand"}),
    )
    pools = [pool for config in configs for pool in gpu_pools(config)]

    assert len(pools) == 3
    for pool in pools:
        assert CSI_STARTUP_TAINT not in [taint.key for taint in pool.taints], pool.name
        assert pool.startup_taints == [f"{CSI_STARTUP_TAINT}:NoExecute"], pool.name


def test_workers_tolerate_all_permanent_taints() -> None:
    tolerations = {
        (toleration.key, toleration.value, toleration.effect)
        for toleration in GPU_PLACEMENT.tolerations
    }
    permanent_taints = {
        (taint.key, taint.value, str(taint.effect).title().replace("_", ""))
        for pool in gpu_pools(cluster_of(gpuPool={"fallbackNodes": 1}))
        for taint in pool.taints
    }

    assert permanent_taints == tolerations
    assert GPU_PLACEMENT.selector.items() <= plain_stack()[SPOT].inputs["labels"].items()


def test_a_fallback_group_differs_only_in_being_on_demand_and_empty() -> None:
    spot, fallback = all_features_stack()[SPOT].inputs, all_features_stack()[FALLBACK].inputs

    assert fallback["capacityType"] == "ON_DEMAND"
    assert fallback["scalingConfig"] == {"minSize": 0, "desiredSize": 0, "maxSize": 2}
    assert fallback["labels"] == {**spot["labels"], "everstep.dev/capacity": "on-demand"}
    for key in ("instanceTypes", "subnetIds", "amiType", "taints", "nodeRoleArn"):
        assert fallback[key] == spot[key]


def test_there_is_no_fallback_by_default() -> None:
    assert {resource.name for resource in plain_stack().of_type("NodeGroup")} == {SYSTEM, SPOT}


def test_on_demand_gpu_nodes_have_a_label() -> None:
    (pool,) = gpu_pools(cluster_of(gpuPool={"capacity": "onDemand"}))

    assert pool.capacity == "ON_DEMAND"
    assert pool.labels["everstep.dev/capacity"] == "on-demand"
    assert pool.labels["everstep.dev/pool"] == "gpu-spot"


def test_the_desired_size_is_ignored_only_with_an_autoscaler() -> None:
    for group in (SYSTEM, SPOT):
        assert plain_stack()[group].ignore_changes == ("scalingConfig.desiredSize",)
        assert existing_vpc_stack()[group].ignore_changes == (), (
            "a changed number of nodes would have no effect"
        )


def test_gpu_groups_are_deleted_before_they_are_replaced_and_system_groups_are_not() -> None:
    assert plain_stack()[SPOT].delete_before_replace
    assert plain_stack()[SPOT].inputs["nodeGroupName"] == "everstep-gpu-spot"
    assert not plain_stack()[SYSTEM].delete_before_replace, (
        "etcd would lose all its members at the same time"
    )
    assert plain_stack()[SYSTEM].inputs["nodeGroupNamePrefix"] == "everstep-system-", (
        "two groups cannot have the same name"
    )


@pytest.mark.parametrize("group", [SYSTEM, SPOT])
def test_nodes_follow_their_template_and_the_control_planes_version(group: str) -> None:
    inputs = plain_stack()[group].inputs
    dependencies = plain_stack()[group].property_dependencies["version"]

    assert inputs["launchTemplate"] == {"id": f"{group}-template-id", "version": "1"}
    assert inputs["version"] == "1.36"
    assert plain_stack()["eks-cluster-control-plane"].urn in dependencies, (
        "the node group would not upgrade after the control plane"
    )
    assert "diskSize" not in inputs, "EKS refuses it together with a launch template"


@pytest.mark.parametrize("group", [SYSTEM, SPOT])
def test_broken_nodes_are_repaired(group: str) -> None:
    assert plain_stack()[group].inputs["nodeRepairConfig"] == {"enabled": True}


@pytest.mark.parametrize("group", [SYSTEM, SPOT])
def test_the_metadata_service_requires_a_token_and_only_the_host_network_reaches_it(
    group: str,
) -> None:
    options = plain_stack()[f"{group}-template"].inputs["metadataOptions"]

    assert options == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": 1,
    }, "a pod could get the credentials of the node"


def test_the_autoscaler_gets_the_adapters_of_an_empty_group_from_its_tags() -> None:
    tags = {
        resource.name: resource.inputs["tag"] for resource in all_features_stack().of_type("Tag")
    }

    prefix = "k8s.io/cluster-autoscaler/node-template/resources/"
    for group in (SPOT, FALLBACK):
        assert tags[f"{group}-efa"] == {
            "key": f"{prefix}vpc.amazonaws.com/efa",
            "value": "4",
            "propagateAtLaunch": False,
        }, "a worker requests them, so the group would never be scaled up"
        assert tags[f"{group}-huge-pages"]["key"] == f"{prefix}hugepages-2Mi"
        assert tags[f"{group}-huge-pages"]["value"] == "10256Mi"
    assert not plain_stack().of_type("Tag")


def test_an_interface_without_efa_is_not_counted_as_an_adapter() -> None:
    """The first interface of a p6-b300 is an Ethernet interface."""
    pool = {"instanceTypes": ["p6-b300.48xlarge"], "efa": True}
    graph = declare_eks(cluster={"gpuPool": pool})

    (tag,) = (
        resource.inputs["tag"]
        for resource in graph.of_type("Tag")
        if resource.inputs["tag"]["key"].endswith("vpc.amazonaws.com/efa")
    )
    assert tag["value"] == "16", "a job requests all adapters of a node"


@pytest.mark.parametrize(("group", "gib"), [(SYSTEM, 50), (SPOT, 100)])
def test_disks_are_encrypted_and_deleted_with_the_node(group: str, gib: int) -> None:
    (disk,) = plain_stack()[f"{group}-template"].inputs["blockDeviceMappings"]

    assert disk["deviceName"] == "/dev/xvda"
    assert disk["ebs"] == {
        "volumeSize": gib,
        "volumeType": "gp3",
        "encrypted": "true",
        "deleteOnTermination": "true",
    }


@cache
def reserved_stack(*, block: bool, efa: bool = False) -> Graph:
    """Declare a stack whose GPU nodes run in a reservation."""
    reservation = {"id": "cr-0123456789abcdef0", "capacityBlock": block}
    pool = {
        "capacity": "onDemand",
        "instanceTypes": ["p5.48xlarge"],
        "reservation": reservation,
        "efa": efa,
    }
    return declare_eks(cluster={"gpuPool": pool})


@pytest.mark.parametrize("block", [False, True])
def test_reserved_nodes_start_only_in_their_reservation(block: bool) -> None:
    template = reserved_stack(block=block)[f"{FALLBACK}-template"].inputs

    assert template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}
    }
    assert template["instanceType"] == "p5.48xlarge"
    assert "instanceTypes" not in reserved_stack(block=block)[FALLBACK].inputs, (
        "EKS refuses an instance type in both the launch template and the node group"
    )


@pytest.mark.parametrize("block", [False, True])
def test_reserved_nodes_with_efa_are_not_in_a_placement_group(block: bool) -> None:
    graph = reserved_stack(block=block, efa=True)
    template = graph[f"{FALLBACK}-template"].inputs

    assert "placement" not in template, (
        "EC2 finds no capacity in a placement group in which the reservation was not made"
    )
    assert len(template["networkInterfaces"]) == 32
    assert not graph.of_type("PlacementGroup")


def test_nodes_of_a_capacity_block_have_its_market_type_and_capacity_type() -> None:
    graph = reserved_stack(block=True)

    assert graph[FALLBACK].inputs["capacityType"] == "CAPACITY_BLOCK"
    assert graph[f"{FALLBACK}-template"].inputs["instanceMarketOptions"] == {
        "marketType": "capacity-block"
    }


def test_nodes_of_an_on_demand_capacity_reservation_have_the_capacity_type_on_demand() -> None:
    graph = reserved_stack(block=False)

    assert graph[FALLBACK].inputs["capacityType"] == "ON_DEMAND"
    assert "instanceMarketOptions" not in graph[f"{FALLBACK}-template"].inputs


def test_nodes_without_a_reservation_may_start_anywhere() -> None:
    template = plain_stack()[f"{SPOT}-template"].inputs

    assert {"capacityReservationSpecification", "instanceType"}.isdisjoint(template)


def test_all_nodes_have_the_release_that_the_stack_pins() -> None:
    graph = declare_eks(cluster={"nodeRelease": "1.36.0-20261101", "gpuPool": {"fallbackNodes": 1}})

    for group in (SYSTEM, SPOT, FALLBACK):
        assert graph[group].inputs["releaseVersion"] == "1.36.0-20261101", group
        assert graph[group].inputs["version"] == "1.36"


def test_without_a_pin_eks_chooses_the_release() -> None:
    for group in plain_stack().some_of_type("NodeGroup"):
        assert "releaseVersion" not in group.inputs, group.name
