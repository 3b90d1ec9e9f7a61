"""Process that reads images ahead for one worker: `python3 -m trainer.data.reader ARGUMENTS`.

It belongs to no process group of torch and to no generation: a change of the group only changes its
tasks. It ends with its worker, because its pipe is then closed. It ignores the termination signal of
the pod, because its worker still has to finish a step.
"""

import mmap
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from everstep.errors import EverstepError
from trainer.augment import Images
from trainer.data.dataset import SPLITS
from trainer.data.images import ImageDataset, open_images
from trainer.data.protocol import BAD, GOOD, RESPONSE, TASK, ReaderArguments, to_slot


def main() -> None:
    """Serve until the worker ends."""
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, signal.SIG_IGN)
    results_pipe = os.dup(sys.stdout.fileno())
    # Output of libraries must not mix with the responses.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    arguments = ReaderArguments.from_argument(sys.argv[1])
    memory_bytes = arguments.slots * arguments.slot_bytes
    memory = mmap.mmap(arguments.memory, memory_bytes)
    slots = np.frombuffer(memory, np.uint8).reshape(-1, arguments.size, arguments.size, 3)
    with suppress(BrokenPipeError):  # the worker has ended
        serve(sys.stdin.fileno(), results_pipe, Splits(arguments), slots)
    os._exit(0)  # without waiting for requests to a store


class Splits:
    """The splits of the data set, each opened on first use."""

    def __init__(self, arguments: ReaderArguments) -> None:
        self._arguments = arguments
        self._datasets: dict[int, ImageDataset] = {}

    def render(self, split: int, sample: int, random_word: int, output: Images) -> None:
        """Render one image into `output`.

        Raises:
            EverstepError: the image cannot be read, or the data have changed since the worker started.
        """
        dataset = self._datasets.get(split) or self._open_split(split)
        dataset.render(sample, random_word if SPLITS[split] == "train" else None, output)

    def prefetch(self, tasks: Sequence[tuple[int, int]]) -> None:
        """Prepare to render these images next, given as pairs of split and sample, in order."""
        for split in {split for split, _ in tasks}:
            with suppress(EverstepError):  # `render` raises it for each image
                dataset = self._datasets.get(split) or self._open_split(split)
                dataset.prefetch_samples(
                    [sample for task_split, sample in tasks if task_split == split]
                )

    def _open_split(self, split: int) -> ImageDataset:
        arguments = self._arguments
        folder = Path(arguments.folder)
        dataset = open_images(folder, SPLITS[split], arguments.size, arguments.store)
        if dataset.identity != arguments.identities[split]:
            raise EverstepError(
                f"the data in {arguments.folder} have changed since this worker started: "
                f"{arguments.identities[split]} then, {dataset.identity} now",
                "Do not change the data during the training run.",
            )
        self._datasets[split] = dataset
        return dataset


def serve(tasks_pipe: int, results_pipe: int, splits: Splits, slots: Images) -> None:
    """Execute tasks from one pipe and respond on the other, in order, until the first pipe is closed.

    Args:
        tasks_pipe: file descriptor of TASK records.
        results_pipe: file descriptor of RESPONSE records.
        splits: the data.
        slots: shape (slots, size, size, 3).
    """
    buffer = b""
    while data := os.read(tasks_pipe, 1024 * TASK.size):
        buffer += data
        complete_bytes = len(buffer) // TASK.size * TASK.size
        received_tasks = list(TASK.iter_unpack(buffer[:complete_bytes]))
        splits.prefetch([(split, sample) for _, split, sample, _ in received_tasks])
        for slot, split, sample, random_word in received_tasks:
            try:
                splits.render(split, sample, random_word, slots[slot])
                state = GOOD
            except EverstepError as error:
                text = np.frombuffer(
                    to_slot(f"{error.problem}\n{error.fix}", slots[slot].size), np.uint8
                )
                slots[slot].reshape(-1)[: len(text)] = text
                state = BAD
            os.write(results_pipe, RESPONSE.pack(slot, state))
        buffer = buffer[complete_bytes:]


if __name__ == "__main__":
    main()
