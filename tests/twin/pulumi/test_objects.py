"""Names, IDs, annotations and the provider's arguments."""

import json

import pytest

from twin.pulumi.kubernetes import objects
from twin.pulumi.kubernetes.manifests import decode
from twin.pulumi.kubernetes.settings import Settings, must_replace, parse
from twin.pulumi.provider.convert import UNKNOWN
from twin.pulumi.provider.errors import ProviderError


def test_an_object_without_a_name_gets_one_and_keeps_it():
    first = objects.with_name({"kind": "ConfigMap"}, "Settings", b"seed", {})
    name = first["metadata"]["name"]
    assert name.startswith("settings-")
    assert len(name) == len("settings-") + 8
    assert objects.with_name({"kind": "ConfigMap"}, "Settings", b"seed", {}) == first, (
        "the seed decides"
    )

    later = objects.with_name({"metadata": {"labels": {"a": "b"}}}, "Settings", b"other", first)
    assert later["metadata"]["name"] == name
    assert later["metadata"]["labels"] == {"a": "b"}


def test_a_given_or_unknown_name_is_left_alone():
    for given in (
        {"metadata": {"name": "x"}},
        {"metadata": {"name": UNKNOWN}},
        {"metadata": UNKNOWN},
    ):
        assert objects.with_name(given, "r", b"", {}) == given
    assert objects.with_name({"metadata": {"generateName": "g-"}}, "r", b"", {})["metadata"][
        "name"
    ].startswith("g-")


def test_a_long_name_is_cut_to_what_kubernetes_takes():
    assert len(objects.with_name({}, "r" * 400, b"", {})["metadata"]["name"]) == 253


def test_an_id_names_the_namespace_where_there_is_one():
    assert objects.parse_id("n/x") == ("n", "x")
    assert objects.parse_id("x") == (None, "x")
    for wrong in ("", "a/b/c", "/x", "n/"):
        with pytest.raises(ValueError, match="NAMESPACE/NAME"):
            objects.parse_id(wrong)


def test_a_type_token_tells_version_and_kind():
    assert objects.kind_of_type("kubernetes:core/v1:ConfigMap") == ("v1", "ConfigMap")
    assert objects.kind_of_type("kubernetes:rbac.authorization.k8s.io/v1:Role") == (
        "rbac.authorization.k8s.io/v1",
        "Role",
    )


def test_patch_and_list_types_are_known_but_a_custom_kind_may_be_called_so():
    assert objects.is_patch_or_list("kubernetes:apps/v1:DeploymentPatch")
    assert objects.is_patch_or_list("kubernetes:core/v1:ConfigMapList")
    assert not objects.is_patch_or_list("kubernetes:example.com/v1:CablePatch")


def test_the_options_timeout_beats_the_annotation_beats_the_default():
    noted = {"metadata": {"annotations": {"pulumi.com/timeoutSeconds": "30"}}}
    assert objects.timeout_seconds(noted, 5, 600) == 5
    assert objects.timeout_seconds(noted, 0, 600) == 30
    assert (
        objects.timeout_seconds(
            {"metadata": {"annotations": {"pulumi.com/timeoutSeconds": "soon"}}}, 0, 600
        )
        == 600
    )


def test_the_providers_arguments_are_checked():
    assert parse({"enablePatchForce": "true", "upsertExistingObjects": True}).upsert
    with pytest.raises(ProviderError, match="renderYamlToDirectory"):
        parse({"renderYamlToDirectory": "out"})
    with pytest.raises(ProviderError, match="server-side"):
        parse({"enableServerSideApply": "false"})
    with pytest.raises(ProviderError, match="must be true or false"):
        parse({"deleteUnreachable": "maybe"})


def test_a_kubeconfig_is_not_printed():
    assert "hunter2" not in repr(parse({"kubeconfig": "token: hunter2"}))


def kubeconfig(server, token="t"):
    return json.dumps({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}], "users": [{"name": "u", "user": {"token": token}}],
    })  # fmt: skip


def test_another_server_means_another_cluster_but_new_credentials_do_not():
    old = Settings(kubeconfig=kubeconfig("https://a"))
    assert must_replace(old, Settings(kubeconfig=kubeconfig("https://b"))) == ["kubeconfig"]
    assert must_replace(old, Settings(kubeconfig=kubeconfig("https://a", "new"))) == []
    assert must_replace(Settings(kubeconfig="/a"), Settings(kubeconfig="/b")) == [], (
        "a path says nothing of what it led to"
    )


def test_a_cluster_identifier_decides_alone():
    same = {"cluster_identifier": "mine"}
    old = Settings(kubeconfig=kubeconfig("https://a"), **same)
    assert must_replace(old, Settings(kubeconfig=kubeconfig("https://b"), **same)) == []
    assert must_replace(
        old, Settings(kubeconfig=kubeconfig("https://a"), cluster_identifier="x")
    ) == ["clusterIdentifier"]


def test_yaml_is_read_as_kubernetes_reads_it():
    items = "items:\n- {apiVersion: v1, kind: A, day: 2024-01-01}\n"
    text = f"---\napiVersion: v1\nkind: List\n{items}---\n---\napiVersion: v1\nkind: B\n"
    assert decode(text) == [
        {"apiVersion": "v1", "kind": "A", "day": "2024-01-01"},
        {"apiVersion": "v1", "kind": "B"},
    ]
    for wrong in ("a: [", "- 1", "kind: X"):
        with pytest.raises(ProviderError):
            decode(wrong)
