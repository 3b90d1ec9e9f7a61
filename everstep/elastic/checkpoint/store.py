"""The interface of a store for the checkpoints of a run: a folder, or a bucket of an object store.

`restore` chooses among the checkpoints of a store, and `Writer` writes to one. The stores follow the same
rules by different means: a folder has rename and fsync, a bucket has whole objects and no rename.

1. A checkpoint is invisible to readers until it is committed in etcd.
2. All of its files or objects are durable before it is committed.
3. If its writer dies after the commit, the restoring worker makes it visible (`place_committed`).
4. A visible checkpoint is verified byte by byte before it is used.
"""

from collections.abc import Callable
from typing import Protocol

from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.checkpoint.state_format import Tensors


class StoredCheckpoint(Protocol):
    """A verified checkpoint."""

    @property
    def location(self) -> str:
        """Its path or address, for messages."""

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""

    def load(self) -> Tensors:
        """Return its tensors, on the CPU."""


class CheckpointStore(Protocol):
    """A store of one run's checkpoints."""

    @property
    def responded_at(self) -> float:
        """Monotonic time in seconds at which the store last responded; 0 before the first response."""

    def location(self, step: int) -> str:
        """Return the path or address of a step's checkpoint, for messages."""

    def names(self) -> list[str]:
        """Return the names of the visible checkpoints, the newest first; each begins with its step."""

    def check(self, name: str) -> StoredCheckpoint:
        """Verify every byte of a checkpoint, and return it.

        Raises:
            ValueError: the checkpoint is torn, damaged, misnamed or of another format; the message has the details.
            OSError: the object store does not respond.
            EverstepError: the user must correct the access to the object store.
        """

    def write(
        self, state: Tensors, manifest: Manifest, *, commit: Callable[[Manifest], bool], keep: int
    ) -> int:
        """Write one checkpoint durably; remove all but the `keep` newest; return its size in bytes.

        Raises:
            FencedError: `commit` has refused it.
            OSError: the store failed; older checkpoints remain.
            EverstepError: a tensor has a type that cannot be saved, or the user must correct the access to the store.
        """

    def place_committed(self, generation: int, step: int) -> None:
        """Make a committed checkpoint visible if its writer died after the commit."""

    def hide(self, name: str) -> None:
        """Make a checkpoint invisible permanently: its loss was accepted."""
