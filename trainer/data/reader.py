"""A process that reads pictures ahead for one worker: `python3 -m trainer.data.reader OPENING`.

It belongs to its worker and to nothing else: to no process group of torch's, and to no generation. A
change of the group only changes what it is asked for. It ends when its worker does, however that one
ends, since a pipe that nobody holds the other end of says so; told to stop by a signal that is meant
for the whole pod, it goes on, since its worker still has a step to finish.
"""

import mmap
import os
import signal
import sys
from pathlib import Path

import numpy as np

from everstep.errors import EverstepError
from trainer.augment import Images
from trainer.data.dataset import PARTS
from trainer.data.pictures import Pictures, open_pictures
from trainer.data.wire import ANSWER, BAD, GOOD, TASK, Opening, to_slot


def main() -> None:
    """Serve until there is no worker any more."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    opening = Opening.from_argument(sys.argv[1])
    whole = opening.slots * opening.slot_bytes
    memory = mmap.mmap(opening.memory, whole)
    slots = np.frombuffer(memory, np.uint8).reshape(-1, opening.size, opening.size, 3)
    try:
        serve(sys.stdin.fileno(), answers, Parts(opening), slots)
    except BrokenPipeError:
        os._exit(0)  # nobody is there to be told


class Parts:
    """The parts of the data set, each opened when it is first asked for."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._open: dict[int, Pictures] = {}

    def render(self, part: int, sample: int, chance: int, into: Images) -> None:
        """Write one image."""
        pictures = self._open.get(part) or self._open_part(part)
        pictures.render(sample, chance if PARTS[part] == "train" else None, into)

    def _open_part(self, part: int) -> Pictures:
        opening = self._opening
        pictures = open_pictures(Path(opening.folder), PARTS[part], opening.size)
        if pictures.identity != opening.identities[part]:
            raise EverstepError(
                f"the data in {opening.folder} have changed since this worker started: "
                f"{opening.identities[part]} then, {pictures.identity} now",
                "Leave the data alone while they are trained on.",
            )
        self._open[part] = pictures
        return pictures


def serve(tasks: int, answers: int, parts: Parts, slots: Images) -> None:
    """Do what comes down one pipe and say so up the other, in order, until the first one ends.

    Args:
        tasks: file descriptor of TASK records.
        answers: file descriptor of ANSWER records.
        parts: the data.
        slots: shape (slots, size, size, 3).
    """
    rest = b""
    while more := os.read(tasks, 1024 * TASK.size):
        rest += more
        whole = len(rest) // TASK.size * TASK.size
        for slot, part, sample, chance in TASK.iter_unpack(rest[:whole]):
            try:
                parts.render(part, sample, chance, slots[slot])
                state = GOOD
            except EverstepError as error:
                text = np.frombuffer(
                    to_slot(f"{error.what}\n{error.remedy}", slots[slot].size), np.uint8
                )
                slots[slot].reshape(-1)[: len(text)] = text
                state = BAD
            os.write(answers, ANSWER.pack(slot, state))
        rest = rest[whole:]


if __name__ == "__main__":
    main()
