"""Inputs against a schema: names, types, required fields, enumerations."""

import pytest
from cloudtwin.providers.protocol.values import UNKNOWN, Object
from cloudtwin.providers.schema.check import check
from cloudtwin.providers.schema.model import from_json, to_json
from hypothesis import given, settings

from twin.tests.providers.samples import SCHEMA, TREES


@pytest.mark.parametrize(
    ("inputs", "reasons"),
    [
        ({"title": "a", "mode": "System"}, []),
        ({}, ["it is required and missing"]),
        ({"title": UNKNOWN}, []),
        ({"title": 1}, ["a string is expected, not an integer"]),
        ({"title": "a", "mode": "system"}, ["did you mean System?"]),
        ({"title": "a", "places": [{"nam": "x"}]}, ["did you mean name?", "required and missing"]),
        ({"title": "a", "places": {}}, ["a list is expected, not an object"]),
        ({"title": "a", "marks": {"x": True}}, ["a string is expected, not a boolean"]),
        ({"title": "a", "places": [{"name": "x", "size": True}]}, ["not a boolean"]),
    ],
)
def test_names_types_required_fields_and_enumerations_are_checked(
    inputs: Object, reasons: list[str]
) -> None:
    failures = [failure.reason for failure in check(SCHEMA, inputs)]
    assert len(failures) == len(reasons), failures
    assert all(any(part in reason for reason in failures) for part in reasons), failures


@settings(max_examples=30)
@given(inputs=TREES)
def test_the_check_never_raises(inputs: Object) -> None:
    check(SCHEMA, inputs)


def test_a_schema_is_read_back_from_json_unchanged() -> None:
    assert from_json(to_json(SCHEMA)) == SCHEMA
