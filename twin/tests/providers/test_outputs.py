"""Outputs at preview and after the creation."""

from cloudtwin.providers.outputs import complete, predict
from cloudtwin.providers.protocol.values import UNKNOWN, Unknown

from twin.tests.providers.samples import SCHEMA


def test_a_list_input_becomes_a_map_output_where_the_sdk_has_a_map() -> None:
    inputs = {"title": "a", "owners": ["me"]}
    assert predict(SCHEMA, inputs)["owners"] == {"me": UNKNOWN}
    assert complete(SCHEMA, inputs)["owners"] == {"me": {"principalId": ""}}


def test_outputs_of_the_service_are_unknown_at_preview_and_never_null_afterwards() -> None:
    before, after = predict(SCHEMA, {"title": "a"}), complete(SCHEMA, {"title": "a"})
    assert isinstance(before["arn"], Unknown)
    assert "mode" not in before, "an optional input that was not set stays unset"
    assert (after["arn"], after["count"], after["inside"]) == ("", 0, {"name": ""})
