"""The part of JSONPath that the annotation `pulumi.com/waitFor` uses."""

from typing import Any

import pytest
from cloudtwin.providers.kubernetes.jsonpath import compile_path

JOB: dict[str, Any] = {
    "kind": "Job",
    "metadata": {"labels": {"a.b/c": "x", "it's": "y"}},
    "status": {
        "active": 2,
        "done": False,
        "conditions": [
            {"type": "Created", "status": "True"},
            {"type": "Running", "status": "False", "reason": None},
        ],
    },
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".kind", ["Job"]),
        ("$.kind", ["Job"]),
        (".status.active", [2]),
        (".status.absent", []),
        (".kind.deeper", []),
        (".metadata.labels['a.b/c']", ["x"]),
        (".metadata.labels['it\\'s']", ["y"]),
        ('.metadata["labels"]["a.b/c"]', ["x"]),
        (".status.conditions[0].type", ["Created"]),
        (".status.conditions[-1].type", ["Running"]),
        (".status.conditions[7].type", []),
        (".status.conditions[*].type", ["Created", "Running"]),
        (".metadata.labels.*", ["x", "y"]),
        ('.status.conditions[?@.type=="Running"].status', ["False"]),
        ('.status.conditions[?(@.type == "Running")].status', ["False"]),
        ('.status.conditions[?@.type=="Running" && @.status=="True"]', []),
        ('.status.conditions[?(@.type=="Running" || @.type=="Created") && @.status=="True"].type', ["Created"]),
        ('.status.conditions[?!(@.type=="Running")].type', ["Created"]),
        (".status.conditions[?@.reason].type", ["Running"]),  # a member that is null exists
        (".status.conditions[?!@.reason].type", ["Created"]),
        (".status.conditions[?@.reason==null].type", ["Running"]),
        (".status.conditions[?$.kind=='Job'].type", ["Created", "Running"]),
        (".status[?@==2]", [2]),
        (".status[?@==false]", [False]),
        (".status.conditions[?@.type==@.status].type", []),
    ],
)  # fmt: skip
def test_a_path_selects_the_values_that_the_standard_defines(
    path: str, expected: list[Any]
) -> None:
    assert compile_path(path).select(JOB) == expected


@pytest.mark.parametrize(
    "path",
    [
        ".status..type", ".a[1:2]", ".a[?length(@)==1]", ".a[?@.b>=1]", ".a[?@.b != 1]", ".a[", ".a[?@.b==]",
        ".a[?'x']", ".a b", ".", ".a[?(@.b==1]", ".a[0,1]", r".a['b\x']", r'.a[?@.b=="\x"]',
    ],
)  # fmt: skip
def test_an_invalid_or_unsupported_path_is_refused_with_its_position(path: str) -> None:
    with pytest.raises(ValueError, match=r"at position \d+: expected"):
        compile_path(path)


def test_a_comparison_distinguishes_true_from_1() -> None:
    assert compile_path("[?@==1]").select([True, 1]) == [1]


def test_a_filter_tests_a_null_element_and_not_the_document() -> None:
    assert compile_path("[?@==null]").select([None, 1]) == [None]
    assert compile_path(".items[?@.kind]").select({"kind": "List", "items": [None]}) == []
