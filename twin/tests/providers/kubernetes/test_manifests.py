"""YAML as the SDK's ConfigFile and ConfigGroup send it."""

import pytest
from cloudtwin.providers.kubernetes.manifests import decode
from cloudtwin.providers.protocol.errors import ProviderError


def test_yaml_is_read_as_kubernetes_reads_it() -> None:
    items = "items:\n- {apiVersion: v1, kind: A, day: 2024-01-01}\n"
    text = f"---\napiVersion: v1\nkind: List\n{items}---\n---\napiVersion: v1\nkind: B\n"
    assert decode(text) == [
        {"apiVersion": "v1", "kind": "A", "day": "2024-01-01"},
        {"apiVersion": "v1", "kind": "B"},
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "no apiVersion or no kind"),
        ("kind: X", "no apiVersion or no kind"),
        ("apiVersion: v1", "no apiVersion or no kind"),
        ("{apiVersion: v1, kind: List, items: [{kind: X}]}", "no apiVersion or no kind"),
    ],
)
def test_a_text_that_is_not_an_object_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ProviderError, match=reason):
        decode(text)
