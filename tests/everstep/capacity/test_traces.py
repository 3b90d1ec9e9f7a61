"""Reading capacity traces: the published format, and refusals that name file, field, rule and fix."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.capacity.traces import read_traces
from everstep.errors import EverstepError


def write_trace(folder: Path, content: object, name: str = "us-west-2a.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def trace(data: object, gap: object = 300) -> dict[str, object]:
    return {"metadata": {"gap_seconds": gap}, "data": data}


def test_each_published_file_is_one_zone_named_by_the_file(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path, trace([16, 0, 3]), f"{zone}.json") for zone in ("2a", "2b")]

    history = read_traces(paths)

    assert history.zones == ("2a", "2b")
    assert history.gap_seconds == 300
    assert history.machines == ((16, 16), (0, 0), (3, 3))


def test_one_file_may_describe_several_zones(tmp_path: Path) -> None:
    history = read_traces([write_trace(tmp_path, trace({"a": [1, 2], "b": [3, 4]}))])

    assert history.zones == ("a", "b")
    assert history.machines == ((1, 3), (2, 4))


def test_zones_are_compared_over_the_time_that_all_traces_cover(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path, trace([1] * ticks), f"{ticks}.json") for ticks in (5, 3)]

    assert len(read_traces(paths).machines) == 3


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([1, 2], "a list, not an object"),
        ({"data": [1]}, "metadata.gap_seconds is null"),
        (trace([1], gap="300"), 'metadata.gap_seconds is "300"'),
        (trace([1], gap=True), "metadata.gap_seconds is true"),
        (trace([1], gap=300_000), "metadata.gap_seconds is 300000, outside 1 to 3600"),
        (trace([1], gap=0), "metadata.gap_seconds is 0, outside"),
        (trace([1], gap=10**400), "metadata.gap_seconds is 1000"),
        (f'{{"data": [{"1" * 5000}]}}', "not JSON"),
        ('{"metadata": {"gap_seconds": NaN}, "data": [1]}', "metadata.gap_seconds is NaN, outside"),
        (trace(None), "data is null, not a list"),
        (trace({}), "data has no zone"),
        (trace({"a": 5}), "data.a is 5, not a list"),
        (trace([]), "data is empty"),
        (trace({"a": []}), "data.a is empty"),
        (trace([1, None, 2]), "data[1] is null, which is a gap"),
        (trace({"a": [1, 2, -1]}), "data.a[2] is -1, negative"),
        (trace([1, 0.5]), "data[1] is 0.5, not a whole number"),
        (trace([True]), "data[0] is true, not a whole number"),
        (trace(["16"]), 'data[0] is "16", not a whole number'),
        (trace([1_693_094_400]), "data[0] is 1693094400, more than 100000"),
    ],
)
def test_a_trace_that_breaks_a_rule_is_refused(
    tmp_path: Path, content: object, expected: str
) -> None:
    path = write_trace(tmp_path, content)

    with pytest.raises(EverstepError) as error:
        read_traces([path])

    assert str(path) in error.value.problem, (
        "the user has to know which of several files is refused"
    )
    assert expected in error.value.problem
    assert error.value.fix, "every refusal names a fix"


def test_a_zone_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path, trace({"a": [1]}), name) for name in ("one.json", "two.json")]

    with pytest.raises(EverstepError, match=r"two\.json: zone 'a' is already in an earlier file"):
        read_traces(paths)


def test_traces_with_different_ticks_are_refused(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path, trace([1], gap), f"{gap}.json") for gap in (60, 300)]

    with pytest.raises(EverstepError, match="gap_seconds differs"):
        read_traces(paths)


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match=r"absent\.json cannot be read: No such file"):
        read_traces([tmp_path / "absent.json"])


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00")

    with pytest.raises(EverstepError, match="is not text"):
        read_traces([path])


@given(data=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
))  # fmt: skip
def test_any_data_gives_whole_numbers_of_machines_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, data: object
) -> None:
    path = write_trace(tmp_path_factory.getbasetemp(), trace(data), "any.json")

    try:
        history = read_traces([path])
    except EverstepError:
        return

    assert history.machines
    assert all(type(count) is int and count >= 0 for tick in history.machines for count in tick)
