"""Faults injected into a cloud: `<twin>/cloud/faults.json`.

    {"latency": {"aws:eks/cluster:Cluster": 2.0, "*": 0.1},
     "faults": [{"kind": "capacity", "type": "aws:eks/nodeGroup:*", "name": "*gpu*", "times": 2}]}

The first fault that matches an operation and is not used up is injected. A second file counts the
injections, so that a fault with `times` 1 happens once in total, across all processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cloudtwin import files
from cloudtwin.providers.protocol.errors import ProviderError

OPERATIONS = ("create", "update", "delete", "read")


class FaultKind(StrEnum):
    """Kind of failure of an operation."""

    THROTTLE = "throttle"  # refused because of the request rate; the provider retries, as the official provider does
    CAPACITY = "capacity"  # created or updated, but the cloud has no machines for it
    TIMEOUT = "timeout"  # created or updated, but not ready in time; or not deleted in time
    ERROR = "error"  # refused, nothing was done
    LOST = "lost"  # done, but the response was lost


SUPPORTED_OPERATIONS = {
    FaultKind.THROTTLE: OPERATIONS,
    FaultKind.CAPACITY: ("create", "update"),
    FaultKind.TIMEOUT: ("create", "update", "delete"),
    FaultKind.ERROR: OPERATIONS,
    FaultKind.LOST: ("create", "update", "delete"),
}
"""The operations on which each kind of fault has an effect."""


@dataclass(frozen=True, kw_only=True)
class InjectedFault:
    """One injected fault.

    Attributes:
        kind: kind of failure.
        type: pattern of type tokens, with `*`.
        name: pattern of the program's resource names.
        operation: create, update, delete or read, if the kind has an effect on it.
        times: number of injections; 0 for no limit.
        message: message instead of the cloud's own; not used for throttle.
    """

    kind: FaultKind
    type: str = "*"
    name: str = "*"
    operation: str = "create"
    times: int = 1
    message: str = ""

    def matches(self, token: str, name: str, operation: str) -> bool:
        """Return True if the fault applies to an operation."""
        return (
            operation == self.operation
            and fnmatchcase(token, self.type)
            and fnmatchcase(name, self.name)
        )


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """All faults of a twin's clouds, and their latency.

    Attributes:
        faults: the faults, in order of precedence.
        latency: pattern of types -> seconds that each create, update and delete takes.
    """

    faults: tuple[InjectedFault, ...] = ()
    latency: Mapping[str, float] | None = None

    def seconds(self, token: str) -> float:
        """Return the latency of a type; the longest matching pattern takes precedence."""
        patterns = [pattern for pattern in self.latency or {} if fnmatchcase(token, pattern)]
        return float((self.latency or {})[max(patterns, key=len)]) if patterns else 0.0

    def choose(
        self, counts: Sequence[int], token: str, name: str, operation: str
    ) -> tuple[int, InjectedFault] | None:
        """Return the first matching fault that is not used up, with its index."""
        for index, fault in enumerate(self.faults):
            use_count = counts[index] if index < len(counts) else 0
            if fault.matches(token, name, operation) and (
                fault.times == 0 or use_count < fault.times
            ):
                return index, fault
        return None


def parse(document: Mapping[str, Any]) -> FaultPlan:
    """Return the plan in a parsed faults.json.

    Raises:
        ProviderError: an unknown key or kind, or an invalid value.
    """
    unknown_keys = sorted({*document} - {"faults", "latency"})
    field_names = {field.name for field in fields(InjectedFault)}
    try:
        faults = tuple(
            InjectedFault(**{**fault, "kind": FaultKind(fault["kind"])})
            for fault in document.get("faults", ())
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProviderError(
            f"faults.json has an invalid fault: {error}. A fault has the keys {sorted(field_names)}; its kind must be "
            f"one of {[str(kind) for kind in FaultKind]}"
        ) from None
    for fault in faults:
        is_count = type(fault.times) is int and fault.times >= 0
        operations = SUPPORTED_OPERATIONS[fault.kind]
        if fault.operation not in operations or not is_count:
            raise ProviderError(
                f"faults.json has a fault of kind {fault.kind} with the operation {fault.operation!r} and times "
                f"{fault.times!r}: the operation must be one of {', '.join(operations)}, and times must be a whole "
                "number, 0 or more"
            )
    if unknown_keys:
        raise ProviderError(
            f"faults.json has unknown keys {unknown_keys}; the only valid keys are faults and latency"
        )
    return FaultPlan(faults=faults, latency=_latency(document.get("latency", {})))


def _latency(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the latency by pattern of types."""
    try:
        return {str(pattern): float(value) for pattern, value in seconds.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ProviderError(
            f"faults.json has an invalid latency: {error}. It maps patterns of types to seconds"
        ) from None


class FaultInjector:
    """Injector of the faults of one twin's clouds."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "cloud"

    def seconds(self, token: str) -> float:
        """Return the latency of operations on a type."""
        return self._plan().seconds(token)

    def next(self, token: str, name: str, operation: str) -> InjectedFault | None:
        """Return the fault of an operation, or None, and count it as injected."""
        plan = self._plan()
        if not plan.faults:
            return None
        with files.locked(self._folder / "faults.lock"):
            counts = self._folder / "faults-used.json"
            use_counts = list((files.read_json(counts) or {}).get("used", ()))
            use_counts += [0] * (len(plan.faults) - len(use_counts))
            choice = plan.choose(use_counts, token, name, operation)
            if choice is None:
                return None
            use_counts[choice[0]] += 1
            files.write_json(counts, {"used": use_counts})
            return choice[1]

    def _plan(self) -> FaultPlan:
        return parse(files.read_json(self._folder / "faults.json") or {})
