"""FSx for Lustre over S3: sizes, zones, ports, the bucket, and the volume that pods see."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.storage.fsx import bucket_prefix
from tests.unit.components.eks_stack import declared_eks, document, full, own, plain, whole
from tests.unit.components.recorder import Graph, Recorded


def system(graph: Graph) -> dict[str, object]:
    return dict(graph.one("LustreFileSystem").inputs)


def rules(graph: Graph) -> list[Recorded]:
    kinds = ("SecurityGroupIngressRule", "SecurityGroupEgressRule")
    return [one for kind in kinds for one in graph.of(kind) if "storage" in one.name]


def test_a_scratch_file_system_says_nothing_that_only_a_persistent_one_takes() -> None:
    said = system(plain())

    assert said["deploymentType"] == "SCRATCH_2"
    assert said["storageCapacity"] == 1200
    assert said["dataCompressionType"] == "LZ4"
    assert said["fileSystemTypeVersion"] == "2.15"
    assert not set(said) & {
        *("perUnitStorageThroughput", "kmsKeyId", "automaticBackupRetentionDays"),
        *("importPath", "exportPath"),
    }


def test_a_persistent_one_has_a_key_a_throughput_and_a_last_backup() -> None:
    said = system(full())

    assert said["perUnitStorageThroughput"] == 125
    assert str(said["kmsKeyId"]).endswith("eks-storage-key")
    assert said["automaticBackupRetentionDays"] == 0
    assert said["skipFinalBackup"] is False, "production's data would go without a trace"
    assert full()["eks-storage-key"].inputs["enableKeyRotation"] is True


def test_lustres_ports_are_open_both_ways_and_no_others() -> None:
    for one in rules(plain()):
        said = one.inputs
        assert said["ipProtocol"] == "tcp"
        assert (said["fromPort"], said["toPort"]) in {(988, 988), (1018, 1023)}
        assert said["referencedSecurityGroupId"], "a range of addresses would let others in"


@pytest.mark.parametrize("port", [988, 1018])
def test_nodes_and_servers_speak_to_each_other(port: int) -> None:
    ours, nodes = "eks-storage-group-id", "sg-everstep-cluster"
    pairs = {
        (one.type.rsplit(":", 1)[-1][13:-4], one.inputs["securityGroupId"],
         one.inputs["referencedSecurityGroupId"])
        for one in rules(plain())
        if one.inputs["fromPort"] == port
    }  # fmt: skip

    assert pairs == {
        ("Ingress", ours, ours),
        ("Egress", ours, ours),
        ("Ingress", ours, nodes),
        ("Egress", ours, nodes),
        ("Ingress", nodes, ours),
    }


def test_a_security_group_can_be_deleted_while_rules_point_at_it() -> None:
    assert plain()["eks-storage-group"].inputs["revokeRulesOnDelete"] is True


def test_the_whole_file_system_is_tied_to_the_bucket_both_ways() -> None:
    said = plain().one("DataRepositoryAssociation").inputs

    assert said["fileSystemPath"] == "/"
    assert said["dataRepositoryPath"] == "s3://everstep-eks-test-0a1b2c3"
    assert said["batchImportMetaDataOnCreate"] is True
    assert said["deleteDataInFilesystem"] is False
    for policy in ("autoImportPolicy", "autoExportPolicy"):
        assert set(said["s3"][policy]["events"]) == {"NEW", "CHANGED", "DELETED"}


def test_the_bucket_is_closed_to_the_public_without_a_gap() -> None:
    said = plain().one("BucketPublicAccessBlock").inputs

    assert {key: value for key, value in said.items() if key != "bucket"} == dict.fromkeys(
        ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"),
        True,
    )


def test_the_bucket_is_encrypted_versioned_and_forgets_old_versions() -> None:
    (rule,) = plain().one("BucketServerSideEncryptionConfiguration").inputs["rules"]
    (life,) = plain().one("BucketLifecycleConfiguration").inputs["rules"]

    assert rule["applyServerSideEncryptionByDefault"] == {"sseAlgorithm": "AES256"}
    assert plain().one("BucketVersioning").inputs["versioningConfiguration"] == {
        "status": "Enabled"
    }
    assert life["noncurrentVersionExpiration"] == {"noncurrentDays": 30}
    assert life["status"] == "Enabled"


def test_the_bucket_refuses_what_does_not_come_by_tls() -> None:
    (statement,) = document(plain().one("BucketPolicy"))

    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert [one.rpartition(":::")[2] for one in statement["Resource"]] == [
        "everstep-eks-test-0a1b2c3",
        "everstep-eks-test-0a1b2c3/*",
    ]


def test_only_a_bucket_that_is_not_kept_is_emptied() -> None:
    assert plain().one("Bucket").inputs["forceDestroy"] is True
    assert full().one("Bucket").inputs["forceDestroy"] is False


@pytest.mark.parametrize("folder", ["data", "runs"])
def test_workers_own_the_folders_they_write_in(folder: str) -> None:
    marker = plain()[f"eks-storage-bucket-{folder}"]

    assert marker.inputs["key"] == f"{folder}/"
    assert marker.inputs["metadata"]["file-owner"] == "10001", "the root folder is root's"
    assert marker.inputs["metadata"]["file-group"] == "10001"
    assert marker.inputs["metadata"]["file-permissions"] == "0040770"
    assert set(marker.ignore_changes) == {"metadata", "contentType"}, "FSx rewrites them"


def test_a_bucket_of_the_users_own_is_left_as_it_is() -> None:
    graph = declared_eks(storage={"kind": "fsx", "bucket": "the-teams-data"})
    kinds = {one.type.rsplit(":", 1)[-1] for one in graph.custom("aws") if "s3/" in one.type}

    assert kinds == {"BucketObjectv2"}
    said = graph.one("DataRepositoryAssociation").inputs
    assert said["dataRepositoryPath"] == "s3://the-teams-data"
    assert graph.outputs["where"] == "s3://the-teams-data"


def volume(graph: Graph) -> dict[str, object]:
    return dict(graph["training-storage-volume"].inputs["spec"])


def test_pods_mount_the_file_system_by_its_names() -> None:
    said = volume(whole())

    assert said["csi"] == {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": "eks-storage-system-id",
        "volumeAttributes": {
            "dnsname": "eks-storage-system-id.fsx.us-east-1.amazonaws.com",
            "mountname": "fsmount1",
        },
    }
    assert said["mountOptions"] == ["flock"], "a lock would hold on one node only"
    assert said["capacity"] == {"storage": "1200Gi"}
    assert said["persistentVolumeReclaimPolicy"] == "Retain"


def test_a_file_system_of_the_users_own_is_only_mounted() -> None:
    assert own().outputs["where"] == "fsx://fs-0123456789abcdef0"
    assert own().outputs["fileSystem"] == "fs-0123456789abcdef0"
    assert not rules(own())


@given(cluster=st.from_regex(r"[a-z]([-a-z0-9]{0,28}[a-z0-9])?", fullmatch=True), stack=st.text())
def test_any_stack_gives_the_beginning_of_a_buckets_name(cluster: str, stack: str) -> None:
    said = bucket_prefix(cluster, stack)

    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*-", said)
    assert len(said) <= 37, "AWS adds 26 to it and takes no more than 63"
    assert "--" not in said or "--" in cluster
