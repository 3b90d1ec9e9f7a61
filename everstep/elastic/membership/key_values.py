"""The JSON values of a run's keys in etcd. Pure.

Agents of another version write to the same keys, and so do administrators. Every field is therefore checked when it
is read: a value that this agent cannot read must not end it. Unknown fields are ignored.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from everstep.elastic.membership.etcd_client import KeyValue
from everstep.elastic.membership.events import Instruction, RunEnded
from everstep.elastic.membership.generations import Generation, Member
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.errors import EverstepError

T = TypeVar("T")

SHOWN_CHARACTERS = 80  # maximum length of a value in an error
MAX_PORT = 65535
READ_ERRORS = (ValueError, TypeError, KeyError, RecursionError)


REPAIRS = {
    "generation": "write a generation without members, with a number N above all that the agents have logged; a "
    """new group then forms: etcdctl put {key} '{{"number": N, "members": [], "store": "none:1"}}'""",
    "committed": "remove the key; the newest valid checkpoint is then used: etcdctl del {key}",
}
OTHER_REPAIR = "remove the key: etcdctl del {key}"


class UnreadableKeyError(EverstepError):
    """The value of a key is not what agents of this version write."""

    def __init__(self, key: str, value: str, reason: str) -> None:
        shown = value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}..."
        repair = REPAIRS.get(key.rpartition("/")[2], OTHER_REPAIR).format(key=key)
        super().__init__(
            f"the key {key} in etcd cannot be read: {reason}; its value is {shown!r}",
            "Run one version of Everstep on all nodes. If the value is damaged, define etcdctl as docs/operations.md "
            f"describes under 'Commands for etcd', and {repair}",
        )


# --- values to write ---


def member_value(member: Member) -> str:
    """Return the value of a member's key; identity and order are properties of the key itself."""
    return json.dumps(
        {
            "node": member.node,
            "address": member.address,
            "after": member.after,
            "leaving": member.leaving,
            "endpoint": member.endpoint,
            "avoids": member.avoids,
        }
    )


def generation_value(generation: Generation) -> str:
    """Return the value of the generation's key."""
    value = {
        "number": generation.number,
        "members": generation.members,
        "store": generation.store,
    }
    lists = {
        "fenced": generation.fenced,
        "endpoints": generation.endpoints,
        "orders": generation.orders,
    }
    return json.dumps(value | {name: names for name, names in lists.items() if names})


def instruction_value(number: int, reason: str) -> str:
    """Return the value of an instruction for a generation."""
    return json.dumps({"number": number, "reason": reason})


def commit_value(committed: StepProgress, number: int) -> str:
    """Return the value of the key `committed` after a commit by generation `number`."""
    return json.dumps(
        {
            "agreed_generation": committed.agreed_generation,
            "step": committed.step,
            "generation": number,
            "run": committed.run,
        }
    )


def outcome_value(outcome: RunEnded) -> str:
    """Return the value of the outcome key of a run."""
    return json.dumps({"finished": outcome.finished, "reason": outcome.reason})


# --- values to read ---


def read_member(identity: str, entry: KeyValue) -> Member:
    """Return the member or coordinator that a key describes.

    Raises:
        UnreadableKeyError: the value is not a member, or the key has no lease: it would stay if its agent were lost.
    """
    if not entry.lease:
        raise UnreadableKeyError(entry.key, entry.value, "it has no lease, so no agent wrote it")
    return _read(entry, partial(_member, identity, entry.create_revision))


def read_generation(entry: KeyValue) -> Generation:
    """Return the generation.

    Raises:
        UnreadableKeyError: the value is not a generation.
    """
    return _read(entry, _generation)


def read_instruction(entry: KeyValue) -> Instruction:
    """Return the instruction of a kind.

    Raises:
        UnreadableKeyError: the value is not an instruction.
    """
    kind = entry.key.rpartition("/")[2]
    return _read(
        entry,
        lambda fields: Instruction(
            kind, fields.number("number"), fields.text("reason"), entry.mod_revision
        ),
    )


