"""How much room a cloud has for a pool, where somebody has said so: for drills and tests.

Without an entry there is room for all that is wanted. An entry may end by itself: capacity that returns later.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from twin.nodes import files


@dataclass(frozen=True)
class Supply:
    """The limits that were set by hand.

    Attributes:
        state: the twin's folder.
    """

    state: Path

    @property
    def path(self) -> Path:
        """The file that holds them."""
        return self.state / "cloud" / "supply.json"

    def limit(self, pool: str, machines: int, seconds: float | None = None) -> None:
        """Leave room for so many machines of a pool and no more, for so long or until `lift`."""
        until = None if seconds is None else time.time() + seconds
        stored = files.read_json(self.path) or {}
        files.write_json(self.path, stored | {pool: {"machines": machines, "until": until}})

    def lift(self, pool: str) -> None:
        """Let there be room again."""
        stored = files.read_json(self.path) or {}
        stored.pop(pool, None)
        files.write_json(self.path, stored)

    def limits(self) -> dict[str, int]:
        """Return the limits that hold now."""
        now = time.time()
        return {
            pool: int(entry["machines"])
            for pool, entry in (files.read_json(self.path) or {}).items()
            if entry["until"] is None or entry["until"] > now
        }
