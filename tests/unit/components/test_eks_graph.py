"""What a stack on AWS declares, as a graph: whose child, through whom, tagged, in which order."""

import json
import subprocess
import sys

import pytest

from policy.pack import RULES
from policy.rule import Level, Resource
from tests.unit.components.eks_stack import STACK, TAGS, full, own, plain, whole
from tests.unit.components.recorder import Graph

IN_THE_CLUSTER = "eks-kubernetes"  # the provider through which all in the cluster is made
CONTROL_PLANE = "eks-cluster-control-plane"
GPU = "eks-nodes-gpu-spot"


@pytest.fixture(params=[plain, full, own], ids=["plain", "full", "own"])
def graph(request: pytest.FixtureRequest) -> Graph:
    found: Graph = request.param()
    return found


def names(graph: Graph, *kinds: str) -> set[str]:
    return {one.name for kind in kinds for one in graph.of(kind)}


def nodes(graph: Graph) -> set[str]:
    return names(graph, "NodeGroup")


def test_every_child_carries_its_components_name(graph: Graph) -> None:
    by_urn = {one.urn: one for one in graph.resources.values()}
    for one in graph.resources.values():
        parent = by_urn.get(one.parent)
        if one.name == "eks":
            assert parent is None
        else:
            assert parent is not None, f"{one.name} stands alone"
            assert one.name.startswith(f"{parent.name}-")


def test_everything_on_aws_is_made_through_the_stacks_own_provider(graph: Graph) -> None:
    provider = graph["eks-aws"]

    assert provider.inputs["region"] == "us-east-1"
    assert len(graph.custom("aws")) > 20
    for one in graph.custom("aws"):
        assert one.provider.startswith(f"{provider.urn}::"), f"{one.name} may go elsewhere"


def test_everything_in_the_cluster_is_made_through_its_provider() -> None:
    graph = whole()

    assert len(graph.custom("kubernetes")) > 10
    for one in graph.custom("kubernetes"):
        assert IN_THE_CLUSTER in one.provider, f"{one.name} would go to another cluster"


def test_everything_that_takes_tags_says_whose_it_is(graph: Graph) -> None:
    said = {**TAGS, "managed-by": "everstep", "stack": STACK}
    keys = graph["eks-aws"].inputs["defaultTags"]

    for key in said:
        assert f'"{key}"' in keys
    for one in graph.custom("aws"):
        assert not set(one.inputs.get("tags", {})) & set(said), f"{one.name} says it twice"


def test_machines_and_disks_say_whose_they_are(graph: Graph) -> None:
    for template in graph.of("LaunchTemplate"):
        kinds = set()
        for one in template.inputs["tagSpecifications"]:
            kinds.add(one["resourceType"])
            assert one["tags"]["stack"] == STACK, "no provider's default tags reach these"
            assert one["tags"]["owner"] == TAGS["owner"]
        assert kinds == {"instance", "volume", "network-interface"}


def test_names_keep_within_the_clouds_limits(graph: Graph) -> None:
    longest = {"Role": 64, "NodeGroup": 63, "LaunchTemplate": 128, "SecurityGroup": 255}
    for kind, limit in longest.items():
        for one in graph.of(kind):
            named = one.inputs.get("name") or one.inputs.get("nodeGroupName")
            if named is not None:
                assert len(named) + 30 - len("everstep") <= limit, "names may be of 30 characters"


def test_all_policies_of_the_pack_hold(graph: Graph) -> None:
    tags = {**TAGS, "environment": "prod"} if graph is full() else TAGS
    for one in graph.custom("aws") + graph.custom("kubernetes"):
        resource = Resource(
            type=one.type,
            properties=one.inputs,
            stack=STACK,
            protect=one.protect,
            default_tags=tags,
        )
        for rule in RULES:
            if rule.level is Level.MANDATORY:
                assert not list(rule.violations(resource)), one.name


def test_the_network_lets_nodes_out_before_they_are_there(graph: Graph) -> None:
    ways_out = names(graph, "NatGateway", "Route", "RouteTableAssociation", "VpcEndpoint")

    assert ways_out or graph is own()
    for group in nodes(graph):
        assert ways_out <= graph.ancestors(group), "a node that cannot pull never gets Ready"


def test_the_log_group_is_there_before_the_cluster(graph: Graph) -> None:
    assert names(graph, "LogGroup") <= graph.ancestors(CONTROL_PLANE), (
        "EKS would make one itself, which keeps everything and outlives the stack"
    )


def test_roles_keep_their_rights_as_long_as_they_are_used(graph: Graph) -> None:
    assert "eks-cluster-role-AmazonEKSClusterPolicy" in graph.ancestors(CONTROL_PLANE), (
        "EKS could not take its security group and network interfaces away"
    )
    rights = {name for name in names(graph, "RolePolicyAttachment") if "eks-nodes-role" in name}
    assert len(rights) == 2
    for group in nodes(graph):
        assert rights <= graph.ancestors(group)


def test_the_network_plugin_outlives_the_nodes(graph: Graph) -> None:
    for group in nodes(graph):
        before = graph.ancestors(group)
        assert "eks-early-vpc-cni" in before, "its network interfaces would be left behind"
        assert "eks-early-vpc-cni-role-AmazonEKS_CNI_Policy" in before
        assert {"eks-early-kube-proxy", "eks-early-eks-pod-identity-agent"} <= before