def read_commit(entry: KeyValue) -> StepProgress:
    """Return the progress of the newest commit.

    Raises:
        UnreadableKeyError: the value is not a commit.
    """
    return _read(
        entry,
        lambda fields: StepProgress(
            fields.number("agreed_generation"), fields.number("step"), fields.text("run", "")
        ),
    )


def read_outcome(entry: KeyValue) -> RunEnded:
    """Return the outcome of the run.

    Raises:
        UnreadableKeyError: the value is not an outcome.
    """
    return _read(
        entry,
        lambda fields: RunEnded(finished=fields.flag("finished"), reason=fields.text("reason")),
    )


class _Fields:
    """The fields of a JSON object. Every method raises one of `READ_ERRORS` for a field of another type."""

    def __init__(self, value: str) -> None:
        content = json.loads(value)
        if not isinstance(content, dict):
            raise TypeError("it is not a JSON object")
        self._content: dict[str, object] = content

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise TypeError(f"{name!r} is not a string")
        return value

    def number(self, name: str) -> int:
        return _number(name, self._value(name))

    def flag(self, name: str) -> bool:
        value = self._value(name)
        if not isinstance(value, bool):
            raise TypeError(f"{name!r} is neither true nor false")
        return value

    def texts(self, name: str, default: list[object] | None = None) -> tuple[str, ...]:
        values = self._list(name, default)
        if not all(isinstance(value, str) for value in values):
            raise TypeError(f"{name!r} is not a list of strings")
        return tuple(map(str, values))

    def numbers(self, name: str, default: list[object] | None = None) -> tuple[int, ...]:
        return tuple(_number(name, value) for value in self._list(name, default))

    def endpoint(self, name: str) -> str:
        return _endpoint(name, self.text(name))

    def endpoints(self, name: str) -> tuple[str, ...]:
        return tuple(_endpoint_or_none(name, value) for value in self.texts(name, []))

    def optional_endpoint(self, name: str) -> str:
        return _endpoint_or_none(name, self.text(name, ""))

    def _list(self, name: str, default: list[object] | None) -> list[object]:
        values = self._value(name, default)
        if not isinstance(values, list):
            raise TypeError(f"{name!r} is not a list")
        return values

    def _value(self, name: str, default: object = None) -> object:
        if name not in self._content and default is None:
            raise KeyError(name)
        return self._content.get(name, default)


def _read(entry: KeyValue, parse: Callable[[_Fields], T]) -> T:
    try:
        return parse(_Fields(entry.value))
    except KeyError as error:
        raise UnreadableKeyError(entry.key, entry.value, f"it has no {error}") from error
    except json.JSONDecodeError as error:
        raise UnreadableKeyError(entry.key, entry.value, "it is not JSON") from error
    except READ_ERRORS as error:
        raise UnreadableKeyError(entry.key, entry.value, str(error)) from error


def _member(identity: str, order: int, fields: _Fields) -> Member:
    return Member(
        identity,
        fields.text("node"),
        fields.text("address"),
        fields.number("after"),
        fields.flag("leaving"),
        order,
        fields.optional_endpoint("endpoint"),
        fields.texts("avoids", []),
    )


def _generation(fields: _Fields) -> Generation:
    return Generation(
        fields.number("number"),
        fields.texts("members"),
        fields.endpoint("store"),
        fields.texts("fenced", []),
        fields.endpoints("endpoints"),
        fields.numbers("orders", []),
    )


def _number(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{name!r} is not a whole number")
    return value


def _endpoint(name: str, value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise ValueError(f"{name!r} is not HOST:PORT")
    host.encode("idna")  # a name that no resolver accepts raises a UnicodeError
    return value


def _endpoint_or_none(name: str, value: str) -> str:
    return _endpoint(name, value) if value else ""
