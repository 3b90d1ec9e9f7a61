"""A scaling study: speed of the same job with several numbers of replicas. Pure functions of journals.

The batch per process stays the same, so the global batch grows with the group, as in the published study. Efficiency
is the speed per replica relative to the smallest measured size.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from everstep.cli.report.run_record import JournalEntry, RunRecord
from everstep.elastic.accounting.time_account import Activity
from everstep.errors import EverstepError

WARM_UP_STEPS = 2
"""First steps that are not counted if only part of an epoch is measured."""

PROCESSOR = "processor"
"""Key of the CPU time in a journal's `seconds`."""


@dataclass(frozen=True)
class Preset:
    """Published settings of a study.

    https://aws.amazon.com/blogs/machine-learning/distributed-training-with-amazon-eks-and-torch-distributed-elastic/

    Attributes:
        loader_workers: processes that load data for each training process.
        machine: machine type of the study, with GPUs and replicas.
    """

    loader_workers: int
    machine: str


PRESETS = {
    "resnet50": Preset(4, "1 to 4 p3.8xlarge with 4 V100 each"),
    "efficientnet_b7": Preset(4, "1 to 3 p4d.24xlarge with 8 A100 each"),
}
DEFAULT_BATCH = 64
"""Images per process in one step, as published for ResNet-50; the post does not state it for EfficientNet-B7."""

DEFAULT_LOADER_WORKERS = 0


@dataclass(frozen=True)
class SizeResult:
    """The measurement of the job with one number of replicas.

    Attributes:
        replicas: number of replicas.
        processes: number of processes, one for each GPU.
        images: images of the steps that were measured.
        seconds: wall-clock time of these steps.
        epoch_images: images of an epoch.
        data: seconds in which a process read images, averaged over the processes; None if not recorded.
        compute: seconds in which a process computed, averaged; None if not recorded.
        exchange: seconds of a process in all-reduces, including waits for the others, averaged; None if not recorded.
        processor: CPU seconds of all processes together; None if not recorded.
    """

    replicas: int
    processes: int
    images: int
    seconds: float
    epoch_images: int
    data: float | None
    compute: float | None
    exchange: float | None
    processor: float | None

    @property
    def images_per_second(self) -> float:
        """Speed of the whole group."""
        return self.images / self.seconds

    @property
    def epoch_seconds(self) -> float:
        """Time of an epoch in seconds; extrapolated if only part of it was measured."""
        return self.epoch_images / self.images_per_second

    @property
    def is_extrapolated(self) -> bool:
        """True if only part of an epoch was measured."""
        return self.images < self.epoch_images

    @property
    def all_reduce_share(self) -> float | None:
        """Share of a step's time in all-reduces; None if not recorded."""
        if self.exchange is None:
            return None
        steps = self.exchange + (self.data or 0.0) + (self.compute or 0.0)
        return self.exchange / steps if steps else 0.0

    @property
    def cpu_milliseconds(self) -> float | None:
        """CPU time for one image in milliseconds; None if not recorded."""
        return None if self.processor is None else 1000 * self.processor / self.images

    def as_value(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return asdict(self)


def efficiencies(sizes: Sequence[SizeResult]) -> list[float]:
    """Return the efficiency of each size relative to linear scaling from the smallest size."""
    if not sizes:
        return []
    base = min(sizes, key=lambda size: size.replicas)
    base_speed = base.images_per_second / base.replicas
    return [size.images_per_second / size.replicas / base_speed for size in sizes]


def size_result(run: RunRecord, replicas: int, processes: int) -> SizeResult:
    """Return the result of a run of one size.

    Args:
        run: record of the run, with all steps.
        replicas: number of replicas.
        processes: number of processes of the group.

    Raises:
        EverstepError: the group had another size for some steps, or too few steps were recorded.
    """
    start = run.newest_start
    steps = run.steps
    if start is None or len(steps) <= WARM_UP_STEPS:
        raise EverstepError(
            f"{len(steps)} steps were recorded with {replicas} replicas, and the first {WARM_UP_STEPS} do not count",
            "Measure more steps or more images.",
        )
    if other_sizes := {step.world_size for step in steps} - {processes}:
        raise EverstepError(
            f"the group of {processes} processes had {', '.join(map(str, sorted(other_sizes)))} for some steps",
            "A machine was lost or joined late: start the command again, which measures only this size.",
        )
    epoch_images = start.number("dataset_size")
    is_epoch = sum(step.images for step in steps) >= epoch_images
    measured_steps = steps if is_epoch else steps[WARM_UP_STEPS:]
    started_at = measured_steps[0].at - measured_steps[0].seconds
    share = sum(step.images for step in measured_steps) / sum(step.images for step in steps)
    return SizeResult(
        replicas=replicas,
        processes=processes,
        images=sum(step.images for step in measured_steps),
        seconds=measured_steps[-1].at - started_at,
        epoch_images=epoch_images,
        **_activity_seconds(run, share),
    )


def _activity_seconds(run: RunRecord, share: float) -> dict[str, float | None]:
    """Return the time of the counted steps by activity.

    Journals have sums since the start of a process, so the sums before the first step are subtracted.

    Args:
        run: record of the run.
        share: counted images as a share of the images of all steps.
    """
    by_worker: dict[str, list[JournalEntry]] = {}
    for entry in run.of_kind("seconds"):
        by_worker.setdefault(entry.worker, []).append(entry)
    workers = list(by_worker.values())
    names = {"data": Activity.DATA, "compute": Activity.COMPUTE, "exchange": Activity.EXCHANGE}
    sums = {name: _increase(workers, activity.value) for name, activity in names.items()}
    means = {
        name: None if value is None else share * value / len(workers)
        for name, value in sums.items()
    }
    processor = _increase(workers, PROCESSOR, required=True)
    return {**means, "processor": None if processor is None else share * processor}


def _increase(
    workers: Sequence[Sequence[JournalEntry]], name: str, *, required: bool = False
) -> float | None:
    """Return the increase of a measure from the first to the last entry, summed over all workers.

    Args:
        workers: entries of each worker, by time.
        name: key of the measure.
        required: whether the increase is unknown (None) if any entry lacks the measure; otherwise it counts as 0.
    """
    if not workers or (
        required and any(entry.measure(name) is None for entries in workers for entry in entries)
    ):
        return None
    return sum(
        (entries[-1].measure(name) or 0.0) - (entries[0].measure(name) or 0.0)
        for entries in workers
    )
