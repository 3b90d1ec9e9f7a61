"""How time passes in a twin's cloud, and whether a spot market is open there.

Both are off until somebody asks: time passes as it does, and the cloud has room for everything.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from everstep.errors import EverstepError
from twin.clouds.capacity import market
from twin.clouds.capacity.market import Change, Parameters
from twin.clouds.capacity.pools import Pool
from twin.nodes import files
from twin.nodes.model import Cloud

# How long before it takes a machine a cloud says so; Azure's is the least that it promises.
NOTICE_SECONDS: dict[Cloud, float] = {"aws": 120.0, "azure": 30.0, "": 0.0}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What was asked for.

    Attributes:
        factor: how many seconds of the cloud pass in one of ours.
        seed: of the spot market; empty: there is none.
        began: when the market opened, seconds since the epoch.
        parameters: what the market is like.
    """

    factor: float = 1.0
    seed: str = ""
    began: float = 0.0
    parameters: Parameters = field(default_factory=Parameters)

    @classmethod
    def load(cls, state: Path) -> "Settings":
        """Return the settings of a twin."""
        stored: dict[str, Any] = files.read_json(_path(state)) or {}
        parameters = Parameters(**stored.pop("parameters", {}))
        return cls(**stored, parameters=parameters)

    def save(self, state: Path) -> None:
        """Let them hold from now on."""
        files.write_json(_path(state), asdict(self))

    def notice_seconds(self, cloud: Cloud) -> float:
        """Return how long a notice is here."""
        return NOTICE_SECONDS[cloud] / self.factor

    def rules(self, pool: Pool) -> bool:
        """Return whether the market has a say in a pool."""
        return bool(self.seed) and pool.capacity == "spot" and pool.maximum > 0

    def room(self, pool: Pool, now: float) -> int | None:
        """Return how many machines of a pool the market has room for; None where it has no say."""
        if not self.rules(pool):
            return None
        seconds = (now - self.began) * self.factor
        return market.room(self._seed_of(pool), pool.maximum, seconds, self.parameters)

    def coming(self, pool: Pool, now: float) -> Iterator[Change]:
        """Yield what the market will do to a pool, without end; `at` in seconds of ours from now on."""
        if not self.rules(pool):
            return
        for change in market.changes(self._seed_of(pool), pool.maximum, self.parameters):
            seconds = self.began + change.at / self.factor - now
            if seconds > 0:
                yield Change(seconds, change.machines)

    def _seed_of(self, pool: Pool) -> str:
        return f"{self.seed}/{pool.name}"


def compress_time(state: Path, factor: float) -> None:
    """Let so many seconds of the cloud pass in one of ours: notices, idle times and the market are shorter.

    Raises:
        EverstepError: time would stand still or run backwards.
    """
    if factor <= 0:
        raise EverstepError(f"Time cannot pass {factor:g} times as fast.", "Give a factor above 0.")
    before = Settings.load(state)
    Settings(
        factor=factor, seed=before.seed, began=before.began, parameters=before.parameters
    ).save(state)


def open_market(state: Path, seed: str, parameters: Parameters | None = None) -> None:
    """Open a spot market, which begins with room for everything; the same seed gives the same market.

    Raises:
        EverstepError: the seed is empty.
    """
    if not seed:
        raise EverstepError(
            "A market needs a seed.", "Give any word; the same word gives the same market."
        )
    factor = Settings.load(state).factor
    Settings(
        factor=factor, seed=seed, began=time.time(), parameters=parameters or Parameters()
    ).save(state)


def close_market(state: Path) -> None:
    """Let there be room for everything again."""
    Settings(factor=Settings.load(state).factor).save(state)


def _path(state: Path) -> Path:
    return state / "cloud" / "settings.json"
