"""The control plane of an EKS cluster: access, encryption, logs and protection."""

from typing import Any

from components.aws.cluster import short_name
from tests.components.aws.eks_stack import (
    ADMINISTRATOR,
    all_features_stack,
    existing_vpc_stack,
    plain_stack,
)
from tests.components.recorder import Graph


def control_plane(graph: Graph) -> dict[str, Any]:
    return dict(graph["eks-cluster-control-plane"].inputs)


def test_users_get_access_only_through_access_entries() -> None:
    access = control_plane(plain_stack())["accessConfig"]
    entry = plain_stack().one("AccessEntry").inputs
    association = plain_stack().one("AccessPolicyAssociation").inputs

    assert access["authenticationMode"] == "API"
    assert entry["principalArn"] == association["principalArn"] == ADMINISTRATOR
    assert entry["type"] == "STANDARD"
    assert association["policyArn"].endswith(":cluster-access-policy/AmazonEKSClusterAdminPolicy")
    assert association["accessScope"] == {"type": "cluster"}


def test_the_creator_becomes_administrator_only_if_the_list_is_empty() -> None:
    key = "bootstrapClusterCreatorAdminPermissions"

    assert control_plane(plain_stack())["accessConfig"][key] is False, (
        "two access entries of one principal would conflict"
    )
    assert control_plane(existing_vpc_stack())["accessConfig"][key] is True, (
        "without an administrator, the creator must have access"
    )
    assert f"accessConfig.{key}" in plain_stack()["eks-cluster-control-plane"].ignore_changes, (
        "adding the first administrator later would replace the cluster"
    )


def test_administrators_with_the_same_name_in_two_accounts_are_distinct() -> None:
    first, second = (f"arn:aws:iam::{account}:role/admin" for account in ("1" * 12, "2" * 12))

    assert short_name(first) != short_name(second)
    assert short_name(first).startswith("admin-")


def test_the_api_is_reachable_from_the_vpc_and_listed_networks() -> None:
    actual = control_plane(plain_stack())["vpcConfig"]

    assert actual["endpointPrivateAccess"] is True
    assert actual["endpointPublicAccess"] is True
    assert actual["publicAccessCidrs"] == ["203.0.113.0/24"]


def test_without_a_list_the_api_is_private() -> None:
    actual = control_plane(existing_vpc_stack())["vpcConfig"]

    assert actual["endpointPublicAccess"] is False
    assert "publicAccessCidrs" not in actual


def test_services_get_addresses_from_a_fixed_block() -> None:
    actual = control_plane(plain_stack())["kubernetesNetworkConfig"]

    assert actual == {"ipFamily": "ipv4", "serviceIpv4Cidr": "172.20.0.0/16"}, (
        "without a block, EKS chooses one of two, and the nodes could not exempt it from their proxy"
    )


def test_secrets_are_encrypted_with_a_key_that_is_rotated() -> None:
    actual = control_plane(plain_stack())["encryptionConfig"]
    key = plain_stack()["eks-cluster-key"]

    assert actual["resources"] == ["secrets"]
    assert actual["provider"]["keyArn"].endswith(key.name)
    assert key.inputs["enableKeyRotation"] is True
    assert key.inputs["deletionWindowInDays"] == 7
    assert all_features_stack()["eks-cluster-key"].inputs["deletionWindowInDays"] == 30


def test_all_logs_go_to_a_log_group_with_a_retention_period() -> None:
    logs = plain_stack().one("LogGroup").inputs

    assert set(control_plane(plain_stack())["enabledClusterLogTypes"]) == {
        *("api", "audit", "authenticator", "controllerManager", "scheduler"),
    }
    assert logs["name"] == "/aws/eks/everstep/cluster", "EKS writes to no other"
    assert logs["retentionInDays"] == 30


def test_the_cluster_never_enters_extended_support() -> None:
    assert control_plane(plain_stack())["upgradePolicy"] == {"supportType": "STANDARD"}


def test_only_production_has_deletion_protection() -> None:
    assert control_plane(plain_stack())["deletionProtection"] is False
    assert control_plane(all_features_stack())["deletionProtection"] is True
