"""A simulated folder and a simulated bucket with a common interface for injecting faults."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from everstep.elastic.checkpoint.bucket_store import BucketStore
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.store import CheckpointStore
from tests.everstep.elastic.checkpoint.simulated_bucket import SimulatedBucket
from tests.everstep.elastic.checkpoint.simulated_disk import CrashError, SimulatedDisk

FOLDER = Path("/run/checkpoints")
OPERATIONS = 30  # more operations than a single write performs


class Medium(Protocol):
    """Storage for checkpoints that fails on demand.

    Attributes:
        store: the checkpoints in this medium.
        faults: names of the faults that it can have, besides "none".
    """

    store: CheckpointStore
    faults: tuple[str, ...]

    def inject(self, fault: str, rng: random.Random, other_writers: Callable[[], None]) -> None:
        """Inject a fault at one of the next operations; during a pause, `other_writers` write."""

    def apply_crash_effects(self, fault: str, rng: random.Random) -> None:
        """Apply the effects that a fault has after the end of the writer."""

    def clear(self) -> None:
        """Cancel the injected faults."""


class DiskMedium:
    """A simulated folder."""

    faults: tuple[str, ...] = ("killed", "power", "space", "paused")

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.store: CheckpointStore = FolderStore(FOLDER, self.disk)

    def inject(self, fault: str, rng: random.Random, other_writers: Callable[[], None]) -> None:
        position = len(self.disk.operations) + rng.randrange(OPERATIONS)
        if fault == "space":
            self.disk.free_bytes = rng.randrange(900)  # a checkpoint has about 400 bytes
        elif fault == "paused":
            self.disk.actions_before[position] = other_writers
        elif fault != "none":
            self.disk.actions_before[position] = crash

    def apply_crash_effects(self, fault: str, rng: random.Random) -> None:
        if fault == "power":
            self.disk.lose_power(rng)

    def clear(self) -> None:
        self.disk.actions_before.clear()
        self.disk.free_bytes = None


class BucketMedium:
    """A simulated bucket; with the fault `late`, some earlier puts arrive again after the writer has ended."""

    faults: tuple[str, ...] = ("killed", "broken", "lost response", "paused", "late")

    def __init__(self) -> None:
        self.bucket = SimulatedBucket()
        self.store: CheckpointStore = BucketStore(self.bucket)

    def inject(self, fault: str, rng: random.Random, other_writers: Callable[[], None]) -> None:
        position = len(self.bucket.requests) + rng.randrange(OPERATIONS // 2)
        if fault == "broken":
            # The second request is the attempt to clean up.
            self.bucket.broken_requests |= {position, position + 1}
        elif fault == "lost response":
            self.bucket.lost_responses.add(position)
        elif fault == "paused":
            self.bucket.actions_before[position] = other_writers
        elif fault == "killed":
            self.bucket.actions_before[position] = crash

    def apply_crash_effects(self, fault: str, rng: random.Random) -> None:
        if fault == "late":
            self.bucket.deliver_again(rng)

    def clear(self) -> None:
        self.bucket.actions_before.clear()
        self.bucket.broken_requests.clear()
        self.bucket.lost_responses.clear()


MEDIA: dict[str, type[DiskMedium] | type[BucketMedium]] = {
    "folder": DiskMedium,
    "bucket": BucketMedium,
}


def crash() -> None:
    """End the writer."""
    raise CrashError
