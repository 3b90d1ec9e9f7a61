"""A bucket in memory whose requests fail, whose responses are lost, and whose requests arrive late or twice.

A put is atomic and a listing is complete, as S3 promises. Everything else may happen: the writer stops
before or after any request, or pauses there while others continue; a response is lost although the
request was executed; a request that was sent once arrives again later.
"""

import errno
import random
import zlib
from collections.abc import Callable, Iterable

from everstep.elastic.checkpoint.bucket import BucketError, MissingObjectError


class SimulatedBucket:
    """A simulated bucket.

    Attributes:
        actions_before: number of a request -> action before it, which may raise `CrashError`.
        broken_requests: numbers of the requests that fail without being executed.
        lost_responses: numbers of the requests that are executed, and whose response is lost.
        delivered_puts: puts so far, except conditional ones; `deliver_again` delivers some of them again.
        requests: kinds of the requests so far, each with its key.
    """

    url = "s3://bucket/run"
    responded_at = 0.0

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.open_uploads: set[str] = set()  # uploads that were not completed
        self.actions_before: dict[int, Callable[[], None]] = {}
        self.broken_requests: set[int] = set()
        self.lost_responses: set[int] = set()
        self.delivered_puts: list[tuple[str, bytes]] = []
        self.requests: list[tuple[str, str]] = []

    def deliver_again(self, rng: random.Random) -> None:
        """Deliver some of the earlier puts a second time."""
        for key, content in rng.sample(self.delivered_puts, min(3, len(self.delivered_puts))):
            self.objects[key] = content

    def _request(self, kind: str, key: str) -> bool:
        """Start a request; return True if its response is lost."""
        number = len(self.requests)
        action = self.actions_before.pop(number, None)
        self.requests.append((kind, key))
        if action:
            action()
        if number in self.broken_requests:
            raise BucketError(errno.EIO, "the connection is broken", key)
        return number in self.lost_responses

    def _respond(self, key: str, *, is_lost: bool) -> None:
        if is_lost:
            raise BucketError(errno.EIO, "it does not respond", key)

    # --- the interface ---

    def keys(self, prefix: str) -> list[str]:
        self._respond(prefix, is_lost=self._request("list", prefix))
        return sorted(key for key in self.objects if key.startswith(prefix))

    def get(self, key: str) -> tuple[bytes, str]:
        self._respond(key, is_lost=self._request("get", key))
        if key not in self.objects:
            raise MissingObjectError(errno.ENOENT, "there is no such object", key)
        return self.objects[key], _version(self.objects[key])

    def get_large(self, key: str, size: int) -> bytearray:
        content, _ = self.get(key)
        if len(content) != size:
            raise ValueError(f"{key} has {len(content)} bytes instead of {size}")
        return bytearray(content)

    def put(self, key: str, content: bytes) -> None:
        is_lost = self._request("put", key)
        self.objects[key] = content
        self.delivered_puts.append((key, content))
        self._respond(key, is_lost=is_lost)

    def put_if(self, key: str, content: bytes, version: str | None) -> bool:
        is_lost = self._request("put", key)
        current = self.objects.get(key)
        if (None if current is None else _version(current)) != version:
            return False
        self.objects[key] = content
        self._respond(key, is_lost=is_lost)
        return True

    def put_large(self, key: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        self._request("start", key)
        self.open_uploads.add(key)
        content = bytearray()
        for part in parts:
            self._respond(key, is_lost=self._request("part", key))
            content += part
        assert len(content) == size
        is_lost = self._request("put", key)
        self.objects[key] = bytes(content)
        self.delivered_puts.append((key, bytes(content)))
        self.open_uploads.discard(key)
        self._respond(key, is_lost=is_lost)

    def delete(self, key: str) -> None:
        is_lost = self._request("delete", key)
        self.objects.pop(key, None)
        self._respond(key, is_lost=is_lost)

    def uploads(self, prefix: str) -> list[str]:
        self._respond(prefix, is_lost=self._request("list uploads", prefix))
        return sorted(key for key in self.open_uploads if key.startswith(prefix))

    def abort_uploads(self, key: str) -> None:
        self._respond(key, is_lost=self._request("abort", key))
        self.open_uploads.discard(key)


def _version(content: bytes) -> str:
    return str(zlib.crc32(content))
