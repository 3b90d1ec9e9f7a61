"""Errors caused by the cluster, by objects of other managers, and by the user's own objects."""

import os
import signal
import socket
from pathlib import Path

import pytest
from kubernetes import client

from twin.tests.providers.kubernetes.conftest import (
    ClusterProject,
    address_of,
    metadata_of,
    wait_for_object,
)
from twin.tests.providers.kubernetes.kubeconfigs import kubeconfig

pytestmark = pytest.mark.twin

UNBOUND_CLAIM = """
claim = k8s.core.v1.PersistentVolumeClaim(
    "claim",
    metadata={"name": "claim", "namespace": namespace},
    spec={"access_modes": ["ReadWriteOnce"], "storage_class_name": "CLASS",
          "resources": {"requests": {"storage": "1Gi"}}},
    opts=Opts(custom_timeouts=pulumi.CustomTimeouts(create="TIMEOUT")),
)
"""


def wait_for_claim(api: client.CoreV1Api, namespace: str) -> None:
    """Wait until the program's claim exists."""
    is_created = wait_for_object(
        api.list_namespaced_persistent_volume_claim, namespace, timeout_seconds=200
    )
    assert is_created, "the claim was not created within 200 s"


def test_a_secret_is_a_secret_in_every_part_of_the_state(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    project.program(
        """
        word = pulumi.Output.secret("hunter2-secret")
        metadata = {"namespace": namespace}
        k8s.core.v1.Secret("secret", metadata={**metadata, "name": "s"}, string_data={"a": "hunter2-secret"})
        k8s.core.v1.ConfigMap("map", metadata={**metadata, "name": "m"}, data={"word": word, "open": "to all"})
        """
    )
    output = project.up()

    state = "".join(file.read_text() for file in project.folder.parent.glob("state/**/*.json"))
    assert "to all" in state, "the test must have read the state files"
    for text in (state, output):
        assert "hunter2" not in text
        assert "aHVudGVyMi1zZWNyZXQ=" not in text, "base64 hides nothing"
    assert api.read_namespaced_secret("s", namespace).data == {"a": "aHVudGVyMi1zZWNyZXQ="}
    project.pulumi("preview", "--expect-no-changes")


def test_a_conflict_names_the_owner_and_the_fix(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    program = """
        k8s.core.v1.ConfigMap(
            "map",
            metadata={"name": "m", "namespace": namespace, "labels": {"a": "LABEL"}, "annotations": ANNOTATIONS},
        )
        """
    project.program(program.replace("LABEL", "1").replace("ANNOTATIONS", "{}"))
    project.up()
    api.patch_namespaced_config_map(
        "m", namespace, {"metadata": {"labels": {"a": "9"}}}, field_manager="other-manager"
    )

    project.program(program.replace("LABEL", "2").replace("ANNOTATIONS", "{}"))
    output = project.up(fails=True)
    assert '"other-manager"' in output
    assert ".metadata.labels.a" in output
    assert "pulumi.com/patchForce" in output

    project.program(
        program.replace("LABEL", "2").replace("ANNOTATIONS", '{"pulumi.com/patchForce": "true"}')
    )
    project.up()
    assert metadata_of(api.read_namespaced_config_map("m", namespace)).labels == {"a": "2"}


def test_two_resources_cannot_manage_one_object(project: ClusterProject) -> None:
    declaration = 'k8s.core.v1.ConfigMap("NAME", metadata={"name": "m", "namespace": namespace})'
    project.program(
        "\n".join([declaration.replace("NAME", "one"), declaration.replace("NAME", "two")])
    )

    assert "is declared twice" in project.pulumi("preview", fails=True)


def test_an_object_of_another_manager_is_not_overwritten(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    config_map = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="m"), data={"a": "theirs"})
    api.create_namespaced_config_map(namespace, config_map, field_manager="them")
    project.program(
        'k8s.core.v1.ConfigMap("map", metadata={"name": "m", "namespace": namespace}, data={"a": "ours"})'
    )

    output = project.pulumi("preview", fails=True)
    assert "already exists in the cluster, managed by them" in output
    assert f"ID {namespace}/m" in output
    assert (
        f'resource "{namespace}/m" was not successfully created by the Kubernetes API server'
        in project.up(fails=True)
    )
    assert api.read_namespaced_config_map("m", namespace).data == {"a": "theirs"}


def test_an_object_not_ready_in_time_is_kept_and_the_next_update_continues(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    text = UNBOUND_CLAIM.replace("CLASS", namespace).replace("TIMEOUT", "2s")
    project.program(text)
    output = project.up(fails=True)
    assert (
        f"PersistentVolumeClaim {namespace}/claim was not ready after 2 s: no volume is bound yet"
        in output
    )
    assert project.resources()["claim"]["initErrors"]

    spec = client.V1PersistentVolumeSpec(
        capacity={"storage": "1Gi"},
        access_modes=["ReadWriteOnce"],
        host_path=client.V1HostPathVolumeSource(path="/tmp"),
        storage_class_name=namespace,
        claim_ref=client.V1ObjectReference(namespace=namespace, name="claim"),
    )
    metadata = client.V1ObjectMeta(name=namespace)
    api.create_persistent_volume(client.V1PersistentVolume(metadata=metadata, spec=spec))
    try:
        project.up()
        assert "initErrors" not in project.resources()["claim"]
    finally:
        api.delete_persistent_volume(namespace)


def test_an_interrupt_shows_no_traceback_and_loses_no_object(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    project.program(UNBOUND_CLAIM.replace("CLASS", namespace).replace("TIMEOUT", "5m"))
    process = project.start("up", "--yes", "--skip-preview")
    wait_for_claim(api, namespace)
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=200)
    assert process.returncode != 0
    assert "Traceback" not in output, output
    assert "KeyboardInterrupt" not in output, output
    assert "was not ready yet when the update was interrupted" in output
    assert "claim" in project.resources(), "the created object must be in the state"


def test_a_killed_update_is_resumed_only_with_the_official_option(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    project.program(UNBOUND_CLAIM.replace("CLASS", namespace).replace("TIMEOUT", "5m"))
    process = project.start("up", "--yes", "--skip-preview")
    wait_for_claim(api, namespace)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=200)
    project.pulumi("cancel", "--yes")

    program = UNBOUND_CLAIM.replace("CLASS", namespace).replace("TIMEOUT", "5m")
    project.program(
        program.replace('"name": "claim"', '"annotations": {"pulumi.com/skipAwait": "true"}, "name": "claim"')
    )  # fmt: skip
    assert "already exists in the cluster" in project.up(fails=True), (
        "the state does not contain the object, so it may belong to another manager"
    )

    project.environment |= {
        "PULUMI_K8S_UPSERT_EXISTING_OBJECTS": "true",
        "PULUMI_K8S_ENABLE_PATCH_FORCE": "true",
    }
    project.up()
    outputs = project.resources()["claim"]["outputs"]
    assert outputs["__fieldManager"].startswith("pulumi-kubernetes-")
    assert outputs["__inputs"]["kind"] == outputs["kind"] == "PersistentVolumeClaim"
    project.pulumi("preview", "--expect-no-changes")


def test_an_unreachable_cluster_is_named(
    project: ClusterProject, tmp_path: Path, silent_server: socket.socket
) -> None:
    path = tmp_path / "unreachable"
    path.write_text(kubeconfig(address_of(silent_server)))
    project.environment["KUBECONFIG"] = str(path)
    project.program(
        '[k8s.core.v1.ConfigMap(f"map{i}", metadata={"name": f"m{i}"}) for i in range(4)]'
    )

    assert f"the cluster at {address_of(silent_server)} does not respond" in project.up(fails=True)
    assert "previewing without the cluster" in project.pulumi("preview")


def test_a_missing_kubeconfig_names_the_variable_to_set(
    project: ClusterProject, tmp_path: Path
) -> None:
    project.environment["KUBECONFIG"] = str(tmp_path / "absent")
    project.program('k8s.core.v1.ConfigMap("map", metadata={"name": "m"})')

    output = project.up(fails=True)
    assert "no cluster to connect to" in output
    assert "KUBECONFIG" in output


def test_an_invalid_object_fails_at_preview(project: ClusterProject) -> None:
    project.program(
        """
        k8s.core.v1.ConfigMap("map", metadata={"name": "No_Capitals", "namespace": namespace})
        """
    )

    assert "No_Capitals" in project.pulumi("preview", fails=True)


def test_a_type_that_only_the_official_plugin_supports_is_refused_by_name(
    project: ClusterProject,
) -> None:
    project.program('k8s.core.v1.ConfigMapPatch("patch", metadata={"name": "m"})')

    output = project.pulumi("preview", fails=True)
    assert "kubernetes:core/v1:ConfigMapPatch is not supported by the stand-in" in output
