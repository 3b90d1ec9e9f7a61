"""Evaluation of a cloud's tables (`model`): names, limits, rules, references, preconditions. Pure."""

import math
import re
import reprlib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

from cloudtwin.providers.changes import PREFIX_SUFFIX
from cloudtwin.providers.errors import CloudError
from cloudtwin.providers.inventory import Inventory, Resource, items_at, values_at
from cloudtwin.providers.model import InputRule, Reference, ResourceRequest, ResourceType
from cloudtwin.providers.protocol.values import Path, PropertyValue, Unknown
from cloudtwin.providers.schema.check import CheckFailure, one_of

Limits = Mapping[str, Mapping[str, Any]]


def failures(
    kind: ResourceType, limits: Limits, inputs: Mapping[str, PropertyValue]
) -> Iterator[CheckFailure]:
    """Yield the failures that can be found without the account."""
    yield from _name_too_long(kind, inputs)
    for path, choices in kind.enums.items():
        for location, value in items_at(path, inputs):
            if not isinstance(value, Unknown):
                yield from one_of(list(choices), value, location)
    for path, limit in limits.items():
        for location, value in items_at(path, inputs):
            yield from limit_failures(limit, value, location)
    for rule in kind.rules:
        for failure in violations(rule, inputs):
            yield CheckFailure(failure.path, f"{failure.reason} ({rule.source})")


def _name_too_long(
    kind: ResourceType, inputs: Mapping[str, PropertyValue]
) -> Iterator[CheckFailure]:
    if kind.naming is None:
        return
    key, max_length, note = kind.naming.property, kind.naming.max_length, ""
    if isinstance(inputs.get(f"{key}Prefix"), str):  # the name is generated from it
        key, max_length = f"{key}Prefix", max_length - PREFIX_SUFFIX
        note = f": the provider appends {PREFIX_SUFFIX}"
    value = inputs.get(key)
    if isinstance(value, str) and len(value) > max_length:
        reason = f"{value!r} has {len(value)} characters, at most {max_length} are allowed{note}"
        yield CheckFailure((key,), reason)


def violations(rule: InputRule, inputs: Mapping[str, PropertyValue]) -> list[CheckFailure]:
    """Return the violations of a rule; none if the rule depends on an unknown value."""
    tracker = UnknownTracker()
    result = list(rule.violations(tracker.tracked(inputs)))
    return [] if tracker.read_unknown else result


# -- limits from the service models


def limit_failures(
    limit: Mapping[str, Any], value: PropertyValue, path: Path
) -> Iterator[CheckFailure]:
    """Yield a failure for each limit of the service model that a value violates.

    Args:
        limit: `enum`, `pattern`, `min`, `max` (of the number, or of the length of text, lists and
            maps), `keys` (limits of a map's keys) and `api`, the operation or model that states them.
        value: the input.
        path: its path.
    """
    if isinstance(value, Unknown):
        return
    source = f" ({limit['api']})"
    for reason in _reasons(limit, value):
        yield CheckFailure(path, reason + source)
    for failure in one_of(limit["enum"], value, path) if "enum" in limit else ():
        yield CheckFailure(path, failure.reason + source)
    if "keys" in limit and isinstance(value, Mapping):
        for key in value:
            for reason in _reasons(limit["keys"], key):
                yield CheckFailure(path, f"the key {reason}{source}")


def _reasons(limit: Mapping[str, Any], value: PropertyValue) -> Iterator[str]:
    low, high = limit.get("min", -math.inf), limit.get("max", math.inf)
    if isinstance(value, int | float) and not isinstance(value, bool) and not low <= value <= high:
        bound = f"small: at least {low}" if value < low else f"large: at most {high}"
        yield f"{value} is too {bound}"
    if isinstance(value, str | list | Mapping) and not low <= len(value) <= high:
        unit = "characters" if isinstance(value, str) else "entries"
        bound = f"at least {low} are required"
        if len(value) > high:
            bound = f"at most {high} are allowed"
        yield f"{reprlib.repr(value)} has {len(value)} {unit}, {bound}"
    if isinstance(value, str) and "pattern" in limit and not _matches(limit["pattern"], value):
        yield f"{reprlib.repr(value)} does not match {limit['pattern']}"


def _matches(pattern: str, text: str) -> bool:
    return _compile(pattern).fullmatch(text) is not None


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


# -- creation, update and deletion


def require(kind: ResourceType, request: ResourceRequest) -> None:
    """Refuse a resource whose references or preconditions are not met.

    Raises:
        CloudError: with the service's error code and the first violation.
    """
    for reference in kind.references:
        _require_target(kind, reference, request)
    for precondition in kind.preconditions:
        for reason in precondition.violations(request):
            raise CloudError(precondition.code, f"{reason} ({precondition.source})")


