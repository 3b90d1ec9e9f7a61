"""A bucket in memory whose requests fail, whose responses are lost, and whose requests arrive late or twice.

A put is atomic and a listing is complete, as S3 promises. Everything else may happen: the writer stops
before or after any request, or pauses there while others continue; a response is lost although the
request was carried out; a request that was sent once arrives again later.
"""

import errno
import random
import zlib
from collections.abc import Callable, Iterable

from everstep.elastic.checkpoint.bucket import BucketError, MissingObjectError


class SimulatedBucket:
    """A simulated bucket.

    Attributes:
        before: number of a request -> action before it, which may raise `CrashError`.
        broken: numbers of the requests that fail without being carried out.
        unanswered: numbers of the requests that are carried out, and whose answer is lost.
        delayed: puts that arrive again when `deliver_late` is called.
        requests: kinds of the requests so far, each with its key.
    """

    url = "s3://bucket/run"
    responded_at = 0.0

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.started: set[str] = set()  # uploads that were not completed
        self.before: dict[int, Callable[[], None]] = {}
        self.broken: set[int] = set()
        self.unanswered: set[int] = set()
        self.delayed: list[tuple[str, bytes]] = []
        self.requests: list[tuple[str, str]] = []

    def deliver_late(self, chance: random.Random) -> None:
        """Deliver some of the earlier puts a second time."""
        for key, content in chance.sample(self.delayed, min(3, len(self.delayed))):
            self.objects[key] = content

    def _request(self, kind: str, key: str) -> bool:
        """Start a request; return whether its response is lost."""
        number = len(self.requests)
        fault = self.before.pop(number, None)
        self.requests.append((kind, key))
        if fault:
            fault()
        if number in self.broken:
            raise BucketError(errno.EIO, "the connection is broken", key)
        return number in self.unanswered

    def _answer(self, key: str, *, lost: bool) -> None:
        if lost:
            raise BucketError(errno.EIO, "it does not respond", key)

    # --- the interface ---

    def keys(self, prefix: str) -> list[str]:
        self._answer(prefix, lost=self._request("list", prefix))
        return sorted(key for key in self.objects if key.startswith(prefix))

    def get(self, key: str) -> tuple[bytes, str]:
        self._answer(key, lost=self._request("get", key))
        if key not in self.objects:
            raise MissingObjectError(errno.ENOENT, "there is no such object", key)
        return self.objects[key], _version(self.objects[key])

    def get_large(self, key: str, size: int) -> bytearray:
        content, _ = self.get(key)
        if len(content) != size:
            raise ValueError(f"its state has {len(content)} bytes instead of {size}")
        return bytearray(content)

    def put(self, key: str, content: bytes) -> None:
        lost = self._request("put", key)
        self.objects[key] = content
        self.delayed.append((key, content))
        self._answer(key, lost=lost)

    def put_if(self, key: str, content: bytes, version: str | None) -> bool:
        lost = self._request("put", key)
        present = self.objects.get(key)
        if (None if present is None else _version(present)) != version:
            return False
        self.objects[key] = content
        self._answer(key, lost=lost)
        return True

    def put_large(self, key: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        self._request("start", key)
        self.started.add(key)
        content = bytearray()
        for part in parts:
            self._answer(key, lost=self._request("piece", key))
            content += part
        assert len(content) == size
        lost = self._request("put", key)
        self.objects[key] = bytes(content)
        self.delayed.append((key, bytes(content)))
        self.started.discard(key)
        self._answer(key, lost=lost)

    def delete(self, key: str) -> None:
        lost = self._request("delete", key)
        self.objects.pop(key, None)
        self._answer(key, lost=lost)

    def uploads(self, prefix: str) -> list[str]:
        self._answer(prefix, lost=self._request("list uploads", prefix))
        return sorted(key for key in self.started if key.startswith(prefix))

    def abort_uploads(self, key: str) -> None:
        self._answer(key, lost=self._request("abort", key))
        self.started.discard(key)


def _version(content: bytes) -> str:
    return str(zlib.crc32(content))
