"""Encryption at rest: the stack's own keys, or the team's key."""

from functools import cache
from typing import Any

from pulumi_aws import kms

from components.aws.bucket import Bucket, BucketArgs
from tests.components.aws.eks_stack import PRODUCTION, all_features_stack, declare_eks
from tests.components.recorder import Graph, record

KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@cache
def stack_with_key() -> Graph:
    """Declare a production stack with the team's key and every component that uses it."""
    return declare_eks(
        **PRODUCTION,
        cluster={"kmsKeyArn": KEY, "monitoring": {"containerInsights": True}},
        storage={"kind": "fsx", "deploymentType": "PERSISTENT_2", "sizeGib": 2400},
        registry={"kind": "ecr", "name": "vision"},
    )


def test_with_the_teams_key_no_key_is_created() -> None:
    kinds = {resource.type.rpartition(":")[2] for resource in stack_with_key().resources_of("aws")}

    assert not {"Key", "Alias", "KeyPolicy", "Grant"} & kinds
    assert {"Key", "Alias"} <= {
        resource.type.rpartition(":")[2] for resource in all_features_stack().resources_of("aws")
    }, "without one, the stack creates its own"


def test_secrets_are_encrypted_with_the_key() -> None:
    cluster = stack_with_key().one("Cluster")

    assert cluster.inputs["encryptionConfig"]["provider"]["keyArn"] == KEY


def test_disks_of_all_nodes_are_encrypted_with_the_key() -> None:
    for template in stack_with_key().some_of_type("LaunchTemplate"):
        (disk,) = template.inputs["blockDeviceMappings"]
        assert disk["ebs"]["kmsKeyId"] == KEY, template.name
        assert disk["ebs"]["encrypted"] == "true"


def test_all_log_groups_are_encrypted_with_the_key() -> None:
    groups = stack_with_key().of_type("LogGroup")

    assert len(groups) == 5, "one of the control plane, and four of Container Insights"
    assert {group.inputs["kmsKeyId"] for group in groups} == {KEY}


def test_images_are_encrypted_with_the_key() -> None:
    for repository in stack_with_key().some_of_type("Repository"):
        assert repository.inputs["encryptionConfigurations"] == [
            {"encryptionType": "KMS", "kmsKey": KEY}
        ]


def test_the_bucket_and_its_folders_are_encrypted_with_the_key() -> None:
    graph = stack_with_key()
    (rule,) = graph.one("BucketServerSideEncryptionConfiguration").inputs["rules"]

    assert rule["applyServerSideEncryptionByDefault"] == {
        "sseAlgorithm": "aws:kms",
        "kmsMasterKeyId": KEY,
    }
    assert rule["bucketKeyEnabled"], "otherwise each object is a billed request to KMS"
    assert {folder.inputs["kmsKeyId"] for folder in graph.of_type("BucketObjectv2")} == {KEY}


def test_only_a_persistent_file_system_takes_the_key() -> None:
    persistent = stack_with_key().one("LustreFileSystem")
    scratch = declare_eks(cluster={"kmsKeyArn": KEY}).one("LustreFileSystem")

    assert persistent.inputs["kmsKeyId"] == KEY
    assert "kmsKeyId" not in scratch.inputs, "FSx refuses it for SCRATCH_2"


def test_an_existing_bucket_keeps_its_own_encryption() -> None:
    graph = declare_eks(
        cluster={"kmsKeyArn": KEY}, storage={"kind": "fsx", "bucket": "the-teams-data"}
    )

    for folder in graph.some_of_type("BucketObjectv2"):
        assert "kmsKeyId" not in folder.inputs


def test_a_key_that_the_same_program_creates_is_used_as_an_output() -> None:
    def program() -> dict[str, Any]:
        key = kms.Key("team")
        args = BucketArgs(
            existing=None, prefix="vision", keep=False, folders={}, kms_key_arn=key.arn
        )
        Bucket("data", args)
        return {}

    graph = record(program)

    encryption = graph.one("BucketServerSideEncryptionConfiguration")
    (rule,) = encryption.inputs["rules"]
    assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "aws:kms"
    assert graph["team"].urn in encryption.dependencies, (
        "the key must exist before the bucket uses it"
    )
