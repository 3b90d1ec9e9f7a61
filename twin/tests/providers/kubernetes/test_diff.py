"""Differences that count as a change, and changes that need a new object."""

import copy
from typing import Any

import pytest
from cloudtwin.providers.kubernetes.diff import compare
from cloudtwin.providers.protocol.diff import DiffKind
from cloudtwin.providers.protocol.values import UNKNOWN, Object, PropertyValue, Secret
from hypothesis import given
from hypothesis import strategies as st


def manifest(api_version: str, kind: str, **fields: Any) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "x", "namespace": "n"},
        **fields,
    }


def with_value(old: Object, path: tuple[str | int, ...], value: PropertyValue) -> Object:
    """Copy an object with one field changed."""
    new = copy.deepcopy(old)
    *parents, key = path
    parent: Any = new
    for step in parents:
        parent = parent[step] if isinstance(step, int) else parent.setdefault(step, {})
    parent[key] = value
    return new


DEPLOYMENT = manifest("apps/v1", "Deployment", spec={
    "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
    "template": {"spec": {"containers": [{"name": "c", "image": "i:1"}]}},
})  # fmt: skip
STATEFUL_SET = manifest("apps/v1", "StatefulSet", spec={
    "replicas": 3, "serviceName": "etcd", "podManagementPolicy": "Parallel", "selector": {}, "template": {},
    "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
})  # fmt: skip
JOB = manifest(
    "batch/v1",
    "Job",
    spec={"parallelism": 1, "template": {"spec": {"containers": [{"image": "i:1"}]}}},
)
CLAIM = manifest(
    "v1",
    "PersistentVolumeClaim",
    spec={"resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"},
)
VOLUME = manifest(
    "v1", "PersistentVolume", spec={"hostPath": {"path": "/a"}, "capacity": {"storage": "1Gi"}}
)
SERVICE = manifest("v1", "Service", spec={"clusterIP": "None", "selector": {"a": "b"}})
POD = manifest("v1", "Pod", spec={"containers": [{"name": "c", "image": "i:1"}], "nodeName": "a"})
ROLE_BINDING = manifest(
    "rbac.authorization.k8s.io/v1", "RoleBinding", roleRef={"name": "a"}, subjects=[{"name": "a"}]
)
STORAGE_CLASS = manifest(
    "storage.k8s.io/v1", "StorageClass", provisioner="a", allowVolumeExpansion=False
)
DEFINITION = manifest(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    spec={"scope": "Cluster", "versions": [{"name": "v1"}]},
)
ELASTIC_JOB = manifest(
    "elastic.pytorch.org/v1alpha1", "ElasticJob", spec={"replicaSpecs": {"Worker": {"replicas": 3}}}
)
CONFIG_MAP = manifest("v1", "ConfigMap", data={"a": "1"})
IMMUTABLE_MAP = manifest("v1", "ConfigMap", data={"a": "1"}, immutable=True)
SECRET = manifest("v1", "Secret", data={"a": "MQ=="}, type="Opaque")


