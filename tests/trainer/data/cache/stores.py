"""An object store for tests: the files of a folder, with faults."""

from collections import Counter
from pathlib import Path

from everstep.staging.content import BrokenContentError
from everstep.staging.sources.objects import MissingObjectError


class FolderObjects:
    """The files of a folder as objects.

    Attributes:
        requests: number of requests for each object.
        broken: number of next requests that break.
        damaged: number of next requests whose content is damaged.
    """

    name = "s3://photographs/shards"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.requests: Counter[str] = Counter()
        self.broken = self.damaged = 0

    def read(self, name: str, first: int = 0, size: int | None = None) -> bytes:
        """Return bytes of a file."""
        self.requests[name] += 1
        if self.broken:
            self.broken -= 1
            raise BrokenContentError(f"{self.name}/{name}: the connection broke")
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise MissingObjectError(f"{self.name}/{name} does not exist", "Copy it.") from None
        content = content[first:] if size is None else content[first : first + size]
        if self.damaged:
            self.damaged -= 1
            return bytes(byte ^ 1 for byte in content)
        return content
