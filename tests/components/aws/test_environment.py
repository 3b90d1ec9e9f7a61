"""The resource graph of a stack on AWS: parents, providers, tags and order."""

import json
import subprocess
import sys

import pytest

from components.config.section import MAX_CLUSTER_NAME_LENGTH
from policy.pack import RULES
from policy.rule import Level, Resource
from tests.components.aws.eks_stack import (
    STACK,
    TAGS,
    all_features_stack,
    declare_eks,
    existing_vpc_stack,
    plain_stack,
    training_stack,
)
from tests.components.recorder import Graph

KUBERNETES_PROVIDER = "eks-kubernetes"  # the provider of all Kubernetes objects
CONTROL_PLANE = "eks-cluster-control-plane"
GPU, SYSTEM = "eks-nodes-gpu-spot", "eks-nodes-system"


@pytest.fixture(
    params=[plain_stack, all_features_stack, existing_vpc_stack],
    ids=["plain", "full", "existing VPC"],
)
def graph(request: pytest.FixtureRequest) -> Graph:
    result: Graph = request.param()
    return result


def names(graph: Graph, *kinds: str) -> set[str]:
    return {resource.name for kind in kinds for resource in graph.of_type(kind)}


def node_groups(graph: Graph) -> set[str]:
    return {resource.name for resource in graph.some_of_type("NodeGroup")}


def default_tags(graph: Graph) -> dict[str, str]:
    """Return the tags that the provider adds to all AWS resources; it gets them as JSON."""
    tags: dict[str, str] = json.loads(graph["eks-aws"].inputs["defaultTags"])["tags"]
    return tags


def test_every_child_has_the_name_of_its_component_as_prefix(graph: Graph) -> None:
    by_urn = {resource.urn: resource for resource in graph.resources.values()}
    for resource in graph.resources.values():
        parent = by_urn.get(resource.parent)
        if resource.name == "eks":
            assert parent is None
        else:
            assert parent is not None, f"{resource.name} has no parent"
            assert resource.name.startswith(f"{parent.name}-")


def test_every_aws_resource_uses_the_provider_of_the_stack(graph: Graph) -> None:
    provider = graph["eks-aws"]

    assert provider.inputs["region"] == "us-east-1"
    assert len(graph.resources_of("aws")) > 20
    for resource in graph.resources_of("aws"):
        assert resource.provider.startswith(f"{provider.urn}::"), (
            f"{resource.name} may be created in another account or region"
        )


def test_every_kubernetes_object_uses_the_provider_of_the_cluster() -> None:
    graph = training_stack()

    assert len(graph.resources_of("kubernetes")) > 10
    for resource in graph.resources_of("kubernetes"):
        assert KUBERNETES_PROVIDER in resource.provider, (
            f"{resource.name} would go to another cluster"
        )


def test_every_taggable_resource_has_owner_and_stack_tags(graph: Graph) -> None:
    environment = "prod" if graph is all_features_stack() else "dev"
    expected = {**TAGS, "environment": environment, "managed-by": "everstep", "stack": STACK}

    assert default_tags(graph) == expected
    for resource in graph.resources_of("aws"):
        assert not set(resource.inputs.get("tags", {})) & set(expected), (
            f"{resource.name} has duplicate tags"
        )


def test_any_environment_name_becomes_a_tag_of_all_resources() -> None:
    graph = declare_eks(tags={**TAGS, "environment": "staging"})

    assert default_tags(graph)["environment"] == "staging"
    for template in graph.some_of_type("LaunchTemplate"):
        for specification in template.inputs["tagSpecifications"]:
            assert specification["tags"]["environment"] == "staging"


def test_instances_disks_and_network_interfaces_have_owner_tags(graph: Graph) -> None:
    for template in graph.some_of_type("LaunchTemplate"):
        kinds = set()
        for tag_specification in template.inputs["tagSpecifications"]:
            kinds.add(tag_specification["resourceType"])
            assert tag_specification["tags"]["stack"] == STACK, (
                "default tags of a provider do not apply to these"
            )
            assert tag_specification["tags"]["owner"] == TAGS["owner"]
        assert kinds == {"instance", "volume", "network-interface"}


def test_names_with_the_longest_cluster_name_fit_the_limits_of_aws() -> None:
    graph = declare_eks(
        cluster={
            "name": "n" * MAX_CLUSTER_NAME_LENGTH,
            "gpuPool": {"fallbackNodes": 1, "instanceTypes": ["p4d.24xlarge"], "efa": True},
            "monitoring": {"containerInsights": True, "managedPrometheus": True},
        }
    )
    limits = {
        ("Role", "name"): 64,
        ("NodeGroup", "nodeGroupName"): 63,
        ("NodeGroup", "nodeGroupNamePrefix"): 63 - 26,  # the provider appends 26 characters
        ("LaunchTemplate", "name"): 128,
        ("SecurityGroup", "name"): 255,
    }

    for (kind, key), limit in limits.items():
        lengths = [
            len(resource.inputs[key])
            for resource in graph.resources_of("aws")
            if resource.type.endswith(f":{kind}") and key in resource.inputs
        ]
        assert MAX_CLUSTER_NAME_LENGTH < max(lengths) <= limit, f"{key} of {kind}"


