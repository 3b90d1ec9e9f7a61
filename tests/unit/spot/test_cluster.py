"""What the watcher reads from the API server's objects, and its command line."""

from typing import Any

import pytest

from spot.__main__ import parse
from spot.cluster import read_pod


def source(**changes: Any) -> dict[str, Any]:
    metadata = {"namespace": "elastic-job", "name": "fashion-worker-0", "uid": "1"}
    said: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": {"phase": "Running"}}
    for key, values in changes.items():
        said[key] = {**said[key], **values}
    return said


def test_a_pod_is_read_with_its_grace_and_its_end() -> None:
    pod = read_pod(
        source(
            metadata={"deletionTimestamp": "2026-11-21T08:22:00Z"},
            spec={"terminationGracePeriodSeconds": 110},
        )
    )

    assert (pod.namespace, pod.name, pod.uid) == ("elastic-job", "fashion-worker-0", "1")
    assert (pod.grace_seconds, pod.ends_at, pod.stays) == (110, 1795249320.0, False)


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({}, False),
        ({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}}, True),
        ({"metadata": {"ownerReferences": [{"kind": "ElasticJob", "controller": True}]}}, False),
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, True),
        ({"status": {"phase": "Succeeded"}}, True),
        ({"status": {"phase": "Failed"}}, True),
        ({"status": {"phase": "Pending"}}, False),
    ],
)
def test_a_drain_leaves_some_pods_alone(changes: dict[str, Any], stays: bool) -> None:
    assert read_pod(source(**changes)).stays is stays


def test_in_a_pod_the_kubelet_says_where_the_api_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "gpu-0")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    said = parse([])

    assert (said.node, said.api, said.cloud) == ("gpu-0", "https://[fd00::1]:443", "auto")


def test_outside_of_a_pod_node_and_server_must_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(SystemExit):
        parse(["--node", "gpu-0"])

    assert "--api" in capsys.readouterr().err
