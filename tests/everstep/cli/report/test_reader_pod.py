"""The pod that reads the files of a run while no worker runs."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everstep.cli.report.reader_pod import (
    READING_SECONDS,
    START_SECONDS,
    RunUnreadableError,
    manifest,
    reader_pod,
)
from tests.everstep.cli.report.volume_cluster import (
    JOB,
    VolumeCluster,
    elastic_job,
    etcd_members,
)


def pod_manifest(etcd: dict[str, Any] | None = None) -> dict[str, Any]:
    pod = manifest(elastic_job(), etcd_members() if etcd is None else etcd, "run-reader-1")
    assert pod is not None
    return pod


def test_the_pod_mounts_only_the_volume_and_only_for_reading() -> None:
    spec = pod_manifest()["spec"]

    assert [volume["name"] for volume in spec["volumes"]] == ["everstep"]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "everstep", "mountPath": "/everstep", "readOnly": True}
    ]
    assert spec["serviceAccountName"] == "trainer", "its identity may be needed for the mount"


def test_the_pod_meets_the_restricted_standard_and_ends_on_its_own() -> None:
    spec = pod_manifest()["spec"]
    container = spec["containers"][0]

    assert spec["securityContext"] == {"runAsUser": 10001}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["command"] == ["sleep", str(READING_SECONDS)]
    assert spec["activeDeadlineSeconds"] >= READING_SECONDS + START_SECONDS
    assert "nvidia.com/gpu" not in str(spec), "it must not wait for a GPU"


def test_the_pod_runs_on_the_nodes_of_etcd_with_the_image_that_they_have() -> None:
    spec = pod_manifest()["spec"]

    assert spec["nodeSelector"] == {"everstep.dev/pool": "system"}
    assert spec["tolerations"] == [{"key": "system-only"}]
    assert spec["containers"][0]["image"] == "registry/etcd-rejoin:1"
    assert spec["imagePullSecrets"] == [{"name": "registries"}]


def test_without_an_image_with_a_shell_on_these_nodes_the_pod_has_the_image_of_the_workers() -> (
    None
):
    etcd = etcd_members()
    del etcd["spec"]["template"]["spec"]["initContainers"]

    assert pod_manifest(etcd)["spec"]["containers"][0]["image"] == "registry/trainer:1"
    assert pod_manifest({})["spec"]["containers"][0]["image"] == "registry/trainer:1"


def test_the_pod_does_not_count_as_a_worker_but_has_the_labels_that_the_volume_needs() -> None:
    metadata = pod_manifest()["metadata"]

    assert metadata["labels"] == {
        "app.kubernetes.io/name": "run-reader",
        "azure.workload.identity/use": "true",
    }
    assert metadata["ownerReferences"][0]["uid"] == "uid-1"


def use_pod(cluster: VolumeCluster, action: Callable[[str], None] = lambda _: None) -> None:
    """Start the pod, call a function with its name, and delete it; each look at the clock takes 50 s."""
    times = itertools.count(step=50.0)
    with reader_pod(cluster.client, JOB, lambda _: None, lambda: next(times)) as name:
        action(name)


def test_the_pod_is_deleted_even_after_an_error(tmp_path: Path) -> None:
    cluster = VolumeCluster(tmp_path)

    def interrupt(name: str) -> None:
        assert [path.rpartition("/")[2] for path in cluster.pods] == [name]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use_pod(cluster, interrupt)

    assert cluster.created_pods
    assert not cluster.pods


UNSCHEDULED = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "too little memory"}],
}
UNPULLED = {
    "phase": "Pending",
    "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (UNSCHEDULED, "did not start within 180 s: too little memory"),
        (UNPULLED, "did not start within 180 s: ImagePullBackOff"),
        (
            {"phase": "Failed", "message": "the node was low on memory"},
            "ended before .*: the node was",
        ),
    ],
)
def test_a_pod_that_does_not_start_is_reported_with_the_reason_and_deleted(
    tmp_path: Path, status: dict[str, Any], reason: str
) -> None:
    cluster = VolumeCluster(tmp_path, reader_status=status)

    with pytest.raises(RunUnreadableError, match=reason) as raised:
        use_pod(cluster)

    assert "(the job is Succeeded: Succeeded message)" in raised.value.problem
    assert cluster.created_pods
    assert not cluster.pods


def test_a_pod_that_the_api_server_refuses_is_reported_with_the_reason(tmp_path: Path) -> None:
    cluster = VolumeCluster(tmp_path, refusal="exceeded quota: everstep")

    with pytest.raises(RunUnreadableError, match=r"no worker runs .*: exceeded quota: everstep"):
        use_pod(cluster)


def test_without_the_job_no_pod_is_created(tmp_path: Path) -> None:
    cluster = VolumeCluster(tmp_path, job={})

    with pytest.raises(RunUnreadableError, match="there is no ElasticJob fashion"):
        use_pod(cluster)

    assert not cluster.created_pods
