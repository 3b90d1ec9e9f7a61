"""A simulated folder and a simulated bucket with the same interface for schedules of faults."""

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
OPERATIONS = 30  # more than one write performs


class Medium(Protocol):
    """A place for checkpoints that fails on demand.

    Attributes:
        store: the store of checkpoints in it.
        faults: names of its faults besides "none".
    """

    store: CheckpointStore
    faults: tuple[str, ...]

    def arrange(self, fault: str, chance: random.Random, others: Callable[[], None]) -> None:
        """Inject a fault at one of the next operations; in a pause `others` write."""

    def crashed(self, fault: str, chance: random.Random) -> None:
        """Run the recovery after the end of a writer."""

    def clear(self) -> None:
        """Cancel the injected faults."""


class DiskMedium:
    """A folder."""

    faults: tuple[str, ...] = ("killed", "power", "space", "paused")

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.store: CheckpointStore = FolderStore(FOLDER, self.disk)

    def arrange(self, fault: str, chance: random.Random, others: Callable[[], None]) -> None:
        position = len(self.disk.operations) + chance.randrange(OPERATIONS)
        if fault == "space":
            self.disk.space = chance.randrange(900)
        elif fault == "paused":
            self.disk.before[position] = others
        elif fault != "none":
            self.disk.before[position] = crash

    def crashed(self, fault: str, chance: random.Random) -> None:
        if fault == "power":
            self.disk.lose_power(chance)

    def clear(self) -> None:
        self.disk.before.clear()
        self.disk.space = None


class BucketMedium:
    """A bucket; before each new group some earlier requests may arrive again."""

    faults: tuple[str, ...] = ("killed", "broken", "unanswered", "paused", "late")

    def __init__(self) -> None:
        self.bucket = SimulatedBucket()
        self.store: CheckpointStore = BucketStore(self.bucket)

    def arrange(self, fault: str, chance: random.Random, others: Callable[[], None]) -> None:
        position = len(self.bucket.requests) + chance.randrange(OPERATIONS // 2)
        if fault == "broken":
            self.bucket.broken |= {
                position,
                position + 1,
            }  # the second request is the attempt to clean up
        elif fault == "unanswered":
            self.bucket.unanswered.add(position)
        elif fault == "paused":
            self.bucket.before[position] = others
        elif fault == "killed":
            self.bucket.before[position] = crash

    def crashed(self, fault: str, chance: random.Random) -> None:
        if fault == "late":
            self.bucket.deliver_late(chance)

    def clear(self) -> None:
        self.bucket.before.clear()
        self.bucket.broken.clear()
        self.bucket.unanswered.clear()


MEDIA: dict[str, type[DiskMedium] | type[BucketMedium]] = {
    "folder": DiskMedium,
    "bucket": BucketMedium,
}


def crash() -> None:
    """End the writer."""
    raise CrashError
