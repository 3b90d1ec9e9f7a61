"""The annotation `pulumi.com/waitFor`, in the official provider's syntax."""

import json
from typing import Any

import pytest
from cloudtwin.providers.kubernetes.wait_for import parse
from cloudtwin.providers.protocol.errors import ProviderError


def resource(*conditions: dict[str, Any], generation: int = 1, **status: object) -> dict[str, Any]:
    return {
        "metadata": {"generation": generation},
        "status": {"conditions": list(conditions), **status},
    }


RUNNING_OBJECT = resource(
    {"type": "Running", "status": "True"}, phase="Up", replicas=3, paused=False
)


def unmet_conditions(annotation: str, live: dict[str, Any]) -> list[str]:
    return [text for expectation in parse(annotation) if (text := expectation.unmet(live))]


@pytest.mark.parametrize(
    "annotation",
    [
        "condition=Running", "condition=running=true", "condition=Running=True",
        "jsonpath={.status.phase}", "jsonpath={.status.phase}=Up", "jsonpath={$.status.phase}=Up",
        "jsonpath={.status.replicas}=3", "jsonpath={.status.paused}=false", "jsonpath={.status.conditions}",
        'jsonpath={.status.conditions[?@.type=="Running"].status}=True',
        '["condition=Running", "jsonpath={.status.phase}=Up"]',
    ],
)  # fmt: skip
def test_an_expression_is_met(annotation: str) -> None:
    assert unmet_conditions(annotation, RUNNING_OBJECT) == []


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ("condition=Ready", "there is no condition Ready yet"),
        ("condition=Running=False", "condition Running is True, not False"),
        ("jsonpath={.status.phase}=Down", "{.status.phase} is Up, not Down"),
        ("jsonpath={.status.absent}", "{.status.absent} selects nothing yet"),
        ('["condition=Running", "condition=Ready"]', "there is no condition Ready yet"),
    ],
)
def test_an_unmet_expression_names_the_missing_value(annotation: str, reason: str) -> None:
    assert unmet_conditions(annotation, RUNNING_OBJECT) == [reason]


def test_an_object_without_a_status_meets_nothing_yet() -> None:
    assert unmet_conditions("condition=Running", {"metadata": {}}) == [
        "there is no condition Running yet"
    ]


def test_a_condition_of_an_older_generation_does_not_count() -> None:
    condition = {"type": "Running", "status": "True"}

    assert unmet_conditions(
        "condition=Running", resource(condition, generation=2, observedGeneration=1)
    )
    assert not unmet_conditions(
        "condition=Running", resource(condition, generation=2, observedGeneration=2)
    )
    assert not unmet_conditions("condition=Running", resource(condition, generation=2)), (
        "not every controller reports observedGeneration"
    )


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("Running", 'expected the prefix "jsonpath=" or "condition="'),
        ("[]", "at least one condition"),
        ("jsonpath=.status.phase", "must be in braces"),
        ("jsonpath={.status.phase", "must be in braces"),
        ("jsonpath={.status.phase}=", "with a literal value"),
        ("jsonpath={.a}={.b}", "with a literal value"),
        ("jsonpath={.a}=b=c", "with a literal value"),
        ("jsonpath='{.a}'", "must be in braces"),
        ("jsonpath={.a[1:2]}", "at position"),
        (json.dumps(["condition=Running", "Ready"]), 'expected the prefix "jsonpath="'),
    ],
)
def test_an_invalid_expression_is_refused(annotation: str, message: str) -> None:
    with pytest.raises(ProviderError, match=message):
        parse(annotation)


def test_a_value_cannot_be_compared_with_an_object() -> None:
    (expectation,) = parse("jsonpath={.status}=Up")
    with pytest.raises(ProviderError, match="not a single value"):
        expectation.unmet(RUNNING_OBJECT)


def test_no_annotation_expects_nothing() -> None:
    assert parse("") == ()
