"""EKS add-ons: versions, settings and permissions."""

import json

import pytest

from components.config.catalog import EKS_ADDONS
from tests.components.aws.eks_stack import (
    declare_eks,
    existing_vpc_stack,
    plain_stack,
    policy_statements,
)
from tests.components.provider_outputs import resolved_addon


@pytest.mark.parametrize("kubernetes", ["1.35", "1.36"])
def test_aws_resolves_the_versions_of_all_add_ons(kubernetes: str) -> None:
    graph = declare_eks(cluster={"kubernetesVersion": kubernetes})
    addons = {resource.inputs["addonName"]: resource.inputs for resource in graph.of_type("Addon")}

    assert graph["eks-cluster-control-plane"].inputs["bootstrapSelfManagedAddons"] is False
    assert {name: actual["addonVersion"] for name, actual in addons.items()} == {
        addon: resolved_addon(addon, kubernetes) for addon in EKS_ADDONS
    }, "a version that AWS does not offer would be refused only after the control plane is created"


def test_a_stack_may_choose_the_version_of_an_add_on() -> None:
    coredns, vpc_cni = (
        existing_vpc_stack()["eks-late-coredns"].inputs,
        existing_vpc_stack()["eks-early-vpc-cni"].inputs,
    )

    assert coredns["addonVersion"] == "v1.13.2-eksbuild.9"
    assert vpc_cni["addonVersion"] == resolved_addon("vpc-cni", "1.36")


def test_versions_are_looked_up_in_the_region_of_the_stack() -> None:
    calls = plain_stack().calls_of("aws:eks/getAddonVersion:getAddonVersion")

    assert {call.arguments["addonName"] for call in calls} == set(EKS_ADDONS)
    for call in calls:
        assert "::eks-aws::" in call.provider, "the default provider may be of another region"
        assert call.arguments["mostRecent"] is False, "the default is not always the most recent"


def test_settings_of_an_add_on_that_were_changed_outside_the_stack_are_overwritten() -> None:
    for addon in plain_stack().some_of_type("Addon"):
        for event in ("Create", "Update"):
            assert addon.inputs[f"resolveConflictsOn{event}"] == "OVERWRITE", addon.name


def test_network_policies_are_enforced() -> None:
    configuration = json.loads(plain_stack()["eks-early-vpc-cni"].inputs["configurationValues"])

    assert configuration["enableNetworkPolicy"] == "true", (
        "without enforcement, policies have no effect"
    )


@pytest.mark.parametrize(
    ("stage", "addon", "service_account"),
    [
        ("early", "vpc-cni", "aws-node"),
        ("late", "aws-fsx-csi-driver", "fsx-csi-controller-sa"),
    ],
)
def test_add_ons_that_call_aws_have_their_own_role(
    stage: str, addon: str, service_account: str
) -> None:
    name = f"eks-{stage}-{addon}"
    (identity,) = plain_stack()[name].inputs["podIdentityAssociations"]
    (trust,) = policy_statements(plain_stack()[f"{name}-role-role"], "assumeRolePolicy")

    assert identity["serviceAccount"] == service_account
    assert identity["roleArn"].endswith(f":role/everstep-{addon}")
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(trust["Action"]) == {"sts:AssumeRole", "sts:TagSession"}, "pod identity needs both"


def test_the_csi_driver_may_only_describe_file_systems_of_the_region() -> None:
    for graph in (plain_stack(), existing_vpc_stack()):
        (statement,) = policy_statements(
            graph["eks-late-aws-fsx-csi-driver-role-aws-fsx-csi-driver"]
        )
        assert statement["Action"] == ["fsx:DescribeFileSystems"]
        assert statement["Resource"] == ["*"], "AWS has no resource-level permission for it"
        assert statement["Condition"] == {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}
