"""Data for the MNIST example, and the journal of its run."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.everstep.elastic.launch.launched import LauncherProcess
from tests.journals import JournalReader


def write_mnist(folder: Path, samples: int) -> Path:
    """Write a data set of noisy copies of ten images in the format of MNIST; return its folder."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (10, 28, 28))
    for part, count in (("train", samples), ("t10k", 200)):
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        noise = rng.normal(0, 80, (count, 28, 28)).astype(np.float32)
        pixels = np.clip(images[labels] + noise, 0, 255)
        for name, array in (("images-idx3", pixels.astype(np.uint8)), ("labels-idx1", labels)):
            header = struct.pack(">HBB", 0, 8, array.ndim)
            header += struct.pack(f">{array.ndim}I", *array.shape)
            (raw / f"{part}-{name}-ubyte").write_bytes(header + array.tobytes())
    return folder


class Journal:
    """The journal of a run."""

    def __init__(self, run: Path) -> None:
        self._reader = JournalReader(run / "journal")

    def steps(self) -> list[Mapping[str, Any]]:
        return [entry for entry in self._reader.read() if entry["kind"] == "step"]

    def first_step(self, workers: int, after: int = 0) -> int:
        """Return the first step later than `after` that a group of this size took; 0 if there is none."""
        steps = (
            step["step"]
            for step in self.steps()
            if step["world_size"] == workers and step["step"] > after
        )
        return min(steps, default=0)

    def wait(self, launcher: LauncherProcess, workers: int, after: int = 0) -> int:
        """Wait until a group of this size takes a step later than `after`; return the step."""
        return launcher.wait_until(
            lambda: self.first_step(workers, after), f"{workers} workers train"
        )
