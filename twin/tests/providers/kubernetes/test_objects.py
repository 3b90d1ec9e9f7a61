"""Names, IDs and annotations."""

import pytest
from cloudtwin.providers.kubernetes import objects
from cloudtwin.providers.protocol.values import UNKNOWN, Secret, plain


def test_an_object_without_a_name_gets_one_and_keeps_it() -> None:
    named_object = objects.with_name({"kind": "ConfigMap"}, "Settings", b"seed", {})
    name = named_object["metadata"]["name"]
    assert name.startswith("settings-")
    assert len(name) == len("settings-") + 8
    assert objects.with_name({"kind": "ConfigMap"}, "Settings", b"seed", {}) == named_object, (
        "the name depends only on the name of the resource and the seed"
    )

    updated_object = objects.with_name(
        {"metadata": {"labels": {"a": "b"}}}, "Settings", b"other", named_object
    )
    assert updated_object["metadata"]["name"] == name
    assert updated_object["metadata"]["labels"] == {"a": "b"}


def test_a_given_or_unknown_name_is_not_changed() -> None:
    for document in (
        {"metadata": {"name": "x"}},
        {"metadata": {"name": UNKNOWN}},
        {"metadata": UNKNOWN},
    ):
        assert objects.with_name(document, "r", b"", {}) == document
    assert objects.with_name({"metadata": {"generateName": "g-"}}, "r", b"", {})["metadata"][
        "name"
    ].startswith("g-")


def test_a_long_name_is_shortened_to_the_limit_of_kubernetes() -> None:
    assert len(objects.with_name({}, "r" * 400, b"", {})["metadata"]["name"]) == 253


@pytest.mark.parametrize("kind", ["IPAddress", "ServiceCIDR", "SelfSubjectReview", "Node"])
def test_built_in_kinds_without_a_namespace_are_cluster_scoped(kind: str) -> None:
    assert kind in objects.CLUSTER_SCOPED


def test_an_id_names_the_namespace_where_there_is_one() -> None:
    assert objects.parse_id("n/x") == ("n", "x")
    assert objects.parse_id("x") == (None, "x")
    for invalid in ("", "a/b/c", "/x", "n/"):
        with pytest.raises(ValueError, match="NAMESPACE/NAME"):
            objects.parse_id(invalid)


def test_a_type_token_contains_version_and_kind() -> None:
    assert objects.kind_of_type("kubernetes:core/v1:ConfigMap") == ("v1", "ConfigMap")
    assert objects.kind_of_type("kubernetes:rbac.authorization.k8s.io/v1:Role") == (
        "rbac.authorization.k8s.io/v1",
        "Role",
    )


def test_patch_and_list_types_are_recognized_unless_the_kind_is_custom() -> None:
    assert objects.is_patch_or_list("kubernetes:apps/v1:DeploymentPatch")
    assert objects.is_patch_or_list("kubernetes:core/v1:ConfigMapList")
    assert not objects.is_patch_or_list("kubernetes:example.com/v1:CablePatch")


def test_the_timeout_option_overrides_the_annotation_and_the_default() -> None:
    document = {"metadata": {"annotations": {"pulumi.com/timeoutSeconds": "30"}}}
    assert objects.timeout_seconds(document, 5, 600) == 5
    assert objects.timeout_seconds(document, 0, 600) == 30
    assert (
        objects.timeout_seconds(
            {"metadata": {"annotations": {"pulumi.com/timeoutSeconds": "soon"}}}, 0, 600
        )
        == 600
    )


def test_secret_metadata_keeps_its_content_and_stays_secret() -> None:
    document = {"metadata": Secret({"labels": {"a": "b"}, "annotations": Secret({"c": "d"})})}

    named_object = objects.with_namespace(objects.with_name(document, "r", b"", {}), "n")

    assert isinstance(named_object["metadata"], Secret)
    assert isinstance(named_object["metadata"].value["annotations"], Secret)
    metadata = plain(named_object["metadata"])
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"c": "d", objects.AUTO_NAMED: "true"}
    assert metadata["namespace"] == "n"