def test_what_runs_as_pods_comes_after_nodes_that_stay(graph: Graph) -> None:
    for addon in ("coredns", "aws-fsx-csi-driver", "eks-node-monitoring-agent"):
        assert "eks-nodes-system" in graph.ancestors(f"eks-late-{addon}")


def test_objects_in_the_cluster_wait_for_all_that_they_need_to_go_again(graph: Graph) -> None:
    before = graph.ancestors(IN_THE_CLUSTER)

    assert nodes(graph) | names(graph, "Addon") <= before, "pods would hang in Terminating"
    assert names(graph, "NatGateway", "Route", "RouteTableAssociation") <= before
    assert names(graph, "AccessEntry", "AccessPolicyAssociation") <= before, "none could enter"


def test_the_volume_outlives_all_that_mount_it() -> None:
    graph = whole()
    job = graph.ancestors("training-job-fashion")

    assert "training-storage-volume" in job
    volume = graph.ancestors("training-storage-volume")
    assert {
        "eks-storage-system",
        "eks-storage-association",
        "eks-late-aws-fsx-csi-driver",
    } <= volume
    assert {
        name for name in names(graph, "SecurityGroupIngressRule") if "storage" in name
    } <= volume
    assert GPU in volume, "a claim cannot be released by a node that is gone"


def test_the_file_system_has_its_rules_before_it_is_made() -> None:
    before = plain().ancestors("eks-storage-system")

    for way in ("in", "out"):
        for port in (988, 1018):
            assert f"eks-storage-servers-{way}-{port}" in before, "FSx looks at them and refuses"


def test_the_file_system_does_not_wait_for_the_cluster() -> None:
    assert CONTROL_PLANE not in plain().ancestors("eks-storage-system"), "ten minutes, twice"


def test_the_bucket_is_guarded_before_anything_is_written() -> None:
    before = plain().ancestors("eks-storage-association")

    for guard in ("private", "versions", "encryption", "transport", "data", "runs"):
        assert f"eks-storage-bucket-{guard}" in before


def test_no_address_is_taken_before_the_way_out_is_there(graph: Graph) -> None:
    for address in names(graph, "Eip"):
        assert "eks-network-public-route" in graph.ancestors(address)
    for gateway in names(graph, "NatGateway"):
        assert names(graph, "InternetGateway") <= graph.ancestors(gateway)


def test_the_autoscaler_has_its_rights_before_it_starts(graph: Graph) -> None:
    if graph is own():
        assert not graph.of("Deployment"), "a stack that does not scale has no autoscaler"
        return
    before = graph.ancestors("eks-autoscaler-deployment")

    assert "eks-autoscaler-identity" in before, "its pod would never get the credentials"
    assert "eks-autoscaler-role-cluster-autoscaler" in before
    assert {"eks-autoscaler-everywhere-binding", "eks-autoscaler-here-binding"} <= before
    assert nodes(graph) <= before, "it would scale what is being deleted"


def test_fast_interconnects_are_ready_before_the_nodes_that_use_them() -> None:
    rules = {"eks-nodes-efa-in", "eks-nodes-efa-out"}

    assert rules <= full().ancestors(GPU)


def test_protection_follows_the_stack() -> None:
    held = {one.name for one in full().resources.values() if one.protect}

    assert held >= {
        CONTROL_PLANE,
        "eks-cluster-key",
        "eks-storage-system",
        "eks-storage-key",
        "eks-storage-bucket-bucket",
        "eks-registry-trainer",
    }
    assert not any(one.protect for one in plain().resources.values()), "dev can be destroyed"


def test_only_production_keeps_its_bucket_and_then_as_guarded_as_before() -> None:
    kept = {one.name for one in full().resources.values() if one.retain_on_delete}

    assert kept == {
        f"eks-storage-bucket-{what}"
        for what in (
            *("bucket", "private", "versions", "encryption", "lifecycle", "transport"),
            *("data", "runs"),
        )
    }
    assert not any(one.retain_on_delete for one in plain().resources.values())


def test_nothing_is_taken_from_the_user_where_the_user_brings_it() -> None:
    kinds = {one.type.rsplit(":", 1)[-1] for one in own().custom("aws")}

    assert not kinds & {"Vpc", "Subnet", "NatGateway", "Route", "InternetGateway", "VpcEndpoint"}
    assert not kinds & {"LustreFileSystem", "Bucket", "DataRepositoryAssociation"}


def test_the_kubeconfig_is_secret_and_holds_no_credential() -> None:
    said = plain().outputs["kubeconfig"]
    (user,) = json.loads(said)["users"]

    assert "kubeconfig" in plain()[IN_THE_CLUSTER].secrets
    assert set(user["user"]) == {"exec"}
    assert user["user"]["exec"]["command"] == "aws"
    assert user["user"]["exec"]["args"] == [
        *("eks", "get-token"),
        *("--cluster-name", "everstep"),
        *("--region", "us-east-1"),
    ]


def test_a_stack_on_aws_never_imports_the_sdk_of_azure() -> None:
    program = (
        "import sys; from unittest.mock import MagicMock; "
        "sys.modules |= {'pulumi_aws': MagicMock(), 'pulumi_kubernetes': MagicMock()}; "  # seconds
        "import components.environment.eks; assert 'pulumi_azure_native' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
