"""Readers of a run's files: from their folder, or from a pod that has the volume mounted.

On the twin the volume is a folder of this machine, so a run can be read while no worker runs. On other clusters the
files are read through the API server: from a running worker, or from a pod that a command starts.
"""

import heapq
import math
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from everstep.catalog.names import MOUNT
from everstep.cli.kubernetes_client import KubernetesClient, PodCommandError
from everstep.cli.report.fold import RECENT_STEPS, RunFold
from everstep.cli.report.reader_pod import RunUnreadableError, reader_pod
from everstep.cli.report.run_record import (
    MachineEvent,
    RunRecord,
    parse_events,
    parse_moves,
    parse_result,
)
from everstep.errors import EverstepError

_LISTING_SCRIPT = """
for file in {run}/journal/*.jsonl {run}/result.json; do
  [ -f "$file" ] || continue
  case "${{file##*/}}" in
{offsets}
    *) from=1 ;;
  esac
  printf '\\n\\036%s\\n' "${{file##*/}}" && tail -c "+$from" "$file"
done
exit 0
"""
"""Script that prints the new content of each file after a line that begins with the record separator, which JSON
escapes."""

CHUNK_BYTES = 4 * 2**20

COPY_ATTEMPTS = 5
"""Number of attempts to copy a run whose workers still write and remove checkpoints."""

KEPT_EVENTS = "events.jsonl"
"""File with the machines' events in a copy of a run."""

KEPT_MOVES = "moves.json"
"""File with the moves of the job in a copy of a run."""


class RunReader(Protocol):
    """Reader of a run, which can be called repeatedly."""

    @property
    def has_read(self) -> bool:
        """False if the files of the run could not be read yet, so that an empty record means nothing."""

    def read(self) -> RunRecord:
        """Return the run so far."""

    def readable(self, *, ended: bool = False) -> AbstractContextManager[None]:
        """Make the files readable within the block, even if no worker runs; this may start a pod.

        Args:
            ended: True if the workers have ended or are about to, so that none of them can be used.

        Raises:
            RunUnreadableError: no worker runs, and no pod could be started.
        """


@dataclass
class FolderReader:
    """Reader of a run in a folder of this machine."""

    run: Path
    events: Path
    recent_steps: int = RECENT_STEPS  # kept individually; older steps are folded into blocks
    moves: Path | None = None  # by default the file in a copy of a run
    _fold: RunFold = field(init=False)
    _offsets: dict[Path, tuple[int, int]] = field(default_factory=dict)  # inode, bytes parsed

    def __post_init__(self) -> None:
        self._fold = RunFold(self.recent_steps)

    @property
    def has_read(self) -> bool:
        """Always true: the folder can be read."""
        return True

    def readable(self, *, ended: bool = False) -> AbstractContextManager[None]:
        """Do nothing: the folder can be read."""
        del ended
        return nullcontext()

    def read(self) -> RunRecord:
        """Return the run so far; parse only new lines, and treat missing files as empty."""
        events = parse_events(_text(self.events))
        paths = sorted(self.run.glob("journal/*.jsonl"))
        if any(self._is_replaced(path) for path in self._offsets):  # another run of this name
            self._fold, self._offsets = RunFold(self.recent_steps), {}
        self._add_new_lines(paths, events)
        record = self._fold.record(events, dict(parse_result(_text(self.run / "result.json"))))
        return with_moves(record, self.moves or self.run / KEPT_MOVES)

    def _add_new_lines(self, paths: Iterable[Path], events: Sequence[MachineEvent]) -> None:
        """Add the new lines of all journals, the oldest first, so that copies of one step are added close together."""
        unread = [
            (-math.inf, number, path, self._new_lines(path)) for number, path in enumerate(paths)
        ]
        while unread:
            added_until, number, path, chunks = heapq.heappop(unread)
            if (lines := next(chunks, None)) is None:
                continue
            complete_until = unread[0][0] if unread else math.inf
            newest_at = self._fold.add(path.stem, lines, events, complete_until)
            heapq.heappush(unread, (max(added_until, newest_at), number, path, chunks))

    def _is_replaced(self, path: Path) -> bool:
        inode, offset = self._offsets[path]
        try:
            stat = path.stat()
        except FileNotFoundError:
            return True
        return stat.st_ino != inode or stat.st_size < offset

    def _new_lines(self, path: Path) -> Iterator[str]:
        """Yield the new complete lines of a file, in chunks."""
        try:
            with path.open("rb") as file:
                inode, offset = os.fstat(file.fileno()).st_ino, self._offsets.get(path, (0, 0))[1]
                file.seek(offset)
                incomplete_line = b""
                while chunk := file.read(CHUNK_BYTES):
                    complete_lines, newline, incomplete_line = (incomplete_line + chunk).rpartition(
                        b"\n"
                    )
                    offset += len(complete_lines) + len(newline)
                    self._offsets[path] = (inode, offset)
                    yield complete_lines.decode(errors="replace")
        except FileNotFoundError:
            return


def with_moves(record: RunRecord, path: Path) -> RunRecord:
    """Return a record with the moves that commands have observed, from their file."""
    moves = parse_moves(_text(path))
    return replace(record, moves=moves) if moves else record


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


