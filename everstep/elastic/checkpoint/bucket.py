"""The interface of an object store's bucket that checkpoints and the record of a run use.

An object appears whole or not at all, and a listing shows every object that was put before. There is no
rename. A request whose response was lost may have been carried out; it may arrive late, or twice.
"""

from collections.abc import Iterable
from typing import Protocol


class BucketError(OSError):
    """The object store refused a request, or did not respond in time."""


class MissingObjectError(BucketError):
    """There is no object with this key."""


class Bucket(Protocol):
    """Objects below a prefix; keys are relative to it."""

    @property
    def url(self) -> str:
        """Address of the prefix, such as `s3://bucket/prefix`, for messages."""

    @property
    def responded_at(self) -> float:
        """Monotonic time in seconds at which the store last responded; 0 before the first response."""

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, in order."""

    def get(self, key: str) -> tuple[bytes, str]:
        """Return a small object and its version.

        Raises:
            MissingObjectError: the object does not exist.
        """

    def get_large(self, key: str, size: int) -> bytearray:
        """Return an object of this size.

        Raises:
            MissingObjectError: the object does not exist.
            ValueError: the object has another size.
        """

    def put(self, key: str, content: bytes) -> None:
        """Put a small object; replace an object with the same key."""

    def put_if(self, key: str, content: bytes, version: str | None) -> bool:
        """Put a small object if the existing object has this version; with None, if there is no object.

        Returns:
            False if the condition does not hold. After a lost response it may be False although the object
            was put: the caller reads the object.
        """

    def put_large(self, key: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Upload an object of this size in pieces; it does not exist before the upload is complete."""

    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""

    def uploads(self, prefix: str) -> list[str]:
        """Return the keys below a prefix that have an incomplete multipart upload."""

    def abort_uploads(self, key: str) -> None:
        """Abort the incomplete multipart uploads of a key."""
