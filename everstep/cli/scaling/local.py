"""Measurement of one group size on this machine: replicas are processes that share its CPUs."""

import gzip
import os
import random
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from everstep.catalog import trainer_options
from everstep.cli.child_process import run_in_session
from everstep.cli.report.readers import FolderReader
from everstep.cli.scaling.study import SizeResult, size_result
from everstep.errors import EverstepError
from everstep.optional_packages import TORCH
from everstep.progress import Progress, Step

POLL_SECONDS = 0.5
ALL_STEPS = 10**9
LOG_LINES = 12
SIDE, CLASSES, TEST_IMAGES = 28, 10, 64
"""Side length in pixels and classes of the random images, as in Fashion-MNIST, and number of test images."""


@dataclass(frozen=True)
class TrainerSettings:
    """Settings of the trainer that a study sets.

    Attributes:
        model: name of the model.
        batch: images per process in one step.
        steps: maximum number of steps, of which the first are not counted; 0 for a whole epoch.
        loader_workers: processes that load data for each training process.
    """

    model: str
    batch: int
    steps: int
    loader_workers: int

    def values(
        self, processes: int, run: Path | str, fresh: str
    ) -> dict[str, trainer_options.Value]:
        """Return the values of the trainer's options.

        Args:
            processes: number of processes.
            run: folder of the run, here or in a pod.
            fresh: value that distinguishes this run from earlier runs of its name; empty resumes an earlier run.
        """
        return {
            "model": self.model,
            "run": run,
            "epochs": 1,
            "global_batch": self.batch * processes,
            "loader_workers": self.loader_workers,
            "max_steps": self.steps,
            "fresh": fresh,
        }


@dataclass(frozen=True)
class LocalStudy:
    """A study on this machine.

    Attributes:
        settings: settings of the trainer.
        dataset: name of the data set.
        data: folder of prepared data.
    """

    settings: TrainerSettings
    dataset: str
    data: Path

    def check(self) -> None:
        """Check nothing: this machine always allows a measurement."""

    def measure(self, replicas: int, progress: Progress) -> SizeResult:
        """Train with this number of processes and return their speed.

        Raises:
            EverstepError: the training failed, or recorded too few steps or a group of another size.
        """
        with TemporaryDirectory(prefix="everstep-scale-") as scratch:
            run, log = Path(scratch) / f"scale-{replicas}", Path(scratch) / "log"
            values = self.settings.values(replicas, run, "") | {
                "dataset": self.dataset,
                "data": self.data,
            }
            command = [*pinned_to_cpus(replicas), sys.executable, "-P", "-m", "everstep.cli.main"]
            command += ["launch", f"--nproc-per-node={replicas}", "--max-restarts=0"]
            command += ["-m", "trainer.train", *trainer_options.arguments(values)]
            reader = FolderReader(run, run / "no-events", ALL_STEPS)
            with (
                progress.step(f"Training with a group of {replicas}") as step,
                run_in_session(command, log) as process,
            ):
                while process.poll() is None:
                    note_steps(step, len(reader.read().steps))
                    time.sleep(POLL_SECONDS)
            if process.returncode:
                lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
                raise EverstepError(
                    f"the training with a group of {replicas} ended with exit code {process.returncode}",
                    "\n".join(lines),
                )
            return size_result(reader.read(), replicas, replicas)


def pinned_to_cpus(processes: int) -> list[str]:
    """Return the prefix of a command that gives each process of a group one CPU if there are enough.

    The trainer divides the CPUs that it may use among its processes. Without this limit, one process would
    compute with all of them, and its threads would spin while they wait for each other, which counts as CPU time.
    """
    numbers = sorted(os.sched_getaffinity(0))[:processes]
    return ["taskset", "--cpu-list", ",".join(map(str, numbers))]


def note_steps(step: Step, steps: int) -> None:
    """Show the number of steps so far."""
    if steps:
        step.note(f"step {steps}")


def require_trainer() -> None:
    """Check that the trainer can run here.

    Raises:
        EverstepError: PyTorch or taskset is not installed.
    """
    TORCH.require("torch", "everstep scale --local trains with PyTorch, which is not installed")
    if shutil.which("taskset") is None:
        raise EverstepError(
            "everstep scale --local needs taskset, which is not on PATH",
            "It is in util-linux: apt-get install util-linux",
        )


def cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def make_images(folder: Path, images: int, progress: Progress) -> Path:
    """Return a folder of prepared data with random images; make it if it does not exist.

    The pixels do not change the time of a step.

    Raises:
        EverstepError: the data could not be made.
    """
    output = folder / f"random-{images}"
    if (output / "manifest.json").exists():
        return output
    with TemporaryDirectory(prefix="everstep-scale-") as scratch:
        for name, content in _idx_files(images):
            (Path(scratch) / f"{name}.gz").write_bytes(gzip.compress(content, compresslevel=1))
        command = [sys.executable, "-m", "trainer.prepare", "--dataset", "fashion-mnist"]
        command += ["--source", scratch, "--output", str(output)]
        with (
            progress.step(f"Making {images} random images"),
            run_in_session(command, Path(scratch) / "log") as process,
        ):
            process.wait()
        if process.returncode:
            raise EverstepError(
                f"no data could be made in {output}", (Path(scratch) / "log").read_text()
            )
    return output


def _idx_files(images: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a data set in the format of MNIST: a header with the shape, then bytes."""
    generator = random.Random(0)  # noqa: S311 - not for secrets
    for part, count in (("train", images), ("t10k", TEST_IMAGES)):
        header = struct.pack(">HBBIII", 0, 8, 3, count, SIDE, SIDE)
        yield f"{part}-images-idx3-ubyte", header + generator.randbytes(count * SIDE * SIDE)
        labels = bytes(generator.randrange(CLASSES) for _ in range(count))
        yield f"{part}-labels-idx1-ubyte", struct.pack(">HBBI", 0, 8, 1, count) + labels
