"""Capacity limits that are set by hand, for drills and tests.

A pool without a limit gets its desired number of machines. A limit may expire.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from cloudtwin import files


@dataclass(frozen=True)
class CapacityLimits:
    """The limits of one twin.

    Attributes:
        state: the twin's folder.
    """

    state: Path

    @property
    def path(self) -> Path:
        """The file of the limits."""
        return self.state / "cloud" / "capacity-limits.json"

    def set(self, pool: str, machines: int, seconds: float | None = None) -> None:
        """Limit a pool, given by its key, to a number of machines, for some seconds or until `remove`."""
        expires_at = None if seconds is None else time.time() + seconds
        limit = {"machines": machines, "until": expires_at}
        files.change_json(self.path, lambda limits: limits.update({pool: limit}))

    def remove(self, pool: str) -> None:
        """Remove a pool's limit."""
        files.change_json(self.path, lambda limits: limits.pop(pool, None))

    def current(self) -> dict[str, int]:
        """Return the limits that have not expired."""
        now = time.time()
        return {
            pool: int(entry["machines"])
            for pool, entry in (files.read_json(self.path) or {}).items()
            if entry["until"] is None or entry["until"] > now
        }