@dataclass
class PodReader:
    """Reader of a run through the API server, from one of its running workers or from a pod of its own."""

    cluster: KubernetesClient
    job: str
    events: Path
    recent_steps: int = RECENT_STEPS
    moves: Path | None = None
    _fold: RunFold = field(init=False)
    _offsets: dict[str, int] = field(default_factory=dict)  # bytes parsed of each journal
    _result: dict[str, Any] = field(default_factory=dict)
    _pod: str | None = None  # pod of its own, within `readable`
    _has_read: bool = False

    def __post_init__(self) -> None:
        self._fold = RunFold(self.recent_steps)

    @property
    def has_read(self) -> bool:
        """False if no worker has run since this reader exists."""
        return self._has_read

    @contextmanager
    def readable(self, *, ended: bool = False) -> Iterator[None]:
        """Make the files readable within the block: start a pod that reads them if no worker runs or `ended` is true.

        Raises:
            RunUnreadableError: the pod cannot be created or does not start in time.
        """
        if not ended and self.cluster.running_worker(self.job):
            yield
            return
        with reader_pod(self.cluster, self.job) as pod:
            self._pod = pod
            try:
                yield
            finally:
                self._pod = None

    def read(self) -> RunRecord:
        """Return the run so far; without a running worker, its state at the last read.

        Raises:
            RunUnreadableError: a pod of its own does not run the command.
        """
        events = parse_events(_text(self.events))
        if pod := self._pod or self.cluster.running_worker(self.job):
            try:
                self._read_from(pod, events)
            except PodCommandError as error:  # the pod has ended
                if self._pod:
                    raise RunUnreadableError(error.problem, "Run the command again.") from None
            else:
                self._has_read = True
        record = self._fold.record(events, self._result)
        return with_moves(record, self.moves) if self.moves else record

    def _read_from(self, pod: str, events: Sequence[MachineEvent]) -> None:
        run = f"{MOUNT}/runs/{self.job}"
        files = split_listing(self.cluster.shell(pod, listing(run, self._offsets)))
        if any(name not in files for name in self._offsets):  # another run of this name
            self._fold, self._offsets = RunFold(self.recent_steps), {}
            files = split_listing(self.cluster.shell(pod, listing(run, {})))
        self._result = dict(parse_result(files.pop("result.json", "")))
        for number, (name, text) in enumerate(files.items(), 1):
            complete_lines, newline, _ = text.rpartition("\n")
            self._offsets[name] = self._offsets.get(name, 0) + len(
                (complete_lines + newline).encode()
            )
            complete_until = math.inf if number == len(files) else -math.inf
            self._fold.add(name.removesuffix(".jsonl"), complete_lines, events, complete_until)


def listing(run: str, parsed_bytes: Mapping[str, int]) -> str:
    """Return the shell script that prints the new content of a run's files.

    A file that is shorter than its parsed part belongs to another run of this name and is left out.

    Args:
        run: folder of the run in the pod.
        parsed_bytes: length of the parsed part of each journal, by file name.
    """
    offsets = "\n".join(
        f'    {shlex.quote(name)}) from={count + 1}; [ $(wc -c < "$file") -ge {count} ] || continue ;;'
        for name, count in parsed_bytes.items()
    )
    return _LISTING_SCRIPT.format(run=run, offsets=offsets)


def split_listing(listing: str) -> dict[str, str]:
    """Return the files of a listing by name."""
    files = {}
    parts = listing.split("\n\036")[1:]  # the newline before a separator belongs to it
    for part in parts:
        name, _, text = part.partition("\n")
        files[name.strip()] = text
    return files


def copy_result(
    run: Path, destination: Path, events: Path | None = None, moves: Path | None = None
) -> None:
    """Copy a run's checkpoints, journals and result out of the volume, together with its machine events and moves.

    Raises:
        EverstepError: the run does not exist, or the destination exists or cannot be written.
    """
    if not run.is_dir():
        raise EverstepError(
            f"there is no run to keep: {run} does not exist", "Run the command without --keep-run."
        )
    if destination.exists():
        raise EverstepError(
            f"{destination} already exists", "Name a folder that does not exist yet."
        )
    temporary = destination.with_name(f".{destination.name}.partial")
    try:
        _copy_tree(run, temporary)
        if events and events.exists():
            shutil.copyfile(events, temporary / KEPT_EVENTS)
        if moves and moves.exists():
            shutil.copyfile(moves, temporary / KEPT_MOVES)
        temporary.rename(destination)
    except OSError as error:
        raise EverstepError(
            f"the run cannot be copied to {destination}: {error}",
            "Choose a folder on a disk with enough space, which you may write to.",
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy_tree(run: Path, destination: Path) -> None:
    """Copy a run to a folder, replacing it; start again if a worker removed a checkpoint meanwhile."""
    for attempt in range(1, COPY_ATTEMPTS + 1):
        shutil.rmtree(destination, ignore_errors=True)
        try:
            shutil.copytree(run, destination)
        except shutil.Error as error:
            is_removed = not any(Path(source).exists() for source, _, _ in error.args[0])
            if attempt == COPY_ATTEMPTS or not is_removed:
                raise
        else:
            return
