"""A staging run: list, plan, check the volume, copy in parallel, write the manifest.

It can be killed at any point. The next run lists the source again and copies, or compares by checksum, files that are
not recorded as complete, that have changed since, or that are no longer at the destination.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from everstep.catalog.plurals import amount
from everstep.errors import EverstepError
from everstep.staging import manifest, spool
from everstep.staging.content import FileError, Source
from everstep.staging.copier import MAX_FAILURES, Copier, CopyProgress
from everstep.staging.copying import discard_other_partials
from everstep.staging.entry import MANIFEST, Entry, Record
from everstep.staging.journal import StagingState, locked_state
from everstep.staging.plan import Action, Tally, Task, Volume, check_volume, join, tasks
from everstep.staging.totals import Totals

FILES_PER_REPORT = 10_000
"""Number of files after which the listing reports its progress."""

MAX_NAMED_FAILURES = 10


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a staging run.

    Attributes:
        workers: number of files copied at a time.
        verify: whether files that are complete are read again and compared with their SHA-256.
        rename: function that maps the listed files to files at the destination; None keeps all names.
        removes: whether files that an earlier run has copied, and that the source no longer has, are removed.
    """

    workers: int = 16
    verify: bool = False
    rename: Callable[[Iterator[Entry]], Iterator[Entry]] | None = None
    removes: bool = False


@dataclass(frozen=True)
class StagingPlan:
    """Work of a run: files by action.

    Attributes:
        listed: files of the source.
        to_copy: files to copy.
        to_check: files at the destination whose content is compared first.
        complete: files that are complete already.
        free_bytes: free space of the destination, plus the space that incomplete files occupy.
        reasons: number of files by reason.
    """

    listed: Totals
    to_copy: Totals
    to_check: Totals
    complete: Totals
    free_bytes: int
    reasons: dict[str, int]


class Observer:
    """Receiver of events; this one ignores them."""

    def report_listing(self, files: int) -> None:
        """Receive the number of files listed so far."""

    def report_plan(self, plan: StagingPlan) -> None:
        """Receive the plan, which fits the volume."""

    def report_progress(self, progress: CopyProgress) -> None:
        """Receive the progress: about every second, after each group of complete files, and at the end."""


def plan(source: Source, destination: Path, options: Options, observer: Observer) -> StagingPlan:
    """Return the plan of a run.

    Raises:
        EverstepError: the source cannot be listed, the volume is too small, or another process stages data to the
            destination.
    """
    with locked_state(destination) as state:
        listed = _list(source, state, options, observer)
        return _plan(source, listed, destination, state, options)


def stage(source: Source, destination: Path, options: Options, observer: Observer) -> StagingPlan:
    """Copy a source to a destination; continue where an earlier run ended.

    Raises:
        EverstepError: the source or one of its files cannot be copied, the volume is too small, or another process
            stages data to the destination.
    """
    with locked_state(destination) as state:
        listed = _list(source, state, options, observer)
        if options.removes:
            _remove_surplus(destination, state)
        run_plan = _plan(source, listed, destination, state, options)
        observer.report_plan(run_plan)
        copier = Copier(source, destination, state)
        try:
            with closing(copier.run(spool.read(state.plan, Task), options.workers)) as run:
                for progress in run:
                    observer.report_progress(progress)
        except OSError as error:
            raise interrupted_copy(error) from None
        state.compact()
        if copier.progress.failures:
            raise copy_failures(copier.progress.failures)
        _finish(destination, state)
        return run_plan


def _list(source: Source, state: StagingState, options: Options, observer: Observer) -> Totals:
    """Write the sorted list of the source's files; return their number and bytes."""
    state.compact()
    entries = _reported(source.entries(), observer)
    renamed = options.rename(entries) if options.rename else entries
    listed = spool.write_sorted(state.listing, renamed, Entry)
    if not listed.files:
        raise EverstepError(f"{source.name} has no files", "Check the path or the prefix.")
    return listed