def test_the_stack_violates_no_mandatory_policy(graph: Graph) -> None:
    rules = [rule for rule in RULES if rule.level is Level.MANDATORY]
    tags = default_tags(graph)
    checked = set()
    for declaration in graph.resources_of("aws") + graph.resources_of("kubernetes"):
        resource = Resource(
            type=declaration.type,
            properties=declaration.inputs,
            stack=STACK,
            protect=declaration.protect,
            default_tags=tags,
        )
        for rule in rules:
            assert not list(rule.violations(resource)), f"{declaration.name} breaks {rule.name}"
            if resource.type in rule.types:
                checked.add(rule.name)
    assert len(checked) >= 10, "the policies must apply to these resources at all"


def test_egress_routes_exist_before_the_nodes(graph: Graph) -> None:
    egress_routes = names(graph, "NatGateway", "Route", "RouteTableAssociation", "VpcEndpoint")

    assert egress_routes or graph is existing_vpc_stack()
    for group in node_groups(graph):
        assert egress_routes <= graph.ancestors(group), (
            "a node that cannot pull images never becomes Ready"
        )


def test_the_log_group_is_created_before_the_cluster(graph: Graph) -> None:
    assert "eks-cluster-logs" in graph.ancestors(CONTROL_PLANE), (
        "EKS would create a group that keeps all logs forever and outlives the stack"
    )


def test_roles_keep_their_policies_as_long_as_they_are_used(graph: Graph) -> None:
    assert "eks-cluster-role-AmazonEKSClusterPolicy" in graph.ancestors(CONTROL_PLANE), (
        "EKS could not delete its security group and network interfaces"
    )
    policies = {name for name in names(graph, "RolePolicyAttachment") if "eks-nodes-role" in name}
    assert len(policies) == 2
    for group in node_groups(graph):
        assert policies <= graph.ancestors(group)


def test_the_network_plugin_outlives_the_nodes(graph: Graph) -> None:
    for group in node_groups(graph):
        ancestors = graph.ancestors(group)
        assert "eks-early-vpc-cni" in ancestors, "its network interfaces would be left behind"
        assert "eks-early-vpc-cni-role-AmazonEKS_CNI_Policy" in ancestors
        assert {"eks-early-kube-proxy", "eks-early-eks-pod-identity-agent"} <= ancestors


def test_add_ons_that_nodes_do_not_need_are_created_after_the_system_nodes(graph: Graph) -> None:
    for addon in ("coredns", "aws-fsx-csi-driver", "eks-node-monitoring-agent"):
        assert "eks-nodes-system" in graph.ancestors(f"eks-late-{addon}")


def test_objects_in_the_cluster_depend_on_everything_that_their_deletion_needs(
    graph: Graph,
) -> None:
    ancestors = graph.ancestors(KUBERNETES_PROVIDER)

    assert {SYSTEM} | names(graph, "Addon") <= ancestors, "pods would hang in Terminating"
    assert names(graph, "NatGateway", "Route", "RouteTableAssociation") <= ancestors
    assert names(graph, "AccessEntry", "AccessPolicyAssociation") <= ancestors, (
        "no administrator would have access"
    )


def test_no_object_in_the_cluster_waits_for_gpu_nodes() -> None:
    graph = training_stack()
    gpu = {name for name in graph.resources if "gpu" in name and name.startswith("eks-nodes")}

    assert GPU in gpu
    for resource in [*graph.resources_of("kubernetes"), *graph.of_type("Addon")]:
        gpu_ancestors = gpu & graph.ancestors(resource.name)
        assert not gpu_ancestors, f"without GPU capacity there would be no {resource.name}"


def test_the_volume_outlives_all_pods_that_mount_it() -> None:
    graph = training_stack()
    rules = {name for name in names(graph, "SecurityGroupIngressRule") if "storage" in name}
    prerequisites = {
        "eks-storage-system",
        "eks-storage-association",
        "eks-late-aws-fsx-csi-driver",
    }

    for pod in ("training-job-fashion", "training-data-fashion-mnist"):
        assert "training-storage-volume" in graph.ancestors(pod)
    assert rules
    assert rules | prerequisites <= graph.ancestors("training-storage-volume")


def test_the_file_system_is_created_after_its_security_group_rules() -> None:
    ancestors = plain_stack().ancestors("eks-storage-system")

    for direction in ("in", "out"):
        for port in (988, 1018):
            assert f"eks-storage-servers-{direction}-{port}" in ancestors, (
                "FSx checks the rules and refuses to create a file system without them"
            )


