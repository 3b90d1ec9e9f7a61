"""FSx for Lustre over S3: sizes, zones, ports, the bucket, and the volume of the pods."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.aws.fsx import bucket_prefix
from tests.components.aws.eks_stack import (
    all_features_stack,
    declare_eks,
    existing_vpc_stack,
    plain_stack,
    policy_statements,
    training_stack,
)
from tests.components.recorder import Graph, RecordedResource

INGRESS, EGRESS = RULE_TYPES = ("SecurityGroupIngressRule", "SecurityGroupEgressRule")


def file_system(graph: Graph) -> dict[str, object]:
    return dict(graph.one("LustreFileSystem").inputs)


def rules(graph: Graph) -> list[RecordedResource]:
    return [
        resource
        for kind in RULE_TYPES
        for resource in graph.of_type(kind)
        if "storage" in resource.name
    ]


def test_a_scratch_file_system_sets_no_persistent_options_and_no_import_or_export_path() -> None:
    actual = file_system(plain_stack())

    assert actual["deploymentType"] == "SCRATCH_2"
    assert actual["storageCapacity"] == 1200
    assert actual["dataCompressionType"] == "LZ4"
    assert actual["fileSystemTypeVersion"] == "2.15"
    assert not set(actual) & {
        *("perUnitStorageThroughput", "kmsKeyId", "automaticBackupRetentionDays"),
        *("importPath", "exportPath"),
    }


def test_a_persistent_file_system_has_a_key_and_a_throughput_and_requests_no_backup() -> None:
    actual = file_system(all_features_stack())

    assert actual["perUnitStorageThroughput"] == 125
    assert str(actual["kmsKeyId"]).endswith("eks-storage-key")
    assert not set(actual) & {"automaticBackupRetentionDays", "copyTagsToBackups"}
    assert actual["skipFinalBackup"] is True, (
        "FSx refuses a backup of a file system that is linked to S3, so its deletion would fail"
    )
    assert all_features_stack()["eks-storage-key"].inputs["enableKeyRotation"] is True


def test_only_the_ports_of_lustre_are_open_in_both_directions() -> None:
    ports = {
        (rule.type.rsplit(":", 1)[-1], rule.inputs["fromPort"], rule.inputs["toPort"])
        for rule in rules(plain_stack())
    }

    assert ports == {(kind, *span) for kind in RULE_TYPES for span in ((988, 988), (1018, 1023))}
    for rule in rules(plain_stack()):
        assert rule.inputs["ipProtocol"] == "tcp"
        assert rule.inputs["referencedSecurityGroupId"], (
            "an address range would admit other machines"
        )


@pytest.mark.parametrize("port", [988, 1018])
def test_nodes_and_servers_can_connect_to_each_other(port: int) -> None:
    servers, nodes = "eks-storage-group-id", "sg-everstep-cluster"
    pairs = {
        (rule.type.rsplit(":", 1)[-1], rule.inputs["securityGroupId"],
         rule.inputs["referencedSecurityGroupId"])
        for rule in rules(plain_stack())
        if rule.inputs["fromPort"] == port
    }  # fmt: skip

    assert pairs == {
        (INGRESS, servers, servers),
        (EGRESS, servers, servers),
        (INGRESS, servers, nodes),
        (EGRESS, servers, nodes),
        (INGRESS, nodes, servers),
    }


def test_the_description_of_a_rule_names_its_other_end() -> None:
    descriptions = {
        (rule.inputs["securityGroupId"], rule.inputs["referencedSecurityGroupId"]): set[str]()
        for rule in rules(plain_stack())
    }
    for rule in rules(plain_stack()):
        ends = rule.inputs["securityGroupId"], rule.inputs["referencedSecurityGroupId"]
        descriptions[ends].add(rule.inputs["description"])

    servers, nodes = "eks-storage-group-id", "sg-everstep-cluster"
    assert descriptions == {
        (servers, servers): {"Lustre from servers", "Lustre to servers"},
        (servers, nodes): {"Lustre from nodes", "Lustre to nodes"},
        (nodes, servers): {"Lustre from the file system"},
    }


def test_a_security_group_can_be_deleted_while_rules_reference_it() -> None:
    assert plain_stack()["eks-storage-group"].inputs["revokeRulesOnDelete"] is True


def test_the_whole_file_system_is_synchronized_with_the_bucket_in_both_directions() -> None:
    inputs = plain_stack().one("DataRepositoryAssociation").inputs

    assert inputs["fileSystemPath"] == "/"
    assert inputs["dataRepositoryPath"] == "s3://everstep-eks-test-0a1b2c3"
    assert inputs["batchImportMetaDataOnCreate"] is True
    assert inputs["deleteDataInFilesystem"] is False
    for policy in ("autoImportPolicy", "autoExportPolicy"):
        assert set(inputs["s3"][policy]["events"]) == {"NEW", "CHANGED", "DELETED"}


def test_the_bucket_blocks_all_public_access() -> None:
    inputs = plain_stack().one("BucketPublicAccessBlock").inputs

    assert {key: value for key, value in inputs.items() if key != "bucket"} == dict.fromkeys(
        ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"),
        True,
    )


def test_the_bucket_is_encrypted_versioned_and_expires_old_versions() -> None:
    (rule,) = plain_stack().one("BucketServerSideEncryptionConfiguration").inputs["rules"]
    (lifecycle_rule,) = plain_stack().one("BucketLifecycleConfiguration").inputs["rules"]

    assert rule["applyServerSideEncryptionByDefault"] == {"sseAlgorithm": "AES256"}
    assert plain_stack().one("BucketVersioning").inputs["versioningConfiguration"] == {
        "status": "Enabled"
    }
    assert lifecycle_rule["noncurrentVersionExpiration"] == {"noncurrentDays": 30}
    assert lifecycle_rule["expiration"] == {"expiredObjectDeleteMarker": True}
    assert lifecycle_rule["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": 7}
    assert lifecycle_rule["filter"] == {"prefix": ""}, "all objects"
    assert lifecycle_rule["status"] == "Enabled"


def test_the_bucket_refuses_requests_without_tls() -> None:
    (statement,) = policy_statements(plain_stack().one("BucketPolicy"))

    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert [arn.rpartition(":::")[2] for arn in statement["Resource"]] == [
        "everstep-eks-test-0a1b2c3",
        "everstep-eks-test-0a1b2c3/*",
    ]


def test_a_retained_bucket_is_never_emptied() -> None:
    assert plain_stack().one("Bucket").inputs["forceDestroy"] is True
    assert all_features_stack().one("Bucket").inputs["forceDestroy"] is False


@pytest.mark.parametrize("folder", ["data", "runs"])
def test_workers_own_the_folders_that_they_write_to(folder: str) -> None:
    marker = plain_stack()[f"eks-storage-bucket-{folder}"]

    assert marker.inputs["key"] == f"{folder}/"
    assert marker.inputs["metadata"]["file-owner"] == "10001", "the root folder belongs to root"
    assert marker.inputs["metadata"]["file-group"] == "10001"
    assert marker.inputs["metadata"]["file-permissions"] == "0040770"
    assert set(marker.ignore_changes) == {"metadata", "contentType"}, "FSx rewrites them"


def test_an_existing_bucket_is_not_changed() -> None:
    graph = declare_eks(storage={"kind": "fsx", "bucket": "the-teams-data"})
    kinds = {
        resource.type.rsplit(":", 1)[-1]
        for resource in graph.resources_of("aws")
        if "s3/" in resource.type
    }

    assert kinds == {"BucketObjectv2"}
    inputs = graph.one("DataRepositoryAssociation").inputs
    assert inputs["dataRepositoryPath"] == "s3://the-teams-data"
    assert graph.outputs["location"] == "s3://the-teams-data"


def test_pods_mount_the_file_system_by_dns_and_mount_name() -> None:
    actual = training_stack()["training-storage-volume"].inputs["spec"]

    assert actual["csi"] == {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": "eks-storage-system-id",
        "volumeAttributes": {
            "dnsname": "eks-storage-system-id.fsx.us-east-1.amazonaws.com",
            "mountname": "fsmount1",
        },
    }
    assert actual["mountOptions"] == ["flock"], "file locks must work across nodes"
    assert actual["capacity"] == {"storage": "1200Gi"}
    assert actual["persistentVolumeReclaimPolicy"] == "Retain"


def test_an_existing_file_system_is_only_mounted() -> None:
    assert existing_vpc_stack().outputs["location"] == "fsx://fs-0123456789abcdef0"
    assert existing_vpc_stack().outputs["fileSystem"] == "fs-0123456789abcdef0"
    assert not rules(existing_vpc_stack())


@given(cluster=st.from_regex(r"[a-z]([-a-z0-9]{0,28}[a-z0-9])?", fullmatch=True), stack=st.text())
def test_every_stack_name_yields_a_valid_bucket_prefix(cluster: str, stack: str) -> None:
    actual = bucket_prefix(cluster, stack)

    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*-", actual)
    assert len(actual) <= 37, "the provider appends 26 characters, and 63 is the maximum"
    assert "--" not in actual or "--" in cluster


@pytest.mark.parametrize("folder", ["data", "runs"])
def test_folders_of_the_bucket_get_no_default_tags(folder: str) -> None:
    inputs = plain_stack()[f"eks-storage-bucket-{folder}"].inputs

    assert inputs["overrideProvider"] == {"defaultTags": {"tags": {}}}, (
        "S3 allows ten tags per object; a stack may have more"
    )


def test_timeouts_cover_a_new_file_system_and_the_import_of_a_large_bucket() -> None:
    assert plain_stack()["eks-storage-association"].timeouts == ("30m", "30m", "30m")
    assert plain_stack()["eks-storage-system"].timeouts == ("60m", "60m", "60m")
