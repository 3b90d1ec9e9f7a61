"""Reads ahead: processes that decode what the next step will ask for, while this one computes.

A worker keeps its readers for life. What is read ahead is named by (part, sample, chance), never by a
rank or a step: when the group changes, what the worker still needs is kept, the rest is forgotten, and
nothing has to be torn down. Which process reads a picture decides nothing about it.

Why not torch's DataLoader: its sampler is fixed when an epoch begins, its processes die with a change
of it, and a change of the group would throw away what they hold. Why no thread in this process: one
step in Python of a reader would hold up the training's own.
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

from everstep.elastic.sampler import Ids
from everstep.errors import EverstepError
from trainer.augment import Images, chances
from trainer.data.dataset import PARTS, Asked, Dataset, Labels
from trainer.data.pictures import Pictures
from trainer.data.wire import ANSWER, GOOD, MOST_SLOTS, TASK, Opening, from_slot

log = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-m", "trainer.data.reader")
MOST_BYTES = 512 << 20  # of shared memory; only what was ever in use is taken
REFILL = 32  # images between two looks whether there are slots again
DEATHS = 3  # of a reader with the same picture in hand: then it is the picture

Key = tuple[int, int, int]  # part, sample, chance: all that decides an image


@dataclass
class _Reader:
    """One process, and what it has been given and not answered: slots with their keys, in order."""

    process: "subprocess.Popen[bytes]"
    given: dict[int, Key] = field(default_factory=dict)
    rest: bytes = b""
    deaths: int = 0  # since it last answered

    def send(self, tasks: Sequence[tuple[int, Key]]) -> None:
        """Give it more to do."""
        assert self.process.stdin is not None  # noqa: S101 - it was started with a pipe
        self.given.update(tasks)
        record = b"".join(TASK.pack(slot, *key) for slot, key in tasks)
        with suppress(BrokenPipeError):
            self.process.stdin.write(record)


class Readers:
    """Reading processes and the memory that they write into.

    Args:
        train: one part, as this process sees it.
        test: the other.
        count: of processes.
        slots: images that may be read ahead or be under way.
        program: what each of them runs.
    """

    def __init__(
        self,
        train: Pictures,
        test: Pictures,
        count: int,
        slots: int,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._parts, self._program = (train, test), program
        slot_bytes = train.size * train.size * 3
        self._slots = max(2 * count, min(slots, MOST_SLOTS, MOST_BYTES // slot_bytes))
        # Without a name: /dev/shm of a container may be tiny, and nothing is left behind by anybody.
        self._file = os.memfd_create("everstep-images")
        os.ftruncate(self._file, self._slots * slot_bytes)
        self._memory = mmap.mmap(self._file, self._slots * slot_bytes)
        self._images = np.frombuffer(self._memory, np.uint8).reshape(-1, train.size, train.size, 3)
        self._free = list(range(self._slots))  # a heap: low slots are used again first
        self._slot_of: dict[Key, int] = {}
        self._ready: set[Key] = set()
        self._failed: dict[Key, EverstepError] = {}
        self._forgotten: set[Key] = set()  # under way, and wanted by nobody any more
        self._selector = selectors.DefaultSelector()
        self._readers = [self._start() for _ in range(count)]

    @property
    def processes(self) -> list[int]:
        """Their ids."""
        return [reader.process.pid for reader in self._readers]

    def expect(self, part: int, keys: Sequence[Key]) -> None:
        """These of a part are wanted next, in this order; others of the part are not any more."""
        wanted = set(keys)
        self._forget([k for k in self._slot_of if k[0] == part and k not in wanted])
        self._collect(wait=False)
        self._ask(keys)

    def take(self, keys: Sequence[Key]) -> Images:
        """These images, shape (n, size, size, 3), in this order.

        Raises:
            EverstepError: a picture cannot be read; names it.
        """
        images = np.empty((len(keys), *self._images.shape[1:]), np.uint8)
        asked = self._ask(keys)
        for place, key in enumerate(keys):
            if asked < len(keys) and place % REFILL == 0:
                asked += self._ask(keys[asked:])
            while key not in self._ready:
                if key not in self._slot_of:
                    self._make_room(keys[place:])
                    self._ask(keys[place:])
                self._collect(wait=key not in self._ready)
            if key in self._failed:
                raise self._failed[key]
            images[place] = self._images[self._slot_of[key]]
            self._release(key)
        return images

    def close(self) -> None:
        """End the processes."""
        for reader in self._readers:
            for pipe in (reader.process.stdin, reader.process.stdout):
                if pipe:
                    with suppress(BrokenPipeError):
                        pipe.close()
            reader.process.wait()
        self._selector.close()
        os.close(self._file)

    # --- slots ---

    def _ask(self, keys: Sequence[Key]) -> int:
        """Have those read that nobody reads yet, as far as there are slots; for how many there were."""
        new: list[list[tuple[int, Key]]] = [[] for _ in self._readers]
        loads = [(len(reader.given), number) for number, reader in enumerate(self._readers)]
        heapq.heapify(loads)
        asked = 0
        for key in keys:
            self._forgotten.discard(key)
            if key not in self._slot_of:
                if not self._free:
                    break
                self._slot_of[key] = heapq.heappop(self._free)
                load, number = loads[0]
                heapq.heapreplace(loads, (load + 1, number))
                new[number].append((self._slot_of[key], key))
            asked += 1
        for reader, tasks in zip(self._readers, new, strict=True):
            if tasks:
                reader.send(tasks)
        return asked

    def _forget(self, keys: Sequence[Key]) -> None:
        for key in keys:
            if key in self._ready:
                self._release(key)
            else:
                self._forgotten.add(key)

    def _make_room(self, keys: Sequence[Key]) -> None:
        """Where everything is taken by what is wanted later, that has to go: half of it at least."""
        if not self._free:
            wanted = set(keys[: self._slots // 2])
            self._forget([key for key in self._slot_of if key not in wanted])

    def _release(self, key: Key) -> None:
        self._ready.discard(key)
        self._failed.pop(key, None)
        heapq.heappush(self._free, self._slot_of.pop(key))

    # --- answers ---

    def _collect(self, *, wait: bool) -> None:
        """Take the answers that are there; `wait` for one at least."""
        for selected, _ in self._selector.select(None if wait else 0):
            reader: _Reader = selected.data
            data = os.read(selected.fd, 1024 * ANSWER.size)
            if not data:
                self._replace(reader)
                continue
            reader.deaths = 0
            reader.rest += data
            whole = len(reader.rest) // ANSWER.size * ANSWER.size
            for slot, state in ANSWER.iter_unpack(reader.rest[:whole]):
                self._answered(reader.given.pop(slot), slot, state)
            reader.rest = reader.rest[whole:]

    def _answered(self, key: Key, slot: int, state: int) -> None:
        if key in self._forgotten:
            self._forgotten.discard(key)
            self._release(key)
            return
        self._ready.add(key)
        if state != GOOD:  # told when it is its turn, if it is ever wanted
            what, _, remedy = from_slot(self._images[slot].tobytes()).partition("\n")
            self._failed[key] = EverstepError(what, remedy)

    # --- processes ---

    def _start(self) -> _Reader:
        train, test = self._parts
        opening = Opening(
            folder=str(train.folder),
            size=train.size,
            identities=(train.identity, test.identity),
            memory=self._file,
            slots=self._slots,
        )
        process = subprocess.Popen(
            [*self._program, opening.to_argument()],
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
        """Start another one in the place of a process that has ended, with the same to do."""
        assert dead.process.stdin is not None and dead.process.stdout is not None  # noqa: S101, PT018
        self._selector.unregister(dead.process.stdout)
        dead.process.stdout.close()
        with suppress(BrokenPipeError):
            dead.process.stdin.close()
        code = dead.process.wait()
        log.warning(
            "a reading process ended with %d %s; another takes its place", code, self._names(dead)
        )
        if dead.deaths + 1 >= DEATHS:
            raise _deadly(self._names(dead), code)
        successor = self._start()
        successor.deaths = dead.deaths + 1
        self._readers[self._readers.index(dead)] = successor
        if dead.given:
            successor.send(list(dead.given.items()))

    def _names(self, reader: _Reader) -> str:
        for part, sample, _ in reader.given.values():
            return f"at {self._parts[part].name(sample)}"
        return "before it read anything"


class Loader:
    """One part of a data set, read ahead."""

    def __init__(self, readers: Readers, pictures: Pictures) -> None:
        self._readers, self._pictures = readers, pictures
        self._part = PARTS.index(pictures.part)
        self.classes, self.identity = pictures.classes, pictures.identity
        self.mean, self.deviation = pictures.mean, pictures.deviation

    def __len__(self) -> int:
        return len(self._pictures)

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """A random part of each picture, scaled to the size, half of them mirrored."""
        return self._take(Asked(ids=ids, seed=seed, epoch=epoch))

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """The middle of each picture, scaled to the size."""
        return self._take(Asked(ids=ids))

    def expect(self, upcoming: Sequence[Asked]) -> None:
        """What will be asked for next, in this order."""
        self._readers.expect(self._part, [key for asked in upcoming for key in self._keys(asked)])

    def close(self) -> None:
        """End the processes, the other part's too."""
        self._readers.close()

    def _take(self, asked: Asked) -> tuple[Images, Labels]:
        return self._readers.take(self._keys(asked)), self._pictures.labels(asked.ids)

    def _keys(self, asked: Asked) -> list[Key]:
        samples = asked.ids.tolist()
        if self._pictures.part != "train":  # the middle: no chance in it
            return [(self._part, sample, 0) for sample in samples]
        drawn = chances(asked.seed, asked.epoch, asked.ids).tolist()
        return [(self._part, *pair) for pair in zip(samples, drawn, strict=True)]


def read_ahead(
    train: Dataset, test: Dataset, workers: int, global_batch: int
) -> tuple[Dataset, Dataset]:
    """The same parts, read by processes of their own; as they are where that would not pay.

    Args:
        train: one part.
        test: the other.
        workers: processes; 0: none.
        global_batch: samples of a step; two of them are held, should this worker be alone.
    """
    if not workers or not isinstance(train, Pictures) or not isinstance(test, Pictures):
        return train, test
    readers = Readers(train, test, workers, 2 * global_batch)
    return Loader(readers, train), Loader(readers, test)


def _deadly(where: str, code: int) -> EverstepError:
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    return EverstepError(
        f"a process that reads pictures {ended} {DEATHS} times {where}",
        "Look at that file, and whether there is memory enough; --loader-workers 0 reads without such processes.",
    )
