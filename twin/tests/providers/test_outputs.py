"""Outputs at preview and after the creation."""

from collections.abc import Callable

import pytest
from cloudtwin.providers.outputs import complete, predict
from cloudtwin.providers.protocol.values import UNKNOWN, Object, PropertyValue, Unknown
from cloudtwin.providers.schema.model import Field, ResourceSchema, Shape

from twin.tests.providers.samples import SCHEMA

DISK_ARGS = {"size": Field(shape="integer", required=True), "label": Field(shape="string")}
DISK = {**DISK_ARGS, "id": Field(shape="string", required=True), "zone": Field(shape="string")}
"""Outputs of a disk: its inputs, and two fields that the service adds."""


def test_a_list_input_becomes_a_map_output_where_the_sdk_has_a_map() -> None:
    inputs = {"title": "a", "owners": ["me"]}
    assert predict(SCHEMA, inputs)["owners"] == {"me": UNKNOWN}
    assert complete(SCHEMA, inputs)["owners"] == {"me": {"principalId": ""}}


def test_outputs_of_the_service_are_unknown_at_preview_and_never_null_afterwards() -> None:
    before, after = predict(SCHEMA, {"title": "a"}), complete(SCHEMA, {"title": "a"})
    assert isinstance(before["arn"], Unknown)
    assert "mode" not in before, "an optional input that was not set stays unset"
    assert (after["arn"], after["count"], after["inside"]) == ("", 0, {"name": ""})


@pytest.mark.parametrize(
    ("shape_of", "wrap"),
    [
        (lambda disk: disk, lambda disk: disk),
        (lambda disk: {"list": disk}, lambda disk: [disk, disk]),
        (lambda disk: {"map": disk}, lambda disk: {"a": disk, "b": disk}),
    ],
    ids=["object", "list", "map"],
)
def test_objects_have_the_fields_of_the_service_at_any_depth(
    shape_of: Callable[[Shape], Shape], wrap: Callable[[Object], PropertyValue]
) -> None:
    schema = ResourceSchema(
        token="t:m:T",
        inputs={"disks": Field(shape=shape_of({"object": "DiskArgs"}))},
        outputs={"disks": Field(shape=shape_of({"object": "Disk"}))},
        objects={"DiskArgs": DISK_ARGS, "Disk": DISK},
    )
    inputs = {"disks": wrap({"size": 5, "no output": 1})}

    before, after = predict(schema, inputs), complete(schema, inputs)

    assert before["disks"] == wrap({"size": 5, "id": UNKNOWN, "zone": UNKNOWN})
    assert after["disks"] == wrap({"size": 5, "id": ""})


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ("string", ""), ("integer", 0), ("number", 0), ("boolean", False), ({"enum": ["a"]}, ""),
        ({"list": "string"}, []), ({"map": "string"}, {}), ({"object": "Disk"}, {"size": 0, "id": ""}),
    ],
)  # fmt: skip
def test_a_required_output_without_a_value_gets_the_empty_value_of_its_type(
    shape: Shape, value: PropertyValue
) -> None:
    outputs = {"field": Field(shape=shape, required=True), "optional": Field(shape=shape)}
    schema = ResourceSchema(token="t:m:T", inputs={}, outputs=outputs, objects={"Disk": DISK})

    completed = complete(schema, {})

    assert completed == {"field": value}
    assert type(completed["field"]) is type(value), "False equals 0"
