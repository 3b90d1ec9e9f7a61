"""Arguments of the process that fills a cache."""

import json
from dataclasses import asdict, dataclass

from trainer.data.cache.plan import CacheLimits


@dataclass(frozen=True, kw_only=True)
class FillerArguments:
    """Arguments of a filler process.

    Attributes:
        folder: folder of the data set in the cache.
        store: address of the shards.
        limits: size limits of the cache.
    """

    folder: str
    store: str
    limits: CacheLimits

    def to_argument(self) -> str:
        """Encode as one command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, argument: str) -> "FillerArguments":
        """Decode the result of `to_argument`."""
        fields = json.loads(argument)
        return cls(**{**fields, "limits": CacheLimits(**fields["limits"])})
