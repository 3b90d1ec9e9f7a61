"""What may go wrong in a cloud, on demand: `<twin>/cloud/faults.json`.

    {"latency": {"aws:eks/cluster:Cluster": 2.0, "*": 0.1},
     "faults": [{"kind": "capacity", "type": "aws:eks/nodeGroup:*", "name": "*gpu*", "times": 2}]}

The first fault that fits an operation and is not used up strikes. How often each struck stands in
a file of its own, so that a fault that was to strike once does so once, whichever process meets it.
"""

import fcntl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from twin.nodes import files
from twin.pulumi.provider.errors import ProviderError


class Kind(StrEnum):
    """How an operation goes wrong."""

    THROTTLE = (
        "throttle"  # refused for its rate; the provider tries again, as the official one does
    )
    CAPACITY = "capacity"  # made, but the cloud has no machines or room for it
    TIMEOUT = "timeout"  # made, but not ready in time
    ERROR = "error"  # refused, nothing was done
    LOST = "lost"  # done, but the answer never came


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: how.
        type: which types, as a pattern with `*`.
        name: which of the program's resources, as a pattern.
        operation: create, update, delete or read.
        times: how often; 0 is always.
        message: what the cloud says, where its own words would not do.
    """

    kind: Kind
    type: str = "*"
    name: str = "*"
    operation: str = "create"
    times: int = 1
    message: str = ""

    def fits(self, token: str, name: str, operation: str) -> bool:
        """Tell whether it is meant for an operation."""
        return (
            operation == self.operation
            and fnmatchcase(token, self.type)
            and fnmatchcase(name, self.name)
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that may go wrong, and how slow the cloud is.

    Attributes:
        faults: in the order in which they are tried.
        latency: pattern of types -> seconds that each create, update and delete takes.
    """

    faults: tuple[Fault, ...] = ()
    latency: Mapping[str, float] | None = None

    def seconds(self, token: str) -> float:
        """Return how long an operation takes; the longest pattern that fits decides."""
        fitting = [each for each in self.latency or {} if fnmatchcase(token, each)]
        return float((self.latency or {})[max(fitting, key=len)]) if fitting else 0.0

    def choose(
        self, used: Sequence[int], token: str, name: str, operation: str
    ) -> tuple[int, Fault] | None:
        """Return the first fault that fits and is not used up, with its position."""
        for at, fault in enumerate(self.faults):
            spent = used[at] if at < len(used) else 0
            if fault.fits(token, name, operation) and (fault.times == 0 or spent < fault.times):
                return at, fault
        return None


def parse(stored: Mapping[str, Any]) -> Plan:
    """Read a plan.

    Raises:
        ProviderError: it says something that is not known here.
    """
    unknown = sorted({*stored} - {"faults", "latency"})
    known = {each.name for each in fields(Fault)}
    try:
        faults = tuple(
            Fault(**{**each, "kind": Kind(each["kind"])}) for each in stored.get("faults", ())
        )
        latency = {str(key): float(value) for key, value in stored.get("latency", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProviderError(
            f"faults.json holds a fault that is not known: {error}. A fault has {sorted(known)}; "
            f"its kind is one of {[str(each) for each in Kind]}"
        ) from None
    if unknown:
        raise ProviderError(f"faults.json has no {unknown}; it has faults and latency")
    return Plan(faults=faults, latency=latency)


class Faults:
    """The faults of one twin's clouds."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "cloud"

    def seconds(self, token: str) -> float:
        """Return how long an operation on a type takes."""
        return self._plan().seconds(token)

    def strike(self, token: str, name: str, operation: str) -> Fault | None:
        """Return what goes wrong with an operation, and count it as done."""
        plan = self._plan()
        if not plan.faults:
            return None
        with (self._folder / "faults.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            counts = self._folder / "faults-used.json"
            used = list((files.read_json(counts) or {}).get("used", ()))
            used += [0] * (len(plan.faults) - len(used))
            chosen = plan.choose(used, token, name, operation)
            if chosen is None:
                return None
            used[chosen[0]] += 1
            files.write_json(counts, {"used": used})
            return chosen[1]

    def _plan(self) -> Plan:
        path = self._folder / "faults.json"
        stored = files.read_json(path)
        if stored is None and path.exists():
            raise ProviderError(f"{path} is not JSON")
        return parse(stored or {})