@pytest.mark.parametrize(
    ("old", "path", "value", "replaces"),
    [
        (DEPLOYMENT, ("spec", "replicas"), 2, False),
        (DEPLOYMENT, ("spec", "template", "spec", "containers", 0, "image"), "i:2", False),
        (DEPLOYMENT, ("spec", "selector", "matchLabels", "a"), "c", True),
        (DEPLOYMENT, ("metadata", "name"), "y", True),
        (DEPLOYMENT, ("metadata", "namespace"), "m", True),
        (DEPLOYMENT, ("metadata", "labels"), {"a": "b"}, False),
        (STATEFUL_SET, ("spec", "replicas"), 5, False),
        (STATEFUL_SET, ("spec", "template", "metadata"), {}, False),
        (STATEFUL_SET, ("spec", "serviceName"), "other", True),
        (STATEFUL_SET, ("spec", "podManagementPolicy"), "OrderedReady", True),
        (STATEFUL_SET, ("spec", "volumeClaimTemplates", 0, "metadata", "name"), "d", True),
        (JOB, ("spec", "parallelism"), 2, False),
        (JOB, ("spec", "template", "spec", "containers", 0, "image"), "i:2", True),
        (CLAIM, ("spec", "resources", "requests", "storage"), "2Gi", False),
        (CLAIM, ("spec", "volumeName"), "w", True),
        (VOLUME, ("spec", "hostPath", "path"), "/b", True),
        (VOLUME, ("spec", "capacity", "storage"), "2Gi", False),
        (SERVICE, ("spec", "clusterIP"), "10.0.0.1", True),
        (SERVICE, ("spec", "selector", "a"), "c", False),
        (POD, ("spec", "containers", 0, "image"), "i:2", False),
        (POD, ("spec", "tolerations"), [{"operator": "Exists"}], False),
        (POD, ("spec", "nodeName"), "b", True),
        (ROLE_BINDING, ("roleRef", "name"), "b", True),
        (ROLE_BINDING, ("subjects", 0, "name"), "s", False),
        (STORAGE_CLASS, ("provisioner",), "b", True),
        (STORAGE_CLASS, ("allowVolumeExpansion",), True, False),
        (DEFINITION, ("spec", "scope"), "Namespaced", True),
        (DEFINITION, ("spec", "versions", 0, "name"), "v2", False),
        (ELASTIC_JOB, ("spec", "replicaSpecs", "Worker", "replicas"), 2, False),
        (CONFIG_MAP, ("data", "a"), "2", True),
        (CONFIG_MAP, ("metadata", "labels"), {"a": "b"}, False),
        (IMMUTABLE_MAP, ("data", "a"), "2", True),
        (SECRET, ("data", "a"), "Mg==", True),
        (SECRET, ("type",), "other", True),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) and "kind" in value else None,
)
def test_an_object_is_replaced_only_if_an_immutable_field_changes(
    old: Object, path: tuple[str | int, ...], value: PropertyValue, replaces: bool
) -> None:
    diff = compare(old, with_value(old, path, value), [])

    assert [field.path for field in diff.fields] == [path]
    assert bool(diff.replaces) == replaces


def test_the_old_object_is_deleted_first_if_both_would_have_the_same_name() -> None:
    new = with_value(DEPLOYMENT, ("spec", "selector", "matchLabels", "a"), "c")
    assert compare(DEPLOYMENT, new, []).delete_first

    generated_name = with_value(new, ("metadata", "annotations"), {"pulumi.com/autonamed": "true"})
    assert not compare(DEPLOYMENT, generated_name, []).delete_first
    assert not compare(
        DEPLOYMENT, with_value(DEPLOYMENT, ("metadata", "name"), "y"), []
    ).delete_first


def test_an_unknown_namespace_is_a_change_and_may_equal_the_old_one() -> None:
    diff = compare(DEPLOYMENT, with_value(DEPLOYMENT, ("metadata", "namespace"), UNKNOWN), [])

    assert diff.replaces == ("metadata.namespace",)
    assert diff.delete_first


def test_unknown_metadata_may_have_the_old_name() -> None:
    new = with_value(DEPLOYMENT, ("spec", "selector", "matchLabels", "a"), "c")

    assert compare(DEPLOYMENT, {**new, "metadata": UNKNOWN}, []).delete_first


def test_null_equals_absent_and_marking_a_secret_changes_nothing() -> None:
    assert not compare(CONFIG_MAP, {**CONFIG_MAP, "binaryData": None}, []).fields
    assert not compare(CONFIG_MAP, {**CONFIG_MAP, "data": {"a": Secret("1")}}, []).fields


def test_an_empty_object_differs_from_an_absent_one() -> None:
    old = {**POD, "spec": {"volumes": [{"name": "v"}]}}
    new = {**POD, "spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}

    assert compare(old, new, []).fields[0].kind is DiffKind.ADD


def test_ignored_paths_hide_their_subtrees_and_nothing_else() -> None:
    new = with_value(with_value(DEPLOYMENT, ("spec", "replicas"), 2), ("spec", "replicasNot"), 1)

    changes = compare(DEPLOYMENT, new, ["spec.replicas"]).fields
    assert [field.path for field in changes] == [("spec", "replicasNot")]
    assert not compare(DEPLOYMENT, new, ["spec"]).fields


TREES = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(TREES, TREES)
def test_there_is_a_difference_if_and_only_if_two_values_are_unequal(
    old: PropertyValue, new: PropertyValue
) -> None:
    changes = compare({"spec": old}, {"spec": new}, []).fields

    assert bool(changes) == _differs(old, new)
    assert not compare({"spec": old}, {"spec": copy.deepcopy(old)}, []).fields


def _differs(old: PropertyValue, new: PropertyValue) -> bool:
    """Return True if two values differ as JSON: true is not 1, and the order of keys does not matter."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() != new.keys() or any(_differs(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) != len(new) or any(map(_differs, old, new))
    return type(old) is not type(new) or old != new
