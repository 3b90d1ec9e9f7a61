"""Read-ahead: processes that decode the images of the next steps while this process computes.

The readers live as long as their worker. An image is identified by (part, sample, random word), never by a
rank or a step: when the group changes, images that are still needed are kept, the others are discarded,
and the processes continue. The result does not depend on the process that reads an image.

torch's DataLoader does not fit: its sampler is fixed when an epoch begins, a new sampler ends its
processes, and a change of the group would discard their images. Threads in this process would compete
with the training for the interpreter lock.
"""

import heapq
import logging
import mmap
import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from everstep.elastic.data_order.sampler import Ids
from everstep.errors import EverstepError
from trainer.augment import Images, random_words
from trainer.data.dataset import PARTS, BatchRequest, Dataset, Labels
from trainer.data.images import ImageDataset
from trainer.data.protocol import ANSWER, GOOD, MAX_SLOTS, TASK, ReaderArguments, from_slot

log = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-m", "trainer.data.reader")
MAX_BYTES = 512 << 20  # shared memory; only used pages are allocated
REFILL = 32  # images between two checks for free slots
MAX_CRASHES = 3  # consecutive reader crashes before the current image is reported

Key = tuple[int, int, int]  # part, sample, random word: they determine an image


@dataclass
class _Reader:
    """A reader process and its pending tasks: slots with their keys, in order."""

    process: "subprocess.Popen[bytes]"
    pending: dict[int, Key] = field(default_factory=dict)
    unparsed: bytes = b""  # the beginning of an answer
    crashes: int = 0  # consecutive crashes without an answer

    def send(self, tasks: Sequence[tuple[int, Key]]) -> None:
        """Send more tasks to the process."""
        assert self.process.stdin is not None  # noqa: S101 - it was started with a pipe
        self.pending.update(tasks)
        record = b"".join(TASK.pack(slot, *key) for slot, key in tasks)
        with suppress(BrokenPipeError):
            self.process.stdin.write(record)


