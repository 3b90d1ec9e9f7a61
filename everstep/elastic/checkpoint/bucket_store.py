"""Checkpoints in a bucket of an object store, which has no rename.

    checkpoints/data/NAME/state.safetensors   the state
    checkpoints/data/NAME/manifest.json       its manifest, put last
    checkpoints/committed/NAME.json           its manifest again, put after the commit: makes the checkpoint visible
    checkpoints/hidden/NAME.json              a checkpoint whose loss was accepted

NAME is the step, the generation and a random suffix. So no two writers put the same key, and
no object is ever replaced by another: a request that arrives late, or twice, changes nothing. A writer
that dies leaves an incomplete upload, a state without a manifest, or both without a commit; readers see
none of them, and a later checkpoint removes them.

Why not one key for each step and a conditional put: after a lost response a writer could not tell its
own object from another's, and a damaged object would block its key.
"""

import contextlib
import logging
import secrets
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from everstep.elastic.checkpoint.bucket import Bucket, MissingObjectError
from everstep.elastic.checkpoint.files import (
    MANIFEST_FILE,
    STATE_FILE,
    Manifest,
    fenced_error,
    folder_name,
    manifest_content,
    newest_first,
    parse_manifest,
    step_of,
)
from everstep.elastic.checkpoint.state_format import EncodedState, Tensors, decode
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

DATA, COMMITTED, HIDDEN = "checkpoints/data/", "checkpoints/committed/", "checkpoints/hidden/"


@dataclass(frozen=True)
class BucketCheckpoint:
    """A verified checkpoint, whose state is in memory."""

    location: str
    manifest: Manifest
    content: bytearray

    def load(self) -> Tensors:
        """Return its tensors, on the CPU."""
        return decode(self.content)


class BucketStore:
    """A bucket with the checkpoints of one run.

    Args:
        bucket: bucket, below the prefix of the run.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @property
    def responded_at(self) -> float:
        """Monotonic time in seconds at which the object store last responded; 0 before the first response."""
        return self._bucket.responded_at

    def location(self, step: int) -> str:
        """Return the address of a step's checkpoint."""
        return f"{self._bucket.url}/{COMMITTED}{folder_name(step)}"

    def names(self) -> list[str]:
        """Return the names of the visible checkpoints, the newest first."""
        visible = set(self._names_in(COMMITTED)) - set(self._names_in(HIDDEN))
        return newest_first(name for name in visible if step_of(name) >= 0)

    def check(self, name: str) -> BucketCheckpoint:
        """Read and verify every byte of a checkpoint, and return it.

        Raises:
            ValueError: the checkpoint is torn, damaged, misnamed or of another format; the message has the details.
            OSError: the object store does not respond.
            EverstepError: the user must correct the access to the object store.
        """
        try:
            manifest = parse_manifest(self._bucket.get(_committed_key(name))[0])
            if not name.startswith(_prefix(manifest.generation, manifest.step)):
                raise ValueError(f"it is not named after its step, {manifest.step}")
            content = self._bucket.get_large(_state_key(name), manifest.bytes)
        except MissingObjectError as error:
            raise ValueError(f"a part of it is missing: {error}") from error
        if zlib.crc32(content) != manifest.checksum:
            raise ValueError("its state is damaged: the checksum differs")
        return BucketCheckpoint(f"{self._bucket.url}/{DATA}{name}", manifest, content)

    def write(
        self, state: Tensors, manifest: Manifest, *, commit: Callable[[Manifest], bool], keep: int
    ) -> int:
        """Write one checkpoint; delete all but the `keep` newest; return its size in bytes.

        Raises:
            FencedError: `commit` has refused it. Its objects stay until a later checkpoint: the response to a
                successful commit may have been lost.
            OSError: the object store failed; older checkpoints remain.
            EverstepError: a tensor has a type that cannot be saved, or the user must correct the access to the store.
        """
        name = _prefix(manifest.generation, manifest.step) + secrets.token_hex(4)
        try:
            size, content = self._put(name, state, manifest)
        except OSError:
            with contextlib.suppress(OSError):  # a later checkpoint tries again
                self._delete(name)
            raise
        if not commit(manifest):
            raise fenced_error(manifest)
        self._bucket.put(_committed_key(name), content)
        try:
            self._retire(manifest.step, keep)
        except (OSError, EverstepError) as error:  # a later checkpoint tries again
            log.warning("old checkpoints cannot be deleted: %s", error)
        return size

    def _put(self, name: str, state: Tensors, manifest: Manifest) -> tuple[int, bytes]:
        """Write a state, then its manifest; return the state's size and the manifest's content."""
        encoded, checksum = EncodedState(state), 0

        def parts() -> Iterator[bytes | memoryview]:
            nonlocal checksum
            for part in encoded:
                checksum = zlib.crc32(part, checksum)
                yield part

        self._bucket.put_large(_state_key(name), parts(), encoded.size)
        content = manifest_content(manifest, encoded.size, checksum)
        self._bucket.put(_manifest_key(name), content)
        return encoded.size, content

    def place_committed(self, generation: int, step: int) -> None:
        """Make the committed checkpoint visible if its writer died after the commit."""
        prefix = _prefix(generation, step)
        published_names = {*self._names_in(COMMITTED), *self._names_in(HIDDEN)}
        for key in self._bucket.keys(DATA + prefix):
            name = _name_of(key)
            if key == _manifest_key(name) and name not in published_names:
                self._bucket.put(_committed_key(name), self._bucket.get(key)[0])

    def hide(self, name: str) -> None:
        """Make a checkpoint invisible permanently, even if a late request puts it again."""
        self._bucket.put(f"{HIDDEN}{name}.json", b"{}")

    def _retire(self, step: int, keep: int) -> None:
        """Delete all but the newest `keep` checkpoints, and the objects of dead writers.

        Nothing newer than `step` is deleted.
        """
        names = self.names()
        for name in [name for name in names if step_of(name) <= step][keep:]:
            self._bucket.delete(_committed_key(name))
            names.remove(name)
        data_names = dict.fromkeys(map(_name_of, self._bucket.keys(DATA)))
        for name in data_names:
            if name not in names and step_of(name) < step:
                self._delete(name)
        for key in self._bucket.uploads(DATA):
            if step_of(_name_of(key)) < step:
                self._bucket.abort_uploads(key)

    def _delete(self, name: str) -> None:
        # The manifest first: a half-deleted checkpoint without it never becomes visible.
        self._bucket.delete(_manifest_key(name))
        self._bucket.delete(_state_key(name))

    def _names_in(self, folder: str) -> list[str]:
        keys = self._bucket.keys(folder)
        return [key.removeprefix(folder).removesuffix(".json") for key in keys]


def _prefix(generation: int, step: int) -> str:
    """Return the prefix of a name; names of one step sort by generation."""
    return f"{folder_name(step)}-g{generation:08d}-"


def _name_of(key: str) -> str:
    return key.removeprefix(DATA).partition("/")[0]


def _state_key(name: str) -> str:
    return f"{DATA}{name}/{STATE_FILE}"


def _manifest_key(name: str) -> str:
    return f"{DATA}{name}/{MANIFEST_FILE}"


def _committed_key(name: str) -> str:
    return f"{COMMITTED}{name}.json"
