"""Property values keep their meaning on the way from the engine and back."""

from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as some

from twin.pulumi.provider.convert import (
    SECRET,
    SIGNATURE,
    UNKNOWN,
    UNKNOWNS,
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

KEYS = some.text(min_size=1, max_size=8).filter(lambda key: key != SIGNATURE)
SCALARS = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(-(2**53), 2**53),
    some.floats(allow_nan=False, allow_infinity=False).filter(
        lambda number: not number.is_integer()
    ),
    some.text(max_size=20).filter(lambda text: text not in UNKNOWNS),
    some.just(UNKNOWN),
)
VALUES = some.recursive(
    SCALARS,
    lambda inner: some.one_of(
        some.lists(inner, max_size=4),
        some.dictionaries(KEYS, inner, max_size=4),
        inner.map(lambda value: value if isinstance(value, Secret) else Secret(value)),
    ),
    max_leaves=20,
)
OBJECTS = some.dictionaries(KEYS, VALUES, max_size=5)


@given(OBJECTS)
def test_a_value_survives_the_wire_with_its_secrets_and_unknowns(values):
    wire = Struct.FromString(to_struct(values).SerializeToString())

    assert from_struct(wire) == values


@given(OBJECTS)
def test_whole_numbers_stay_whole(values):
    def types(value):
        if isinstance(value, dict):
            return {key: types(item) for key, item in value.items()}
        if isinstance(value, list):
            return [types(item) for item in value]
        return types(value.value) if isinstance(value, Secret) else type(value)

    assert types(from_struct(to_struct(values))) == types(values), (
        "`replicas: 3.0` is refused by Kubernetes"
    )


@given(OBJECTS)
def test_secrets_can_be_put_back_where_they_were(values):
    marked = with_secrets(plain(values), secret_paths(values))

    assert plain(marked) == plain(values)
    assert secret_paths(marked) == secret_paths(values)


@given(OBJECTS)
def test_no_secret_shows_when_a_value_is_printed(values):
    hidden = with_secrets({**plain(values), "word": "hunter2"}, frozenset({("word",)}))

    assert "hunter2" not in repr(hidden)


def test_every_kind_of_unknown_is_one():
    for marker in UNKNOWNS:
        assert has_unknown(from_struct(to_struct({"a": [{"b": marker}]})))


def test_a_secret_on_the_wire_carries_the_engines_mark():
    wire = to_struct({"word": Secret("hunter2")})["word"]

    assert wire[SIGNATURE] == SECRET
    assert wire["value"] == "hunter2"


def test_paths_are_written_as_pulumi_writes_them():
    assert path_text(("spec", "containers", 0, "image")) == "spec.containers[0].image"
    assert path_text(("metadata", "labels", "a.b/c")) == 'metadata.labels["a.b/c"]'


@given(
    some.lists(
        some.one_of(
            some.integers(0, 99),
            some.text(min_size=1, max_size=6).filter(lambda step: "\\" not in step and step != "*"),
        ),
        max_size=5,
    )
)
def test_a_path_can_be_read_back(path):
    if path and isinstance(path[0], int):
        path = ["root", *path]

    assert parse_path(path_text(tuple(path))) == tuple(path)
