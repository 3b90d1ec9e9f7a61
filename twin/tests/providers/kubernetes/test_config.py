"""The provider's arguments."""

import pytest
from cloudtwin.providers.kubernetes.config import (
    IDENTIFIER,
    KubernetesConfig,
    parse,
    replacing_arguments,
    unknown_arguments,
)
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.values import UNKNOWN

from twin.tests.providers.kubernetes.kubeconfigs import kubeconfig


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"renderYamlToDirectory": "out"}, "renderYamlToDirectory is not supported"),
        ({"deleteUnreachable": True}, "deleteUnreachable is not supported"),
        ({"enableConfigMapMutable": "true"}, "enableConfigMapMutable is not supported"),
        ({"cluster": "c"}, "cluster is not supported"),
        ({"enableServerSideApply": "false"}, "server-side"),
        ({"enablePatchForce": "maybe"}, "must be true or false"),
    ],
)
def test_an_unsupported_argument_or_an_invalid_value_is_refused(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ProviderError, match=message):
        parse(arguments)


def test_arguments_arrive_as_json_text() -> None:
    config = parse({"enablePatchForce": "true", "upsertExistingObjects": True, "version": "4"})

    assert config.force
    assert config.upsert
    assert not parse({"enableConfigMapMutable": "false", "cluster": ""}).upsert


def test_the_official_environment_variables_apply_if_the_argument_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PULUMI_K8S_UPSERT_EXISTING_OBJECTS", "true")

    assert parse({}).upsert
    assert not parse({"upsertExistingObjects": "false"}).upsert


def test_a_kubeconfig_is_not_printed() -> None:
    assert "hunter2" not in repr(parse({"kubeconfig": "token: hunter2"}))


def test_another_server_means_another_cluster_but_new_credentials_do_not() -> None:
    old = KubernetesConfig(kubeconfig=kubeconfig("https://a"))
    assert replacing_arguments(old, KubernetesConfig(kubeconfig=kubeconfig("https://b"))) == [
        "kubeconfig"
    ]
    assert (
        replacing_arguments(old, KubernetesConfig(kubeconfig=kubeconfig("https://a", "new"))) == []
    )
    assert (
        replacing_arguments(KubernetesConfig(kubeconfig="/a"), KubernetesConfig(kubeconfig="/b"))
        == []
    ), "a path does not identify a cluster"


def test_a_new_certificate_means_another_cluster_as_for_the_official_provider() -> None:
    old, new = (KubernetesConfig(kubeconfig=kubeconfig("https://a", ca=ca)) for ca in ("1", "2"))

    assert replacing_arguments(old, new) == ["kubeconfig"]


def test_a_cluster_identifier_overrides_the_kubeconfig() -> None:
    old = KubernetesConfig(kubeconfig=kubeconfig("https://a"), cluster_identifier="mine")
    assert (
        replacing_arguments(
            old, KubernetesConfig(kubeconfig=kubeconfig("https://b"), cluster_identifier="mine")
        )
        == []
    )
    assert replacing_arguments(
        old, KubernetesConfig(kubeconfig=kubeconfig("https://a"), cluster_identifier="x")
    ) == ["clusterIdentifier"]


def test_an_unknown_cluster_means_another_cluster_unless_its_identifier_stays() -> None:
    unknown = {"kubeconfig": UNKNOWN}

    assert unknown_arguments({"kubeconfig": "a"}, unknown) == ["kubeconfig"]
    assert unknown_arguments({IDENTIFIER: "mine"}, {**unknown, IDENTIFIER: "mine"}) == []
    assert unknown_arguments({IDENTIFIER: "mine"}, {**unknown, IDENTIFIER: UNKNOWN}) == [
        IDENTIFIER,
        "kubeconfig",
    ]
    assert unknown_arguments({}, {"kubeconfig": "a", IDENTIFIER: UNKNOWN}) == []


def test_an_added_or_removed_cluster_identifier_replaces_nothing() -> None:
    without = KubernetesConfig(kubeconfig=kubeconfig("https://a"))
    identified = KubernetesConfig(kubeconfig=kubeconfig("https://a"), cluster_identifier="mine")

    assert replacing_arguments(without, identified) == []
    assert replacing_arguments(identified, without) == []


def test_a_damaged_kubeconfig_names_no_server() -> None:
    damaged = KubernetesConfig(kubeconfig="{current-context: a, contexts: [{name: a}]}")

    assert replacing_arguments(damaged, KubernetesConfig(kubeconfig=kubeconfig("https://a"))) == []
