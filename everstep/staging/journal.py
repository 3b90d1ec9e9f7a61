"""State of a staging run: the complete files, and the lock of the process that copies.

    records   complete files, sorted by name; replaced as a whole
    journal   files completed since the records were written, in order of completion; appended and synced in groups
    partial/  files that are not complete

A file is recorded after it is synced and renamed, so that a recorded file is complete; a file that is
complete but not recorded, because the process was killed in between, is compared or copied again. Each start checks
that the recorded files are still there, so their folders do not have to be synced.
"""

import errno
import fcntl
import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from everstep.errors import EverstepError
from everstep.staging import spool
from everstep.staging.entry import STATE_FOLDER, Record


class StagingState:
    """The folder with the state of one destination."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = folder / "records"
        self.journal = folder / "journal"
        self.listing = folder / "listing"
        self.plan = folder / "plan"
        self.partial = folder / "partial"

    def compact(self) -> None:
        """Merge the journal into the records. If the process is killed, the next merge has the same result."""
        if not self.journal.exists():
            return
        sorted_journal = self.folder / "journal.sorted"
        spool.write_sorted(sorted_journal, spool.read(self.journal, Record), Record)
        merged = heapq.merge(
            spool.read(self.records, Record), spool.read(sorted_journal, Record), key=spool.key_of
        )
        spool.write(self.records, spool.last_of_each(merged))
        self.journal.unlink()
        sorted_journal.unlink()

    def append(self, records: Sequence[Record]) -> None:
        """Record complete files and sync the journal."""
        if not records:
            return
        with self.journal.open("a") as file:
            file.writelines(map(spool.line_of, records))
            spool.sync(file)


@contextmanager
def locked_state(destination: Path) -> Iterator[StagingState]:
    """Yield the state of a destination; no other process uses it until the end of the block.

    Raises:
        EverstepError: another process uses it.
    """
    destination.mkdir(parents=True, exist_ok=True)
    state = StagingState(state_folder(destination))
    state.partial.mkdir(parents=True, exist_ok=True)
    with (state.folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EverstepError(
                f"another process stages data to {destination}", "Wait for it, or stop it."
            ) from None
        yield state


def state_folder(destination: Path) -> Path:
    """Return the folder of the state: a sibling of the destination, otherwise a subfolder.

    It is a sibling because some programs read each subfolder of a data set as a class. It is a subfolder if the
    destination is the top of a mounted volume, because files cannot be renamed from one mount to another, or if its
    parent folder is not writable.
    """
    nested = destination / STATE_FOLDER
    sibling = destination.parent / f".{destination.name}{STATE_FOLDER}"
    return nested if nested.exists() or not _can_rename(sibling, destination) else sibling


def _can_rename(folder: Path, destination: Path) -> bool:
    """Return True if files can be renamed from a folder to the destination; create the folder if so."""
    existed = folder.exists()
    probe = folder / f"probe.{os.getpid()}"
    target = destination / f".{probe.name}"
    try:
        folder.mkdir(exist_ok=True)
        probe.touch()
        probe.rename(target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        if folder.exists():
            probe.unlink(missing_ok=True)
            if not existed:
                folder.rmdir()
        return False
    target.unlink()
    return True
