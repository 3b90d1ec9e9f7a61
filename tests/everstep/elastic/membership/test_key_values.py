"""The values of a run's keys: what is written can be read; anything else raises `UnreadableKeyError`."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis.strategies import (
    DataObject,
    booleans,
    data,
    dictionaries,
    floats,
    integers,
    lists,
    none,
    recursive,
    sampled_from,
    text,
)

from everstep.elastic.membership.etcd_client import KeyValue
from everstep.elastic.membership.events import Instruction, RunEnded
from everstep.elastic.membership.generations import Generation, Member
from everstep.elastic.membership.key_values import (
    SHOWN_CHARACTERS,
    UnreadableKeyError,
    commit_value,
    generation_value,
    instruction_value,
    member_value,
    outcome_value,
    read_commit,
    read_generation,
    read_instruction,
    read_member,
    read_outcome,
)
from everstep.elastic.recovery.state_machine import StepProgress

MEMBER = Member("a-1", "a", "::1", 4, leaving=True, order=3, endpoint="::1:9", avoids=("b",))
LARGE_GENERATION = Generation(7, ("a", "b"), "host:1", ("b",), ("10.0.0.1:5", ""), (3, 4))
UNUSED_FIELD = "generation"  # field of a commit, for administrators
UNREADABLE_ANYWHERE = ["", "hello", "[]", "{}", "null", "7", '"x"', "[" * 100_000, "\\xff"]


def entry(value: str, key: str = "/everstep/run/members/a-1") -> KeyValue:
    return KeyValue(key, value, 3, 4, 5)


def test_each_value_is_read_as_it_was_written() -> None:
    assert read_member("a-1", entry(member_value(MEMBER))) == MEMBER
    assert read_generation(entry(generation_value(LARGE_GENERATION))) == LARGE_GENERATION
    commit = read_commit(entry(commit_value(StepProgress(2, 8, "run-1"), 3)))
    assert (commit, commit.run) == (StepProgress(2, 8), "run-1"), (
        "the comparison of StepProgress ignores the run"
    )
    outcome = RunEnded(finished=True, reason="done")
    assert read_outcome(entry(outcome_value(outcome))) == outcome
    instruction = read_instruction(entry(instruction_value(7, "lost b"), "x/instructions/stop"))
    assert instruction == Instruction("stop", 7, "lost b", 4)


def test_fields_of_a_later_version_are_ignored() -> None:
    value = '{"finished": true, "reason": "done", "steps": [1]}'

    assert read_outcome(entry(value)) == RunEnded(finished=True, reason="done")


@pytest.mark.parametrize("value", UNREADABLE_ANYWHERE, ids=lambda value: repr(value)[:12])
def test_a_value_of_another_kind_raises_unreadable_key_error(value: str) -> None:
    for read in (read_generation, read_commit, read_instruction, read_outcome):
        with pytest.raises(UnreadableKeyError):
            read(entry(value))
    with pytest.raises(UnreadableKeyError):
        read_member("a-1", entry(value))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"number": true, "members": [], "store": "a:1"}', "'number' is not a whole number"),
        ('{"number": -1, "members": [], "store": "a:1"}', "'number' is not a whole number"),
        ('{"number": 1.0, "members": [], "store": "a:1"}', "'number' is not a whole number"),
        ('{"number": 1, "members": "ab", "store": "a:1"}', "'members' is not a list"),
        ('{"number": 1, "members": [1], "store": "a:1"}', "'members' is not a list of strings"),
        ('{"number": 1, "members": []}', "it has no 'store'"),
        ('{"number": 1, "members": [], "store": ""}', "'store' is not HOST:PORT"),
        ('{"number": 1, "members": [], "store": "a:b"}', "'store' is not HOST:PORT"),
        ('{"number": 1, "members": [], "store": "a:65536"}', "'store' is not HOST:PORT"),
        (f'{{"number": 1, "members": [], "store": "{"a" * 64}:1"}}', "label too long"),
        ('{"number": 1, "members": [], "store": "a:1", "orders": ["x"]}', "'orders'"),
    ],
)
def test_the_error_names_the_field_that_is_wrong(value: str, reason: str) -> None:
    with pytest.raises(UnreadableKeyError, match=reason):
        read_generation(entry(value))


def test_the_error_names_the_key_the_start_of_its_value_and_the_fix() -> None:
    with pytest.raises(UnreadableKeyError) as raised:
        read_generation(entry("x" * 1000, "/everstep/run/generation"))

    error = raised.value
    assert (
        "the key /everstep/run/generation in etcd cannot be read: it is not JSON" in error.problem
    )
    assert f"{'x' * SHOWN_CHARACTERS}..." in error.problem
    assert "x" * (SHOWN_CHARACTERS + 1) not in error.problem
    command, _, value = error.fix.partition("etcdctl put ")[2].partition(" ")
    assert command == "/everstep/run/generation"
    repaired_generation = read_generation(entry(value.strip("'").replace("N", "9", 1)))
    assert repaired_generation == Generation(9, (), "none:1"), "the proposed value can be read"


@pytest.mark.parametrize("name", ["committed", "members/a-1", "instructions/stop"])
def test_the_fix_of_other_keys_is_to_remove_them(name: str) -> None:
    with pytest.raises(UnreadableKeyError) as raised:
        read_commit(entry("x", f"/everstep/run/{name}"))

    assert raised.value.fix.endswith(f"etcdctl del /everstep/run/{name}")
    assert "docs/operations.md describes under 'Commands for etcd'" in raised.value.fix


@given(text())
def test_arbitrary_text_raises_no_other_error(value: str) -> None:
    for read in (read_generation, read_commit, read_instruction, read_outcome):
        with pytest.raises(UnreadableKeyError):
            read(entry(value))


WRITTEN_VALUES: list[tuple[Callable[[KeyValue], object], str]] = [
    (partial(read_member, "a-1"), member_value(MEMBER)),
    (read_generation, generation_value(LARGE_GENERATION)),
    (read_commit, commit_value(StepProgress(2, 8, "run-1"), 3)),
    (read_instruction, instruction_value(7, "lost b")),
    (read_outcome, outcome_value(RunEnded(finished=True, reason="done"))),
]
json_values = recursive(
    none() | booleans() | integers() | floats() | text(),
    lambda values: lists(values, max_size=3) | dictionaries(text(), values, max_size=3),
    max_leaves=5,
)


@given(sampled_from(WRITTEN_VALUES), data(), json_values)
def test_a_field_of_another_type_raises_unreadable_key_error(
    written: tuple[Callable[[KeyValue], object], str], data: DataObject, content: object
) -> None:
    read, value = written
    fields = json.loads(value)
    name = data.draw(sampled_from(sorted(fields)))

    try:
        read(entry(json.dumps(fields | {name: content})))
    except UnreadableKeyError:
        return
    assert type(content) is type(fields[name]) or name == UNUSED_FIELD
