"""What a user meets when something is wrong: with the cluster, with others' objects, with their own."""

import os
import signal
import socket
import time

import pytest

from twin.pulumi.kubernetes.cluster import Cluster
from twin.pulumi.kubernetes.errors import UnreachableError
from twin.pulumi.kubernetes.settings import Settings

pytestmark = pytest.mark.twin

UNBOUND = """
claim = k8s.core.v1.PersistentVolumeClaim(
    "claim",
    metadata={"name": "claim", "namespace": namespace},
    spec={"access_modes": ["ReadWriteOnce"], "storage_class_name": "CLASS",
          "resources": {"requests": {"storage": "1Gi"}}},
    opts=Opts(custom_timeouts=pulumi.CustomTimeouts(create="TIMEOUT")),
)
"""


def test_a_secret_is_a_secret_in_every_part_of_the_state(project, namespace, api):
    project.program(
        """
        word = pulumi.Output.secret("hunter2-tells-nobody")
        metadata = {"namespace": namespace}
        k8s.core.v1.Secret("secret", metadata={**metadata, "name": "s"}, string_data={"a": "hunter2-tells-nobody"})
        k8s.core.v1.ConfigMap("map", metadata={**metadata, "name": "m"}, data={"word": word, "open": "to all"})
        """
    )
    shown = project.up()

    state = "".join(file.read_text() for file in project.folder.parent.glob("state/**/*.json"))
    assert "to all" in state, "this is the state"
    for place in (state, shown):
        assert "hunter2" not in place
        assert "aHVudGVyMi10ZWxscy1ub2JvZHk=" not in place, "base64 hides nothing"
    assert api.read_namespaced_secret("s", namespace).data == {"a": "aHVudGVyMi10ZWxscy1ub2JvZHk="}
    project.pulumi("preview", "--expect-no-changes")


def test_a_conflict_names_the_owner_and_the_cure(project, namespace, api):
    program = """
        k8s.core.v1.ConfigMap(
            "map",
            metadata={"name": "m", "namespace": namespace, "labels": {"a": "LABEL"}, "annotations": ANNOTATIONS},
        )
        """
    project.program(program.replace("LABEL", "1").replace("ANNOTATIONS", "{}"))
    project.up()
    api.patch_namespaced_config_map(
        "m", namespace, {"metadata": {"labels": {"a": "9"}}}, field_manager="somebody"
    )

    project.program(program.replace("LABEL", "2").replace("ANNOTATIONS", "{}"))
    shown = project.up(fails=True)
    assert '"somebody"' in shown
    assert ".metadata.labels.a" in shown
    assert "pulumi.com/patchForce" in shown

    project.program(
        program.replace("LABEL", "2").replace("ANNOTATIONS", '{"pulumi.com/patchForce": "true"}')
    )
    project.up()
    assert api.read_namespaced_config_map("m", namespace).metadata.labels == {"a": "2"}


def test_two_resources_cannot_manage_one_object(project):
    one = 'k8s.core.v1.ConfigMap("NAME", metadata={"name": "m", "namespace": namespace})'
    project.program("\n".join([one.replace("NAME", "one"), one.replace("NAME", "two")]))

    assert "is declared twice" in project.pulumi("preview", fails=True)


def test_an_object_of_somebody_else_is_not_overwritten(project, namespace, api):
    api.create_namespaced_config_map(
        namespace, {"metadata": {"name": "m"}, "data": {"a": "theirs"}}, field_manager="them"
    )
    project.program(
        'k8s.core.v1.ConfigMap("map", metadata={"name": "m", "namespace": namespace}, data={"a": "ours"})'
    )

    shown = project.pulumi("preview", fails=True)
    assert "already exists, made by them" in shown
    assert f"ID {namespace}/m" in shown
    assert "already exists" in project.up(fails=True)
    assert api.read_namespaced_config_map("m", namespace).data == {"a": "theirs"}


def test_what_is_not_ready_in_time_is_kept_and_the_next_update_goes_on(project, namespace, api):
    text = UNBOUND.replace("CLASS", namespace).replace("TIMEOUT", "2s")
    project.program(text)
    shown = project.up(fails=True)
    assert (
        f"PersistentVolumeClaim {namespace}/claim was not ready after 2 s: no volume is bound yet"
        in shown
    )
    assert project.resources()["claim"]["initErrors"]

    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/tmp"},
        "storageClassName": namespace,
        "claimRef": {"namespace": namespace, "name": "claim"},
    }
    api.create_persistent_volume({"metadata": {"name": namespace}, "spec": volume})
    try:
        project.up()
        assert "initErrors" not in project.resources()["claim"]
    finally:
        api.delete_persistent_volume(namespace)


def test_an_interrupt_is_quiet_and_loses_nothing(project, namespace, api):
    project.program(UNBOUND.replace("CLASS", namespace).replace("TIMEOUT", "5m"))
    running = project.start("up", "--yes", "--skip-preview")
    deadline = time.monotonic() + 60
    while not api.list_namespaced_persistent_volume_claim(namespace).items:
        assert time.monotonic() < deadline, "the claim was never made"
        time.sleep(0.1)

    os.kill(running.pid, signal.SIGINT)
    shown, _ = running.communicate(timeout=30)
    assert running.returncode != 0
    assert "Traceback" not in shown, shown
    assert "KeyboardInterrupt" not in shown, shown
    assert "was not ready yet when the update was interrupted" in shown
    assert "claim" in project.resources(), "what was made must be in the state"


@pytest.fixture
def silent_server():
    """The address of a server that takes connections and never says a word."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield f"https://127.0.0.1:{silent.getsockname()[1]}"


def test_an_unreachable_cluster_is_named(project, tmp_path, silent_server):
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(_kubeconfig(silent_server))
    project.environment["KUBECONFIG"] = str(nowhere)
    project.program(
        '[k8s.core.v1.ConfigMap(f"map{i}", metadata={"name": f"m{i}"}) for i in range(4)]'
    )

    assert f"the cluster at {silent_server} does not answer" in project.up(fails=True)
    assert "previewing without asking the cluster" in project.pulumi("preview")


def test_an_unreachable_cluster_is_given_up_within_ten_seconds_and_only_once(silent_server):
    nobody = "https://127.0.0.1:1"
    for server in (silent_server, nobody):
        cluster = Cluster(Settings(kubeconfig=_kubeconfig(server)))
        began = time.monotonic()
        for _ in range(10):
            with pytest.raises(UnreachableError, match=server):
                cluster.probe()
        assert time.monotonic() - began < 10, "ten resources wait no longer than one"


def test_no_kubeconfig_at_all_says_what_to_give(project, tmp_path):
    project.environment["KUBECONFIG"] = str(tmp_path / "absent")
    project.program('k8s.core.v1.ConfigMap("map", metadata={"name": "m"})')

    shown = project.up(fails=True)
    assert "no cluster to talk to" in shown
    assert "KUBECONFIG" in shown


def test_a_fault_in_an_object_shows_at_preview(project):
    project.program(
        """
        k8s.core.v1.ConfigMap("map", metadata={"name": "No_Capitals", "namespace": namespace})
        """
    )

    assert "No_Capitals" in project.pulumi("preview", fails=True)


def test_what_only_the_official_plugin_can_do_is_refused_by_name(project):
    project.program('k8s.core.v1.ConfigMapPatch("patch", metadata={"name": "m"})')

    shown = project.pulumi("preview", fails=True)
    assert "kubernetes:core/v1:ConfigMapPatch is not supported by the stand-in" in shown


def _kubeconfig(server: str) -> str:
    return f"""
apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
"""