def _remove_surplus(destination: Path, state: StagingState) -> None:
    """Remove copied files that the source no longer has, and the folders that are empty then.

    Their records are dropped at the end of the run: after a kill, the next run removes the remaining files.
    """
    matched = join(spool.read(state.records, Record), spool.read(state.listing, Entry))
    for record, entry in matched:
        if entry is not None:
            continue
        path = destination / record.name
        # A run that was interrupted may have put a folder there, or a file where its folder was.
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            path.unlink()
        for folder in path.relative_to(destination).parents[:-1]:
            with suppress(OSError):  # it is not empty, or was removed before
                (destination / folder).rmdir()


def _plan(
    source: Source, listed: Totals, destination: Path, state: StagingState, options: Options
) -> StagingPlan:
    """Write the list of tasks, check that the volume can hold the copy, and return the plan."""
    volume = volume_of(destination, state)
    tally = Tally(volume.block_bytes)
    all_tasks = tasks(
        spool.read(state.listing, Entry),
        spool.read(state.records, Record),
        lambda name: size_of(f"{destination}/{name}"),  # a Path takes three times as long
        source.name,
        verify=options.verify,
    )
    spool.write(
        state.plan, _unfinished_tasks(discard_other_partials(all_tasks, state.partial), tally)
    )
    check_volume(tally.required(options.workers), volume, str(destination))
    return StagingPlan(
        listed=listed,
        to_copy=tally.totals(Action.COPY),
        to_check=tally.totals(Action.CHECK),
        complete=tally.totals(Action.KEEP),
        free_bytes=volume.free_bytes,
        reasons=dict(tally.reasons),
    )


def _reported(entries: Iterator[Entry], observer: Observer) -> Iterator[Entry]:
    for number, entry in enumerate(entries):
        if number % FILES_PER_REPORT == 0:
            observer.report_listing(number)
        yield entry


def _unfinished_tasks(all_tasks: Iterator[Task], tally: Tally) -> Iterator[Task]:
    for task in all_tasks:
        tally.add(task)
        if task.action != Action.KEEP:
            yield task


def _finish(destination: Path, state: StagingState) -> None:
    """Drop the records of files that the source no longer has, write the manifest, and remove incomplete files."""
    listing = spool.read(state.listing, Entry)
    matched = join(listing, spool.read(state.records, Record))
    spool.write(state.records, (record for _, record in matched if record))
    lines = spool.read(state.records, Record)
    manifest.write(destination / MANIFEST, state.folder / MANIFEST, lines)
    shutil.rmtree(state.partial)
    state.listing.unlink()
    state.plan.unlink()


def copy_failures(failures: list[FileError]) -> EverstepError:
    """Return the error of a run in which files could not be copied; it names the first files."""
    problems = "\n".join(sorted(error.problem for error in failures)[:MAX_NAMED_FAILURES])
    remaining = len(failures) - MAX_NAMED_FAILURES
    summary = f"\nand {remaining} more" if remaining > 0 else ""
    outcome = "the others are complete" if len(failures) < MAX_FAILURES else "then the copy stopped"
    fixes = sorted({error.fix for error in failures})
    return EverstepError(
        f"{amount(len(failures), 'file')} could not be copied; {outcome}:\n{problems}{summary}",
        "\n".join(fixes),
    )


def size_of(path: str | Path) -> int | None:
    """Return the size of a regular file; None if it is missing or not a regular file."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def volume_of(destination: Path, state: StagingState) -> Volume:
    """Return the space for the copy: free space plus the space that incomplete files occupy."""
    status = os.statvfs(destination)
    free_files = status.f_favail if status.f_files else None
    incomplete = sum(size_of(path) or 0 for path in state.partial.iterdir())
    free_bytes = status.f_bavail * status.f_frsize + incomplete
    return Volume(free_bytes, status.f_frsize, free_files)


def interrupted_copy(error: OSError) -> EverstepError:
    """Return the error of a copy that stopped because the volume or the source failed."""
    prefix = f"{error.filename}: " if error.filename else ""
    return EverstepError(
        f"the copy stopped: {prefix}{error.strerror or error}",
        "Completed files are recorded: correct the cause and run the same command again.",
    )
