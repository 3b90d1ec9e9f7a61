"""Checkpoints in a folder of a file system."""

from collections.abc import Callable
from pathlib import Path

from everstep.elastic.checkpoint import files
from everstep.elastic.checkpoint.disk import DISK, Disk
from everstep.elastic.checkpoint.files import (
    Checkpoint,
    Manifest,
    folder_name,
    newest_first,
    step_of,
)
from everstep.elastic.checkpoint.state_format import EncodedState, Tensors


class FolderStore:
    """A folder with a folder for each checkpoint; `files` has the format and the order of operations.

    Args:
        folder: folder of the checkpoints.
        disk: file system of the folder.
    """

    def __init__(self, folder: Path, disk: Disk = DISK) -> None:
        self._folder, self._disk = folder, disk

    @property
    def responded_at(self) -> float:
        """Monotonic time in seconds at which the file system last responded; 0 before the first response."""
        return self._disk.responded_at

    def location(self, step: int) -> str:
        """Return the path of a step's checkpoint."""
        return str(self._folder / folder_name(step))

    def names(self) -> list[str]:
        """Return the names of the checkpoints, the newest first."""
        names = self._disk.names(self._folder)
        return newest_first(name for name in names if name.startswith("step-"))

    def check(self, name: str) -> Checkpoint:
        """Verify every byte of a checkpoint, and return it.

        Raises:
            ValueError: the checkpoint is torn, damaged, misnamed or of another format; the message has the details.
        """
        return files.check(self._folder / name, self._disk)

    def write(
        self, state: Tensors, manifest: Manifest, *, commit: Callable[[Manifest], bool], keep: int
    ) -> int:
        """Write one checkpoint durably; remove all but the `keep` newest; return its size in bytes.

        Raises:
            FencedError: `commit` has refused it.
            OSError: the disk is full or gone; older checkpoints remain.
            EverstepError: a tensor has a type that cannot be saved.
        """
        files.write(self._folder, state, manifest, commit=commit, keep=keep, disk=self._disk)
        return EncodedState(state).size

    def place_committed(self, generation: int, step: int) -> None:
        """Rename the committed checkpoint if its writer died before the rename."""
        files.place_committed(self._folder, generation, step, self._disk)

    def hide(self, name: str) -> None:
        """Rename a checkpoint, so that no run continues from it again."""
        staging = files.new_staging_folder(self._folder, max(0, step_of(name)))
        self._disk.rename(self._folder / name, staging)
        self._disk.sync_folder(self._folder)
