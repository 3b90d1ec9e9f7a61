"""The results of agreements among all workers, shared by the workers of one node.

Workers with different shards agree on each step by one more all-reduce (`ShardedGroup.agree`). If a peer is lost in
exactly this sum, one worker of a node may receive the result and another one not. The first applies the step; the
other one cannot do so later, since the sums of its shard are gone by then, and the node would have no state. The same
holds for the end of a state copy, which counts as progress. So a worker writes each result into its slot of a file
before it uses it, and a worker that does not receive a result looks for it in the slots of the others. It waits until
each of them has received it, or reports that it will not.

A result that one worker has received is valid for all: the sum contains every worker's share, and a worker takes part
in it only after it has received the sums of its shard.

Why a file: the groups of a generation are aborted together, and a message to the agent for each step would cost more.
"""

import contextlib
import os
import stat
import struct
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from everstep.elastic.recovery.worker import Votes
from everstep.errors import EverstepError

RESULT_NUMBERS = len(fields(Votes))
WAIT_SECONDS = 60.0
"""Longest wait for the others. A worker that neither ends nor leaves the group is replaced by its agent before."""

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.001, 0.05
READ_ATTEMPTS = 100  # a slot that is being written may be torn
_FIELDS = struct.Struct(f"<qqq?{RESULT_NUMBERS}d")
_CHECKSUM = struct.Struct("<I")
SLOT_BYTES = _FIELDS.size + _CHECKSUM.size


@dataclass(frozen=True)
class Slot:
    """What one worker has written.

    Attributes:
        process: its process ID.
        generation: its generation.
        number: number of results that it has received in this generation.
        has_left: whether it receives no more results in this generation.
        result: the last result.
    """

    process: int
    generation: int = 0
    number: int = 0
    has_left: bool = False
    result: tuple[float, ...] = (0.0,) * RESULT_NUMBERS

    def pack(self) -> bytes:
        """Return the slot as `SLOT_BYTES` bytes."""
        content = _FIELDS.pack(
            self.process, self.generation, self.number, self.has_left, *self.result
        )
        return content + _CHECKSUM.pack(zlib.crc32(content))

    @classmethod
    def unpack(cls, data: bytes) -> "Slot | None":
        """Return the slot in these bytes; None if they are not a complete slot."""
        content, checksum = data[: _FIELDS.size], data[_FIELDS.size :]
        if len(data) != SLOT_BYTES or _CHECKSUM.pack(zlib.crc32(content)) != checksum:
            return None
        process, generation, number, has_left, *result = _FIELDS.unpack(content)
        return cls(process, generation, number, has_left, tuple(result))


class NodeAgreements:
    """One worker's access to the file.

    Args:
        path: the file, which the first worker creates.
        workers: number of workers of the node.
        rank: local rank of this worker.

    Raises:
        EverstepError: the file cannot be opened, or belongs to another user.
    """

    def __init__(self, path: Path, workers: int, rank: int) -> None:
        self._others = [other for other in range(workers) if other != rank]
        self._rank = rank
        self._file = _open_private(path)
        try:
            self._write(Slot(os.getpid()))  # later writes need no more space
        except OSError as error:
            raise _cannot_use(path, error.strerror or str(error)) from None

    def begin(self, generation: int) -> None:
        """Record that this worker takes part in a generation; called before any worker can agree on something in it."""
        self._write(Slot(os.getpid(), generation))

    def record(self, result: Sequence[float]) -> None:
        """Record the result of the next agreement, before it is used."""
        self._write(replace(self._own, number=self._own.number + 1, result=tuple(result)))

    def leave(self) -> None:
        """Record that this worker receives no more results in this generation."""
        self._write(replace(self._own, has_left=True))

    def find_result(self) -> tuple[float, ...] | None:
        """Return the result of the next agreement if another worker of the node has received it.

        This worker receives no more results in this generation.
        """
        self.leave()
        deadline, pause = time.monotonic() + WAIT_SECONDS, FIRST_POLL_SECONDS
        while True:
            slots = [self._read(other) for other in self._others]
            for slot in slots:
                if slot and self._has_result(slot):
                    return slot.result
            if not any(map(self._may_receive_result, slots)) or time.monotonic() >= deadline:
                return None
            time.sleep(pause)
            pause = min(2 * pause, MAX_POLL_SECONDS)

    def _has_result(self, slot: Slot) -> bool:
        return slot.generation == self._own.generation and slot.number > self._own.number

    def _may_receive_result(self, slot: Slot | None) -> bool:
        return (
            slot is not None
            and slot.generation == self._own.generation
            and not slot.has_left
            and _is_alive(slot.process)
        )

    def _write(self, slot: Slot) -> None:
        self._own = slot
        os.pwrite(self._file, slot.pack(), self._rank * SLOT_BYTES)

    def _read(self, rank: int) -> Slot | None:
        """Return a worker's slot; None if it has written none."""
        for _ in range(READ_ATTEMPTS):
            if slot := Slot.unpack(os.pread(self._file, SLOT_BYTES, rank * SLOT_BYTES)):
                return slot
        return None


def _open_private(path: Path) -> int:
    """Open a file that only this user can access; create it if it is missing."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _cannot_use(path, error.strerror or str(error)) from None
    status = os.fstat(file)
    if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise _cannot_use(path, "it belongs to another user")
    return file


def _cannot_use(path: Path, reason: str) -> EverstepError:
    return EverstepError(
        f"the file {path}, which the workers of this node share, cannot be used: {reason}",
        "Remove it, or set TMPDIR to another folder.",
    )


def _is_alive(process: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
