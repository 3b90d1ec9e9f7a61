"""The pure cores of the twin's clouds: wire checks, outputs, names, faults, ids."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.clouds import aws, azure
from twin.clouds.azure.common import ROOT, arm_id, location_of, parent_of
from twin.clouds.diff import compare
from twin.clouds.faults import Fault, Kind, Plan, parse
from twin.clouds.naming import with_name
from twin.clouds.outputs import complete, foresee
from twin.clouds.watched import Watch
from twin.clouds.wire.check import check
from twin.clouds.wire.model import Field, Wire, from_json, to_json
from twin.clouds.world import World, values_at
from twin.pulumi.provider.convert import UNKNOWN, Unknown

PLACE = {"name": Field(shape="string", required=True), "size": Field(shape="integer")}
INPUTS = {
    "title": Field(shape="string", required=True),
    "places": Field(shape={"list": {"object": "Place"}}),
    "marks": Field(shape={"map": "string"}),
    "mode": Field(shape={"enum": ["User", "System"]}),
    "owners": Field(shape={"list": "string"}),
}
OUTPUTS = {
    **INPUTS,
    "arn": Field(shape="string", required=True),
    "count": Field(shape="integer", required=True),
    "owners": Field(shape={"map": {"object": "Owner"}}),
    "inside": Field(shape={"object": "Place"}, required=True),
}
OBJECTS = {"Place": PLACE, "Owner": {"principalId": Field(shape="string", required=True)}}
WIRE = Wire(token="t:m:T", inputs=INPUTS, outputs=OUTPUTS, objects=OBJECTS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(UNKNOWN),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
TREES = st.dictionaries(st.sampled_from([*INPUTS, "other"]), VALUES, max_size=4)


@pytest.mark.parametrize(
    ("inputs", "said"),
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
def test_inputs_are_held_against_names_types_and_enums(inputs, said):
    found = [mistake.reason for mistake in check(WIRE, inputs)]
    assert len(found) == len(said), found
    assert all(any(word in reason for reason in found) for word in said), found


@settings(max_examples=30, deadline=None)
@given(inputs=TREES)
def test_no_input_whatever_makes_the_check_stumble(inputs):
    check(WIRE, inputs)


def test_a_type_survives_the_cache():
    assert from_json(to_json(WIRE)) == WIRE


def test_outputs_of_a_map_where_the_input_is_a_list_come_out_as_a_map():
    said = {"title": "a", "owners": ["me"]}
    assert foresee(WIRE, said)["owners"] == {"me": UNKNOWN}
    assert complete(WIRE, said)["owners"] == {"me": {"principalId": ""}}


def test_what_only_the_service_can_say_is_unknown_before_and_never_null_after():
    before, after = foresee(WIRE, {"title": "a"}), complete(WIRE, {"title": "a"})
    assert isinstance(before["arn"], Unknown)
    assert "mode" not in before, "what may be left out, and was, stays out"
    assert (after["arn"], after["count"], after["inside"]) == ("", 0, {"name": ""})


@settings(max_examples=30, deadline=None)
@given(tree=TREES)
def test_what_did_not_change_is_no_difference(tree):
    known = {key: value for key, value in tree.items() if "UNKNOWN" not in repr(value)}
    kind = aws.CLOUD.types["aws:ec2/vpc:Vpc"]
    assert compare(kind, "r", known, known, []).fields == ()


@settings(max_examples=30, deadline=None)
@given(tree=TREES)
def test_a_watch_notices_exactly_the_unknowns_that_were_looked_at(tree):
    watch = Watch()
    seen = repr(_walk(watch.over(tree)))
    assert watch.met_unknown == ("UNKNOWN" in repr(tree)), seen


def _walk(value):
    if hasattr(value, "items"):
        return {key: _walk(item) for key, item in value.items()}
    return [_walk(item) for item in value] if isinstance(value, list) else value


def test_an_unknown_that_nobody_looked_at_does_not_count():
    watch = Watch()
    inputs = watch.over({"sku": {"name": "Standard"}, "subnet": UNKNOWN})
    assert inputs["sku"]["name"] == "Standard"
    assert not watch.met_unknown


@pytest.mark.parametrize(
    ("path", "found"),
    [("a.*.b", [1, 2]), ("a.*", [{"b": 1}, {"b": 2}]), ("c.*", ["x"]), ("d.e", []), ("n", [])],
)
def test_a_path_leads_to_all_that_stands_at_it(path, found):
    inputs = {"a": [{"b": 1}, {"b": 2}], "c": {"k": "x"}, "n": None}
    assert values_at(path, inputs) == found


@pytest.mark.parametrize(("cloud", "name"), [("aws", "nodes-"), ("azure-native", "nodes")])
def test_an_invented_name_begins_with_the_resources_and_is_the_same_in_preview_and_update(
    cloud, name
):
    kind = aws.CLOUD.types["aws:iam/role:Role"]
    one, two = (with_name(kind, cloud, "nodes", {}, {}, seed)["name"] for seed in (b"a", b"a"))
    assert one == two
    assert one.startswith(name)
    assert with_name(kind, cloud, "nodes", {}, {}, b"b")["name"] != one


def test_a_fault_strikes_as_often_as_it_says_and_only_what_it_means():
    plan = Plan(faults=(Fault(kind=Kind.ERROR, type="aws:eks/*", name="*gpu*", times=2),))
    assert plan.choose([1], "aws:eks/nodeGroup:NodeGroup", "my-gpu", "create")
    assert plan.choose([2], "aws:eks/nodeGroup:NodeGroup", "my-gpu", "create") is None
    assert plan.choose([], "aws:eks/nodeGroup:NodeGroup", "system", "create") is None
    assert plan.choose([], "aws:eks/nodeGroup:NodeGroup", "my-gpu", "delete") is None


def test_the_longest_pattern_says_how_slow_a_type_is():
    plan = parse({"latency": {"*": 1, "aws:eks/*": 5}})
    assert (plan.seconds("aws:eks/cluster:Cluster"), plan.seconds("aws:s3/bucket:Bucket")) == (5, 1)


def test_an_arm_id_knows_its_parent():
    given_names = {"resourceGroupName": "g", "vnet": "v", "subnet": "s"}
    vnet = arm_id("Microsoft.Network/virtualNetworks/{vnet}", given_names)
    subnet = arm_id("Microsoft.Network/virtualNetworks/{vnet}/subnets/{subnet}", given_names)
    assert parent_of(subnet) == vnet
    assert parent_of(vnet) == f"{ROOT}/resourceGroups/g"
    box = f"{ROOT}/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/blobServices/default/containers/c"
    assert parent_of(box).endswith("/storageAccounts/a"), "the blob service is always there"


def test_a_location_is_the_same_however_it_is_written():
    assert location_of("East US") == "eastus"


def test_ids_of_azure_have_no_case():
    from twin.clouds.world import Resource

    group = Resource(token="t", id="/a/B", urn="", inputs={}, outputs={})
    assert World((group,)).find(("t",), "/A/b") == group


@pytest.mark.parametrize("cloud", [aws.CLOUD, azure.CLOUD], ids=lambda cloud: cloud.name)
def test_records_speak_of_properties_that_the_sdk_has(cloud):
    """A misspelt path in a record would be a rule that never speaks."""
    from twin.clouds.wire.store import Wires

    wires = Wires(cloud.name, cloud.types)
    for token, kind in cloud.types.items():
        wire = wires.load(token)
        names = (kind.naming.property,) if kind.naming else ()
        paths = [*kind.immutable, *kind.enums, *kind.unique, *names]
        for path in [*paths, *(each.path for each in kind.references)]:
            assert _leads(wire, path.split(".")), f"{token} has no {path}"
        for name in kind.defaults:
            assert name in wire.outputs, f"{token} answers no {name}"


def _leads(wire: Wire, path: list[str]) -> bool:
    fields, shape = wire.inputs, None
    for step in path:
        if shape and {"list", "map"} & set(shape):
            shape = next(iter(shape.values()))  # whatever the key or position
            continue
        fields = wire.objects[shape["object"]] if shape else fields
        if step not in fields:
            return False
        shape = fields[step].shape
    return True