def test_the_file_system_does_not_wait_for_the_cluster() -> None:
    assert CONTROL_PLANE not in plain_stack().ancestors("eks-storage-system"), (
        "each takes ten minutes, which would add up"
    )


def test_the_bucket_is_secured_and_has_its_folders_before_the_file_system_is_linked_to_it() -> None:
    ancestors = plain_stack().ancestors("eks-storage-association")

    for part in ("private", "versions", "encryption", "transport", "data", "runs"):
        assert f"eks-storage-bucket-{part}" in ancestors
    assert "eks-storage-bucket-private" in plain_stack().ancestors(
        "eks-storage-bucket-transport"
    ), "S3 refuses concurrent changes of access"


def test_the_gateway_address_is_allocated_after_the_internet_gateway() -> None:
    graph = all_features_stack()
    internet_gateway = graph.one("InternetGateway").name

    for address in graph.some_of_type("Eip"):
        assert {"eks-network-public-route", internet_gateway} <= graph.ancestors(address.name)
    for gateway in graph.some_of_type("NatGateway"):
        assert internet_gateway in graph.ancestors(gateway.name)


def test_the_autoscaler_has_its_permissions_before_it_starts() -> None:
    ancestors = plain_stack().ancestors("eks-autoscaler-deployment")

    assert "eks-autoscaler-identity" in ancestors, "its pod would never get credentials"
    assert "eks-autoscaler-role-cluster-autoscaler" in ancestors
    assert {"eks-autoscaler-everywhere-binding", "eks-autoscaler-here-binding"} <= ancestors


def test_the_rules_of_efa_exist_before_the_nodes_that_use_it() -> None:
    rules = {"eks-nodes-efa-in", "eks-nodes-efa-out"}

    assert rules <= all_features_stack().ancestors(GPU)


def test_only_a_protected_stack_protects_its_resources() -> None:
    protected = {
        resource.name for resource in all_features_stack().resources.values() if resource.protect
    }

    assert protected >= {
        CONTROL_PLANE,
        "eks-cluster-key",
        "eks-storage-system",
        "eks-storage-key",
        "eks-storage-bucket-bucket",
        "eks-registry-trainer",
    }
    assert not any(resource.protect for resource in plain_stack().resources.values()), (
        "dev can be destroyed"
    )


def test_by_default_only_production_keeps_its_bucket_with_all_its_settings() -> None:
    retained = {
        resource.name
        for resource in all_features_stack().resources.values()
        if resource.retain_on_delete
    }

    assert retained == {
        f"eks-storage-bucket-{part}"
        for part in (
            *("bucket", "private", "versions", "encryption", "lifecycle", "transport"),
            *("data", "runs"),
        )
    }
    assert not any(resource.retain_on_delete for resource in plain_stack().resources.values())


def test_a_development_stack_can_keep_its_bucket_only() -> None:
    graph = declare_eks(storage={"kind": "fsx", "keep": True})
    protected = {resource.name for resource in graph.resources.values() if resource.protect}
    retained = {resource.name for resource in graph.resources.values() if resource.retain_on_delete}

    assert protected == retained, (
        "`destroy` would drop a retained resource from the state, and `up` create it a second time"
    )
    assert protected == {name for name in graph.resources if name.startswith("eks-storage-bucket-")}
    assert graph.one("Bucket").inputs["forceDestroy"] is False


def test_the_users_existing_resources_are_not_changed() -> None:
    kinds = {
        resource.type.rsplit(":", 1)[-1] for resource in existing_vpc_stack().resources_of("aws")
    }

    assert not kinds & {"Vpc", "Subnet", "NatGateway", "Route", "InternetGateway", "VpcEndpoint"}
    assert not kinds & {"LustreFileSystem", "Bucket", "DataRepositoryAssociation"}


def test_the_kubeconfig_is_secret_and_contains_no_credential() -> None:
    actual = plain_stack().outputs["kubeconfig"]
    (user,) = json.loads(actual)["users"]

    assert "kubeconfig" in plain_stack()[KUBERNETES_PROVIDER].secrets
    assert set(user["user"]) == {"exec"}
    assert user["user"]["exec"]["command"] == "aws"
    assert user["user"]["exec"]["args"] == [
        *("eks", "get-token"),
        *("--cluster-name", "everstep"),
        *("--region", "us-east-1"),
    ]


def test_a_stack_on_aws_never_imports_the_azure_sdk() -> None:
    program = (
        "import sys; from unittest.mock import MagicMock; "
        # The real SDKs take seconds to import.
        "sys.modules |= {'pulumi_aws': MagicMock(), 'pulumi_kubernetes': MagicMock()}; "
        "import components.aws.environment; assert 'pulumi_azure_native' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
