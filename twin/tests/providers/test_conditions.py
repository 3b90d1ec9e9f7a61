"""Checks from which the rules of the clouds are built."""

import pytest
from cloudtwin.providers.conditions import label_error


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pool", "gpu-spot"),
        ("everstep.dev/pool", ""),
        ("a" * 63, "b" * 63),
        ("Example_1.x-y", "A_1.x-y"),
        (f"{'a' * 63}.dev/pool", "1"),
    ],
)
def test_a_label_in_the_syntax_of_kubernetes_is_valid(key: str, value: str) -> None:
    assert label_error(key, value) is None


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("bad key!", "a", "key"),
        ("", "a", "key"),
        ("/pool", "a", "key"),
        ("everstep.dev/", "a", "key"),
        ("a/b/c", "a", "key"),
        ("Everstep.dev/pool", "a", "key"),
        (f"{'a' * 254}/pool", "a", "key"),
        ("-pool", "a", "key"),
        ("a" * 64, "a", "key"),
        ("pool", "a b", "value"),
        ("pool", "spot-", "value"),
        ("pool", "a" * 64, "value"),
    ],
)
def test_a_label_that_a_node_cannot_have_is_refused_by_its_key_or_value(
    key: str, value: str, part: str
) -> None:
    assert f"is not a valid label {part}" in str(label_error(key, value))
