"""An object store for tests: the files of a folder, with faults."""

import threading
from collections import Counter
from pathlib import Path

from everstep.errors import EverstepError
from everstep.staging.content import BrokenContentError


class FolderObjects:
    """The files of a folder as objects.

    Attributes:
        name: URL of the store, as in messages.
        requests: number of requests for each object.
        broken_requests: number of the next requests whose connection breaks.
        damaged_responses: number of the next responses that have damaged content.
        damaged_once: names of the objects whose next response has damaged content.
    """

    name = "s3://photographs/shards"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.requests: Counter[str] = Counter()
        self.broken_requests = self.damaged_responses = 0
        self.damaged_once: set[str] = set()
        self._lock = threading.Lock()  # readers and downloads request several objects at a time

    def read(self, name: str, first: int = 0, size: int | None = None) -> bytes:
        """Return bytes of a file."""
        with self._lock:
            self.requests[name] += 1
            if self.broken_requests:
                self.broken_requests -= 1
                raise BrokenContentError(f"{self.name}/{name}: the connection broke")
            is_damaged = bool(name in self.damaged_once or self.damaged_responses)
            if name in self.damaged_once:
                self.damaged_once.remove(name)
            elif self.damaged_responses:
                self.damaged_responses -= 1
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise EverstepError(f"{self.name}/{name} does not exist", "Copy it.") from None
        content = content[first:] if size is None else content[first : first + size]
        return bytes(byte ^ 1 for byte in content) if is_damaged else content