class Readers:
    """Reader processes and the memory that they write to.

    Args:
        train: the training part.
        test: the test part.
        count: number of processes.
        slots: maximum number of images read ahead or in progress.
        program: command line of each process.
    """

    def __init__(
        self,
        train: ImageDataset,
        test: ImageDataset,
        count: int,
        slots: int,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._parts, self._program = (train, test), program
        slot_bytes = train.size * train.size * 3
        self._slots = max(2 * count, min(slots, MAX_SLOTS, MAX_BYTES // slot_bytes))
        # Anonymous: /dev/shm of a container may be tiny, and nothing remains after the process.
        self._file = os.memfd_create("everstep-images")
        os.ftruncate(self._file, self._slots * slot_bytes)
        self._memory = mmap.mmap(self._file, self._slots * slot_bytes)
        self._images = np.frombuffer(self._memory, np.uint8).reshape(-1, train.size, train.size, 3)
        self._free = list(range(self._slots))  # a heap: low slots are used again first
        self._slot_of: dict[Key, int] = {}
        self._ready: set[Key] = set()
        self._failed: dict[Key, EverstepError] = {}
        self._cancelled: set[Key] = set()  # in progress, but no longer requested
        self._selector = selectors.DefaultSelector()
        self._readers = [self._start() for _ in range(count)]

    @property
    def processes(self) -> list[int]:
        """Ids of the processes."""
        return [reader.process.pid for reader in self._readers]

    def prefetch(self, part: int, keys: Sequence[Key]) -> None:
        """Set the images of a part to read next, in order; discard others of the part."""
        requested = set(keys)
        self._cancel([k for k in self._slot_of if k[0] == part and k not in requested])
        self._collect(wait=False)
        self._assign(keys)

    def take(self, keys: Sequence[Key]) -> Images:
        """Return these images in order, shape (n, size, size, 3).

        Raises:
            EverstepError: an image cannot be read; the message names it.
        """
        images = np.empty((len(keys), *self._images.shape[1:]), np.uint8)
        assigned = self._assign(keys)
        for position, key in enumerate(keys):
            if assigned < len(keys) and position % REFILL == 0:
                assigned += self._assign(keys[assigned:])
            while key not in self._ready:
                if key not in self._slot_of:
                    self._free_slots(keys[position:])
                    self._assign(keys[position:])
                self._collect(wait=key not in self._ready)
            if key in self._failed:
                raise self._failed[key]
            images[position] = self._images[self._slot_of[key]]
            self._release(key)
        return images

    def close(self) -> None:
        """Stop the processes."""
        for reader in self._readers:
            for pipe in (reader.process.stdin, reader.process.stdout):
                if pipe:
                    with suppress(BrokenPipeError):
                        pipe.close()
            reader.process.wait()
        self._selector.close()
        os.close(self._file)

    # --- slots ---

    def _assign(self, keys: Sequence[Key]) -> int:
        """Assign unread samples to readers while slots are free; return how many were assigned."""
        new: list[list[tuple[int, Key]]] = [[] for _ in self._readers]
        loads = [(len(reader.pending), number) for number, reader in enumerate(self._readers)]
        heapq.heapify(loads)
        assigned = 0
        for key in keys:
            self._cancelled.discard(key)
            if key not in self._slot_of:
                if not self._free:
                    break
                self._slot_of[key] = heapq.heappop(self._free)
                load, number = loads[0]
                heapq.heapreplace(loads, (load + 1, number))
                new[number].append((self._slot_of[key], key))
            assigned += 1
        for reader, tasks in zip(self._readers, new, strict=True):
            if tasks:
                reader.send(tasks)
        return assigned

    def _cancel(self, keys: Sequence[Key]) -> None:
        for key in keys:
            if key in self._ready:
                self._release(key)
            else:
                self._cancelled.add(key)

    def _free_slots(self, keys: Sequence[Key]) -> None:
        """Free at least half of the slots if images for later use occupy all of them."""
        if not self._free:
            needed_soon = set(keys[: self._slots // 2])
            self._cancel([key for key in self._slot_of if key not in needed_soon])

    def _release(self, key: Key) -> None:
        self._ready.discard(key)
        self._failed.pop(key, None)
        heapq.heappush(self._free, self._slot_of.pop(key))

    # --- answers ---

    def _collect(self, *, wait: bool) -> None:
        """Process the available answers; `wait` for at least one."""
        for selected, _ in self._selector.select(None if wait else 0):
            reader: _Reader = selected.data
            data = os.read(selected.fd, 1024 * ANSWER.size)
            if not data:
                self._replace(reader)
                continue
            reader.crashes = 0
            reader.unparsed += data
            complete_bytes = len(reader.unparsed) // ANSWER.size * ANSWER.size
            for slot, state in ANSWER.iter_unpack(reader.unparsed[:complete_bytes]):
                self._complete(reader.pending.pop(slot), slot, state)
            reader.unparsed = reader.unparsed[complete_bytes:]

    def _complete(self, key: Key, slot: int, state: int) -> None:
        if key in self._cancelled:
            self._cancelled.discard(key)
            self._release(key)
            return
        self._ready.add(key)
        if state != GOOD:  # raised when the sample is taken, if it ever is
            message, _, fix = from_slot(self._images[slot].tobytes()).partition("\n")
            self._failed[key] = EverstepError(message, fix)

    # --- processes ---

    def _start(self) -> _Reader:
        train, test = self._parts
        arguments = ReaderArguments(
            folder=str(train.folder),
            store=train.store,
            size=train.size,
            identities=(train.identity, test.identity),
            memory=self._file,
            slots=self._slots,
        )
        process = subprocess.Popen(
            [*self._program, arguments.to_argument()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._file],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            bufsize=0,
        )
        assert process.stdout is not None  # noqa: S101 - it was started with a pipe
        reader = _Reader(process)
        self._selector.register(process.stdout, selectors.EVENT_READ, reader)
        return reader

    def _replace(self, dead: _Reader) -> None:
        """Replace an ended process and send its tasks to the new one."""
        assert dead.process.stdin is not None and dead.process.stdout is not None  # noqa: S101, PT018
        self._selector.unregister(dead.process.stdout)
        dead.process.stdout.close()
        with suppress(BrokenPipeError):
            dead.process.stdin.close()
        code = dead.process.wait()
        if dead.crashes + 1 >= MAX_CRASHES:
            raise _crash_error(self._location(dead), code)
        log.warning("a reader process %s %s: replacing it", _ending(code), self._location(dead))
        successor = self._start()
        successor.crashes = dead.crashes + 1
        self._readers[self._readers.index(dead)] = successor
        if dead.pending:
            successor.send(list(dead.pending.items()))

    def _location(self, reader: _Reader) -> str:
        for part, sample, _ in reader.pending.values():
            return f"at {self._parts[part].name(sample)}"
        return "before it read anything"


class Loader:
    """One part of a data set, read ahead."""

    def __init__(self, readers: Readers, dataset: ImageDataset) -> None:
        self._readers, self._dataset = readers, dataset
        self._part = PARTS.index(dataset.part)
        self.class_count, self.identity = dataset.class_count, dataset.identity
        self.mean, self.deviation = dataset.mean, dataset.deviation

    def __len__(self) -> int:
        return len(self._dataset)

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """Return a random crop of each image, scaled to the size, half of them mirrored."""
        return self._take(BatchRequest(ids=ids, seed=seed, epoch=epoch))

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """Return the centre crop of each image, scaled to the size."""
        return self._take(BatchRequest(ids=ids))

    def prefetch(self, upcoming: Sequence[BatchRequest]) -> None:
        """Read the next batches ahead, in order."""
        self._readers.prefetch(
            self._part, [key for request in upcoming for key in self._keys(request)]
        )

    def close(self) -> None:
        """Stop the processes, which both parts share."""
        self._readers.close()

    def _take(self, request: BatchRequest) -> tuple[Images, Labels]:
        return self._readers.take(self._keys(request)), self._dataset.labels(request.ids)

    def _keys(self, request: BatchRequest) -> list[Key]:
        samples = request.ids.tolist()
        if self._dataset.part != "train":  # the centre crop is not random
            return [(self._part, sample, 0) for sample in samples]
        words = random_words(request.seed, request.epoch, request.ids).tolist()
        return [(self._part, *pair) for pair in zip(samples, words, strict=True)]


def read_ahead(
    train: Dataset, test: Dataset, readers: int, global_batch: int
) -> tuple[Dataset, Dataset]:
    """Return the parts with read-ahead by separate processes; unchanged if that has no benefit.

    Args:
        train: the training part.
        test: the test part.
        readers: number of processes; 0 for none.
        global_batch: samples per step; memory is sized for two steps of a single worker.
    """
    if not readers or not isinstance(train, ImageDataset) or not isinstance(test, ImageDataset):
        return train, test
    shared = Readers(train, test, readers, 2 * global_batch)
    return Loader(shared, train), Loader(shared, test)


def _crash_error(location: str, code: int) -> EverstepError:
    return EverstepError(
        f"reader processes failed {MAX_CRASHES} consecutive times {location}; the last one {_ending(code)}",
        "Check that file and the available memory; --loader-workers 0 reads without such processes.",
    )


def _ending(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
