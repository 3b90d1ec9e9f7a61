"""Read-ahead: processes that decode the images of the next steps while this process computes.

The readers live as long as their worker. An image is identified by (split, sample, random word), never by a
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
from trainer.data.dataset import SPLITS, BatchRequest, Dataset, Labels
from trainer.data.images import ImageDataset
from trainer.data.protocol import GOOD, MAX_SLOTS, RESPONSE, TASK, ReaderArguments, from_slot

log = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-m", "trainer.data.reader")
MAX_BYTES = 512 << 20  # shared memory; only used pages are allocated
REFILL_IMAGES = 32  # images between two checks for free slots
MAX_CRASHES = 3  # consecutive reader crashes before the current image is reported

Key = tuple[int, int, int]  # split, sample, random word: they determine an image


@dataclass
class _Reader:
    """A reader process and its pending tasks: slots with their keys, in order."""

    process: "subprocess.Popen[bytes]"
    pending_tasks: dict[int, Key] = field(default_factory=dict)
    unparsed: bytes = b""  # an incomplete response
    crashes: int = 0  # consecutive crashes without a response

    def send(self, tasks: Sequence[tuple[int, Key]]) -> None:
        """Send more tasks to the process."""
        assert self.process.stdin is not None  # noqa: S101 - it was started with a pipe
        self.pending_tasks.update(tasks)
        record = b"".join(TASK.pack(slot, *key) for slot, key in tasks)
        with suppress(BrokenPipeError):
            self.process.stdin.write(record)


class Readers:
    """Reader processes and the memory that they write to.

    Args:
        train: the training split.
        test: the test split.
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
        self._splits, self._program = (train, test), program
        slot_bytes = train.size * train.size * 3
        self._slots = max(2 * count, min(slots, MAX_SLOTS, MAX_BYTES // slot_bytes))
        # Anonymous: /dev/shm of a container may be tiny, and nothing remains after the process.
        self._file = os.memfd_create("everstep-images")
        os.ftruncate(self._file, self._slots * slot_bytes)
        self._memory = mmap.mmap(self._file, self._slots * slot_bytes)
        self._images = np.frombuffer(self._memory, np.uint8).reshape(-1, train.size, train.size, 3)
        self._unused_slots = list(range(self._slots))  # a heap: low slots are used again first
        self._slots_by_key: dict[Key, int] = {}
        self._ready_keys: set[Key] = set()
        self._errors: dict[Key, EverstepError] = {}
        self._cancelled_keys: set[Key] = set()  # in progress, but no longer requested
        self._selector = selectors.DefaultSelector()
        self._readers = [self._start() for _ in range(count)]

    @property
    def process_ids(self) -> list[int]:
        """IDs of the processes."""
        return [reader.process.pid for reader in self._readers]

    def prefetch(self, split: int, keys: Sequence[Key]) -> None:
        """Set the images of a split to read next, in order; discard others of the split."""
        requested = set(keys)
        self._cancel([k for k in self._slots_by_key if k[0] == split and k not in requested])
        self._collect(wait=False)
        self._assign(keys)

    def take(self, keys: Sequence[Key]) -> Images:
        """Return these images in order, shape (n, size, size, 3).

        Raises:
            EverstepError: an image cannot be read, or readers crash repeatedly; the message names the image.
        """
        images = np.empty((len(keys), *self._images.shape[1:]), np.uint8)
        assigned_count = self._assign(keys)
        for position, key in enumerate(keys):
            if assigned_count < len(keys) and position % REFILL_IMAGES == 0:
                assigned_count += self._assign(keys[assigned_count:])
            while key not in self._ready_keys:
                if key not in self._slots_by_key:
                    self._free_slots(keys[position:])
                    self._assign(keys[position:])
                self._collect(wait=key not in self._ready_keys)
            if key in self._errors:
                raise self._errors[key]
            images[position] = self._images[self._slots_by_key[key]]
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
        """Assign unread images to readers while slots are free; return how many of the first `keys` have a slot."""
        tasks_by_reader: list[list[tuple[int, Key]]] = [[] for _ in self._readers]
        loads = [(len(reader.pending_tasks), number) for number, reader in enumerate(self._readers)]
        heapq.heapify(loads)
        assigned_count = 0
        for key in keys:
            self._cancelled_keys.discard(key)
            if key not in self._slots_by_key:
                if not self._unused_slots:
                    break
                self._slots_by_key[key] = heapq.heappop(self._unused_slots)
                load, number = loads[0]
                heapq.heapreplace(loads, (load + 1, number))
                tasks_by_reader[number].append((self._slots_by_key[key], key))
            assigned_count += 1
        for reader, tasks in zip(self._readers, tasks_by_reader, strict=True):
            if tasks:
                reader.send(tasks)
        return assigned_count

    def _cancel(self, keys: Sequence[Key]) -> None:
        for key in keys:
            if key in self._ready_keys:
                self._release(key)
            else:
                self._cancelled_keys.add(key)

    def _free_slots(self, keys: Sequence[Key]) -> None:
        """Free at least half of the slots if images for later use occupy all of them."""
        if not self._unused_slots:
            needed_soon = set(keys[: self._slots // 2])
            self._cancel([key for key in self._slots_by_key if key not in needed_soon])

    def _release(self, key: Key) -> None:
        self._ready_keys.discard(key)
        self._errors.pop(key, None)
        heapq.heappush(self._unused_slots, self._slots_by_key.pop(key))

    # --- responses ---

    def _collect(self, *, wait: bool) -> None:
        """Process the available responses; `wait` for at least one."""
        for selected, _ in self._selector.select(None if wait else 0):
            reader: _Reader = selected.data
            data = os.read(selected.fd, 1024 * RESPONSE.size)
            if not data:
                self._replace(reader)
                continue
            reader.crashes = 0
            reader.unparsed += data
            complete_bytes = len(reader.unparsed) // RESPONSE.size * RESPONSE.size
            for slot, state in RESPONSE.iter_unpack(reader.unparsed[:complete_bytes]):
                self._complete(reader.pending_tasks.pop(slot), slot, state)
            reader.unparsed = reader.unparsed[complete_bytes:]

    def _complete(self, key: Key, slot: int, state: int) -> None:
        if key in self._cancelled_keys:
            self._cancelled_keys.discard(key)
            self._release(key)
            return
        self._ready_keys.add(key)
        if state != GOOD:  # raised when the sample is taken, if it ever is
            message, _, fix = from_slot(self._images[slot].tobytes()).partition("\n")
            self._errors[key] = EverstepError(message, fix)

    # --- processes ---

    def _start(self) -> _Reader:
        train, test = self._splits
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

    def _replace(self, ended_reader: _Reader) -> None:
        """Replace an ended process and send its tasks to the new one."""
        assert ended_reader.process.stdin is not None and ended_reader.process.stdout is not None  # noqa: S101, PT018
        self._selector.unregister(ended_reader.process.stdout)
        ended_reader.process.stdout.close()
        with suppress(BrokenPipeError):
            ended_reader.process.stdin.close()
        code = ended_reader.process.wait()
        if ended_reader.crashes + 1 >= MAX_CRASHES:
            raise _crash_error(self._location(ended_reader), code)
        log.warning(
            "a reader process %s %s: replacing it",
            _describe_end(code),
            self._location(ended_reader),
        )
        successor = self._start()
        successor.crashes = ended_reader.crashes + 1
        self._readers[self._readers.index(ended_reader)] = successor
        if ended_reader.pending_tasks:
            successor.send(list(ended_reader.pending_tasks.items()))

    def _location(self, reader: _Reader) -> str:
        for split, sample, _ in reader.pending_tasks.values():
            return f"at {self._splits[split].name(sample)}"
        return "before it read anything"


class Loader:
    """One split of a data set, read ahead."""

    def __init__(self, readers: Readers, dataset: ImageDataset) -> None:
        self._readers, self._dataset = readers, dataset
        self._split = SPLITS.index(dataset.split)
        self.class_count, self.identity = dataset.class_count, dataset.identity
        self.mean, self.deviation = dataset.mean, dataset.deviation

    def __len__(self) -> int:
        return len(self._dataset)

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """Return a random crop of each image, scaled to the size, half of them mirrored."""
        return self._take(BatchRequest(ids=ids, seed=seed, epoch=epoch))

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """Return the center crop of each image, scaled to the size."""
        return self._take(BatchRequest(ids=ids))

    def prefetch(self, requests: Sequence[BatchRequest]) -> None:
        """Read the next batches ahead, in order."""
        self._readers.prefetch(
            self._split, [key for request in requests for key in self._keys(request)]
        )

    def close(self) -> None:
        """Stop the processes, which both splits share."""
        self._readers.close()

    def _take(self, request: BatchRequest) -> tuple[Images, Labels]:
        return self._readers.take(self._keys(request)), self._dataset.labels(request.ids)

    def _keys(self, request: BatchRequest) -> list[Key]:
        samples = request.ids.tolist()
        if self._dataset.split != "train":  # the center crop is not random
            return [(self._split, sample, 0) for sample in samples]
        words = random_words(request.seed, request.epoch, request.ids).tolist()
        return [(self._split, *pair) for pair in zip(samples, words, strict=True)]


def read_ahead(
    train: Dataset, test: Dataset, readers: int, global_batch: int
) -> tuple[Dataset, Dataset]:
    """Return the splits with read-ahead by separate processes; unchanged without readers or without encoded images.

    Args:
        train: the training split.
        test: the test split.
        readers: number of processes; 0 for none.
        global_batch: samples per step; memory is sized for two steps of a single worker.
    """
    if not readers or not isinstance(train, ImageDataset) or not isinstance(test, ImageDataset):
        return train, test
    shared_readers = Readers(train, test, readers, 2 * global_batch)
    return Loader(shared_readers, train), Loader(shared_readers, test)


def _crash_error(location: str, code: int) -> EverstepError:
    return EverstepError(
        f"reader processes failed {MAX_CRASHES} consecutive times {location}; the last one {_describe_end(code)}",
        "Check that file and the available memory; --loader-workers 0 reads without such processes.",
    )


def _describe_end(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
