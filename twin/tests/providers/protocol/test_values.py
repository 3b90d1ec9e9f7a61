"""Property values survive serialization to the engine and back."""

from typing import Any

from cloudtwin.providers.protocol.values import (
    SECRET,
    SIGNATURE,
    UNKNOWN,
    UNKNOWNS,
    Object,
    Secret,
    from_struct,
    has_unknown,
    parse_path,
    path_text,
    plain,
    secret_paths,
    to_struct,
    with_secrets,
)
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.text(min_size=1, max_size=8).filter(lambda key: key != SIGNATURE)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer()),
    st.text(max_size=20).filter(lambda text: text not in UNKNOWNS),
    st.just(UNKNOWN),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
        inner.map(lambda value: value if isinstance(value, Secret) else Secret(value)),
    ),
    max_leaves=20,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)


@given(OBJECTS)
def test_a_value_survives_serialization_with_its_secrets_and_unknowns(values: Object) -> None:
    serialized = Struct.FromString(to_struct(values).SerializeToString())

    assert from_struct(serialized) == values


@given(OBJECTS)
def test_integers_stay_integers(values: Object) -> None:
    def types(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: types(item) for key, item in value.items()}
        if isinstance(value, list):
            return [types(item) for item in value]
        return types(value.value) if isinstance(value, Secret) else type(value)

    assert types(from_struct(to_struct(values))) == types(values), (
        "`replicas: 3.0` is refused by Kubernetes"
    )


@given(OBJECTS)
def test_secrets_can_be_marked_again_at_their_paths(values: Object) -> None:
    marked_values = with_secrets(plain(values), secret_paths(values))

    assert plain(marked_values) == plain(values)
    assert secret_paths(marked_values) == secret_paths(values)


def test_a_list_with_a_secret_is_secret_as_a_whole() -> None:
    inputs = {"env": [{"name": "a", "value": "1"}, {"name": "b", "value": Secret("hunter2")}]}
    outputs = {"env": [{"name": "b", "value": "hunter2"}, {"name": "a", "value": "1"}]}

    marked_values = with_secrets(outputs, secret_paths(inputs))

    assert marked_values == {"env": Secret(outputs["env"])}, "a service may reorder a list"


def test_a_value_of_another_kind_than_its_input_is_secret_as_a_whole() -> None:
    inputs = {"config": {"key": Secret("hunter2")}}

    assert with_secrets({"config": '{"key": "hunter2"}'}, secret_paths(inputs)) == {
        "config": Secret('{"key": "hunter2"}')
    }


@given(OBJECTS)
def test_a_printed_value_shows_no_secret(values: Object) -> None:
    values_with_secret = with_secrets({**plain(values), "word": "hunter2"}, frozenset({("word",)}))

    assert "hunter2" not in repr(values_with_secret)


def test_every_marker_of_an_unknown_is_recognized() -> None:
    for marker in UNKNOWNS:
        assert has_unknown(from_struct(to_struct({"a": [{"b": marker}]})))


def test_a_serialized_secret_contains_the_engines_signature() -> None:
    serialized = to_struct({"word": Secret("hunter2")})["word"]

    assert isinstance(serialized, Struct)
    assert serialized[SIGNATURE] == SECRET
    assert serialized["value"] == "hunter2"


def test_paths_are_written_as_pulumi_writes_them() -> None:
    assert path_text(("spec", "containers", 0, "image")) == "spec.containers[0].image"
    assert path_text(("metadata", "labels", "a.b/c")) == 'metadata.labels["a.b/c"]'


@given(
    st.lists(
        st.one_of(
            st.integers(0, 99),
            st.text(min_size=1, max_size=6).filter(lambda step: "\\" not in step and step != "*"),
        ),
        max_size=5,
    )
)
def test_a_path_can_be_read_back(path: list[str | int]) -> None:
    if path and isinstance(path[0], int):
        path = ["root", *path]

    assert parse_path(path_text(tuple(path))) == tuple(path)
