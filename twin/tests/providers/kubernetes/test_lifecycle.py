"""The life cycle of a resource with the real engine and a real API server."""

import json

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from twin.tests.providers.kubernetes.conftest import ClusterProject, metadata_of

pytestmark = pytest.mark.twin

CONFIG_MAP = """
settings = k8s.core.v1.ConfigMap(
    "settings",
    metadata={"name": "settings", "namespace": namespace, "labels": {"a": "1"}},
    data={"size": "1"},
)
"""


def test_a_preview_and_a_refresh_after_an_update_find_no_change(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    project.program(
        CONFIG_MAP
        + """
claim = k8s.core.v1.PersistentVolumeClaim(
    "claim",
    metadata={"namespace": namespace, "annotations": {"pulumi.com/skipAwait": "true"}},
    spec={"access_modes": ["ReadWriteMany"], "storage_class_name": "",
          "resources": {"requests": {"storage": "1024Mi"}}},
)
k8s.core.v1.Service(
    "service",
    metadata={"namespace": namespace},
    spec={"cluster_ip": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]},
)
container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "1000m"}}}
template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
k8s.apps.v1.Deployment(
    "web",
    metadata={"namespace": namespace},
    spec={"replicas": 0, "selector": {"match_labels": {"app": "web"}}, "template": template},
)
pulumi.export("claim", claim.metadata.name)
"""
    )
    project.up()

    project.pulumi("preview", "--expect-no-changes")
    project.pulumi("refresh", "--yes", "--expect-no-changes")
    name = project.pulumi("stack", "output", "claim").strip()
    assert name.startswith("claim-"), "an object without a name gets one from its resource"
    spec = api.read_namespaced_persistent_volume_claim(name, namespace).spec
    assert spec is not None
    assert spec.resources is not None
    assert spec.resources.requests == {"storage": "1Gi"}


def test_changes_by_the_program_and_by_others_are_applied_to_one_object(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    project.program(CONFIG_MAP)
    project.up()
    first_uid = metadata_of(api.read_namespaced_config_map("settings", namespace)).uid

    project.program(CONFIG_MAP.replace('"a": "1"', '"a": "2"'))
    project.up()
    metadata = metadata_of(api.read_namespaced_config_map("settings", namespace))
    assert (metadata.uid, metadata.labels) == (first_uid, {"a": "2"}), "a label changes in place"

    project.program(CONFIG_MAP.replace('"size": "1"', '"size": "2"'))
    assert "replace" in project.preview()["settings"], "immutable data replace the object"
    project.up()
    new_map = api.read_namespaced_config_map("settings", namespace)
    assert new_map.data == {"size": "2"}
    assert metadata_of(new_map).uid != first_uid, (
        "the old object is deleted first, since both have the same name"
    )

    body = {"data": {"size": "9", "more": "x"}, "metadata": {"labels": {"theirs": "1"}}}
    api.patch_namespaced_config_map("settings", namespace, body, field_manager="other-manager")
    output = project.pulumi("refresh", "--yes", "--diff")
    assert '"9"' in output, "a change to a field that the program set is drift"
    assert "theirs" not in json.dumps(project.resources()["settings"]["inputs"]), (
        "a field that the program never set is not drift"
    )

    api.delete_namespaced_config_map("settings", namespace)
    project.up("--refresh")
    assert api.read_namespaced_config_map("settings", namespace).data == {"size": "2"}


def test_an_object_created_by_kubectl_can_be_imported(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="found"), data={"a": "b"})
    api.create_namespaced_config_map(namespace, body, field_manager="kubectl-create")

    project.pulumi(
        "import", "kubernetes:core/v1:ConfigMap", "found", f"{namespace}/found",
        "--yes", "--generate-code=false", "--protect=false",
    )  # fmt: skip

    inputs = project.resources()["found"]["inputs"]
    assert inputs["data"] == {"a": "b"}
    assert inputs["metadata"] == {"name": "found", "namespace": namespace}, (
        "fields that the server adds are not inputs"
    )
    project.program(
        """
        k8s.core.v1.ConfigMap("found", metadata={"name": "found", "namespace": namespace}, data={"a": "b"})
        """
    )
    assert "found" not in project.preview(), (
        "the program declares the existing object, so nothing changes"
    )


def test_a_custom_resource_can_be_created_with_its_definition(
    project: ClusterProject, namespace: str
) -> None:
    group = f"{namespace}.example.com"
    project.program(
        """
        size = {"type": "object", "properties": {"size": {"type": "integer"}}}
        schema = {"open_apiv3_schema": {"type": "object", "properties": {"spec": size}}}
        crd = k8s.apiextensions.v1.CustomResourceDefinition(
            "crd",
            metadata={"name": "widgets.GROUP"},
            spec={"group": "GROUP", "scope": "Namespaced",
                  "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                  "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]},
        )
        k8s.apiextensions.CustomResource(
            "widget",
            api_version="GROUP/v1",
            kind="Widget",
            metadata={"name": "w", "namespace": namespace},
            spec={"size": 3},
            opts=Opts(depends_on=[crd]),
        )
        """.replace("GROUP", group)
    )

    assert project.preview() == {"probe-test": "create", "crd": "create", "widget": "create"}, (
        "a preview must not require the CRD to exist"
    )
    project.up()
    project.pulumi("preview", "--expect-no-changes")
    project.pulumi("destroy", "--yes", "--skip-preview")


def test_yaml_is_accepted_and_existing_objects_can_be_read(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    project.program(
        """
        text = "apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: from-yaml, namespace: %s}\\n" % namespace
        k8s.yaml.ConfigGroup("group", yaml=[text])
        found = k8s.core.v1.ConfigMap.get("found", namespace + "/kube-root-ca.crt")
        pulumi.export("found", found.metadata.name)
        """
    )

    assert 'found: "kube-root-ca.crt"' in project.up()
    created = api.read_namespaced_config_map("from-yaml", namespace)
    assert metadata_of(created).name == "from-yaml"


def test_a_blocked_deletion_names_the_finalizer(
    project: ClusterProject, namespace: str, api: client.CoreV1Api
) -> None:
    project.program(
        CONFIG_MAP.replace('"labels":', '"finalizers": ["example.com/hold"], "labels":')
        .replace('{"size": "1"},', '{"size": "1"}, opts=Opts(custom_timeouts=pulumi.CustomTimeouts(delete="2s")),')
    )  # fmt: skip
    project.up()

    output = project.pulumi("destroy", "--yes", "--skip-preview", fails=True)
    assert "held by the finalizer example.com/hold" in output

    api.patch_namespaced_config_map("settings", namespace, {"metadata": {"finalizers": None}})
    project.pulumi("destroy", "--yes", "--skip-preview")
    with pytest.raises(ApiException, match="404"):
        api.read_namespaced_config_map("settings", namespace)
