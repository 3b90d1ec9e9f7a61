"""The workload of all compared systems: one model, one order of samples, one journal."""

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from trainer import models

GLOBAL_BATCH = 12
NODES = 3
SAMPLES = 120  # samples of an epoch
CLASSES = 10
SIDE = 28  # pixels
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SAVE_STEPS = 8  # steps between two checkpoints; the trainer's default
TIMEOUT_SECONDS = 10  # collective timeout, for systems that have one


def build_model() -> nn.Module:
    """Return ResNet-18, the same on all nodes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return models.build("resnet18", CLASSES).to(memory_format=torch.channels_last)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return SGD with momentum."""
    return torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)


def samples_of_step(step: int) -> range:
    """Return the sample numbers of a step's global batch, counted through all epochs."""
    return range(step * GLOBAL_BATCH, (step + 1) * GLOBAL_BATCH)


def load(samples: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images and labels, seeded by the list of samples: a sample differs between lists."""
    seed = hashlib.blake2b(repr(list(samples)).encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(seed, "big"))
    images = torch.rand(len(samples), 3, SIDE, SIDE, generator=generator)
    labels = torch.randint(CLASSES, (len(samples),), generator=generator)
    return images.contiguous(memory_format=torch.channels_last), labels


def loss_of(model: nn.Module, samples: Sequence[int]) -> torch.Tensor:
    """Return the mean loss of samples."""
    images, labels = load(samples)
    loss: torch.Tensor = nn.functional.cross_entropy(model(images), labels)
    return loss


@dataclass(frozen=True)
class JournalLine:
    """One step of one node, before or after its commit.

    Attributes:
        at: Unix time.
        node: name of the node, such as n0.
        step: number of the step, from 1.
        world_size: number of nodes that take the step together.
        samples: numbers of the samples, counted through all epochs: epoch x SAMPLES + index.
        seconds: time from the beginning of the step to its commit; None before the commit.
    """

    at: float
    node: str
    step: int
    world_size: int
    samples: list[int]
    seconds: float | None = None


class StepJournal:
    """A node's lines: two for each step, before and after its commit.

    A worker may be killed after its gradients have become part of a step and before it knows of the commit. The
    samples of a committed step are therefore the samples that its workers recorded before the commit.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.monotonic()
        self._line: JournalLine | None = None

    @classmethod
    def of_this_node(cls) -> "StepJournal":
        """Return the journal of the node that started this process, and record its process ID."""
        path = Path(os.environ["COMPARISON_FOLDER"]) / os.environ["COMPARISON_NODE"]
        path.with_suffix(".pid").write_text(str(os.getpid()), encoding="ascii")
        return cls(path.with_suffix(".jsonl"))

    def begin(self) -> None:
        """Start the clock of a step."""
        self._began = time.monotonic()

    def record_computed(self, step: int, world_size: int, samples: Sequence[int]) -> None:
        """Record the samples whose gradients this node contributes to a step."""
        self._line = JournalLine(time.time(), self._path.stem, step, world_size, list(samples))
        self._write(self._line)

    def record_committed(self) -> None:
        """Record that the step of the last `record_computed` was applied."""
        assert self._line is not None
        now, seconds = time.time(), time.monotonic() - self._began
        self._write(dataclasses.replace(self._line, at=now, seconds=seconds))

    def _write(self, line: JournalLine) -> None:
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(dataclasses.asdict(line)) + "\n")


def read(folder: Path) -> Iterator[JournalLine]:
    """Yield the complete lines of all nodes; a kill may have truncated the last line."""
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                yield JournalLine(**json.loads(text))


def read_commits(folder: Path) -> Iterator[JournalLine]:
    """Yield the lines of committed steps."""
    return (line for line in read(folder) if line.seconds is not None)