def _require_target(kind: ResourceType, reference: Reference, request: ResourceRequest) -> None:
    for value in values_at(reference.path, request.inputs):
        if str(value).startswith(reference.external or ("\0",)):
            continue
        if reference.required not in str(value):
            continue
        if request.account.find(reference.tokens, value, reference.key) is None:
            target = " or ".join(sorted(token.rpartition(":")[2] for token in reference.tokens))
            raise CloudError(
                reference.code,
                f"{reference.path} of this {kind.title} names the {target} {str(value)!r}, which "
                "does not exist in the account",
            )


def require_unique(
    kind: ResourceType, request: ResourceRequest, identity: str, account: Inventory
) -> None:
    """Refuse a second resource with the same id or the same unique inputs.

    Args:
        kind: type of the resource.
        request: resource to create or update.
        identity: its id.
        account: all resources, including resources that are not ready.

    Raises:
        CloudError: the account has one already.
    """
    key = _key(kind, request.inputs)
    for other in account.all(kind.token):
        if request.previous and other.id == request.previous.id:
            continue
        if other.id.lower() == identity.lower() or (any(key) and _key(kind, other.inputs) == key):
            raise CloudError(
                kind.unique_code,
                f"the {kind.title} {other.id!r} already exists, created for "
                f"{other.urn.rpartition('::')[2]!r}; import it, or give this one another name",
            )


def _key(kind: ResourceType, inputs: Mapping[str, PropertyValue]) -> list[list[PropertyValue]]:
    """Return the values of the unique inputs, one list for each; all empty if the inputs set none of them."""
    return [values_at(path, inputs) for path in kind.unique]


def require_deletable(
    kind: ResourceType,
    types: Mapping[str, ResourceType],
    deleted: Resource,
    account: Inventory,
    deleted_together: Collection[tuple[str, str]],
) -> None:
    """Refuse to delete a resource that a deletion guard protects or that other resources use.

    Args:
        kind: type of the resource.
        types: all types of the cloud.
        deleted: resource to delete.
        account: all resources.
        deleted_together: types and ids of resources that are deleted with it and do not count.

    Raises:
        CloudError: with the service's error code, and the guard's reason or the resource that uses it.
    """
    for guard in kind.deletion_guards:
        for reason in guard.violations(deleted, account):
            raise CloudError(guard.code, f"{reason} ({guard.source})")
    for other in account.all():
        if (other.token, other.id) in deleted_together:
            continue
        for reference in types[other.token].references if other.token in types else ():
            if reference.in_use_code and _refers_to(reference, other, deleted):
                raise CloudError(
                    reference.in_use_code,
                    f"{deleted.id} cannot be deleted: the {other.token.rpartition(':')[2]} "
                    f"{other.id} still uses it ({reference.path})",
                )


def _refers_to(reference: Reference, other: Resource, deleted: Resource) -> bool:
    if deleted.token not in reference.tokens or (other.token, other.id) == (
        deleted.token,
        deleted.id,
    ):
        return False
    name = deleted.value(reference.key).lower()
    return any(str(value).lower() == name for value in values_at(reference.path, other.inputs))


# -- unknown values


class UnknownTracker:
    """Record of whether a rule read an unknown value.

    At preview some inputs are unknown. The result of a rule that reads one does not count; a rule that
    reads only known values should refuse at preview and not only at the update.
    """

    def __init__(self) -> None:
        self.read_unknown = False

    def tracked(self, value: PropertyValue) -> PropertyValue:
        """Return a value that records reads of its members; an unknown value reads as None."""
        if isinstance(value, Unknown):
            self.read_unknown = True
            return None
        if isinstance(value, Mapping):
            return _TrackedObject(value, self)
        return _TrackedList(value, self) if isinstance(value, list) else value


class _TrackedObject(Mapping[str, Any]):
    def __init__(self, values: Mapping[str, Any], tracker: UnknownTracker) -> None:
        self._values, self._tracker = values, tracker

    def __getitem__(self, key: str) -> PropertyValue:
        return self._tracker.tracked(self._values[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self._values))


class _TrackedList(list[Any]):
    def __init__(self, values: list[Any], tracker: UnknownTracker) -> None:
        super().__init__(values)
        self._tracker = tracker

    def __iter__(self) -> Iterator[Any]:
        return (self._tracker.tracked(item) for item in super().__iter__())

    def __getitem__(self, index: Any) -> PropertyValue:  # noqa: ANN401  an index or a slice
        return self._tracker.tracked(super().__getitem__(index))

    def __contains__(self, item: object) -> bool:
        return any(item == member for member in self)
