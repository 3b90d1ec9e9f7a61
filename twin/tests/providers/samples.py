"""A schema and strategies that several tests use."""

from cloudtwin.providers.protocol.values import UNKNOWN
from cloudtwin.providers.schema.model import Field, ResourceSchema
from hypothesis import strategies as st

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
SCHEMA = ResourceSchema(token="t:m:T", inputs=INPUTS, outputs=OUTPUTS, objects=OBJECTS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(UNKNOWN),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
TREES = st.dictionaries(st.sampled_from([*INPUTS, "other"]), VALUES, max_size=4)
