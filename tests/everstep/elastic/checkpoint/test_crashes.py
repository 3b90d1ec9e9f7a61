"""A committed checkpoint is neither lost nor replaced by an older one when its writer fails.

Writers are killed, lose power, run out of space, and pause at any operation while others continue.
"""

import contextlib
import random

import pytest
import torch

from everstep.elastic.checkpoint import files, restore
from everstep.elastic.checkpoint.bucket_store import BucketCheckpoint
from everstep.elastic.checkpoint.files import FencedError, Manifest
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.restore import CommitRecord
from everstep.elastic.checkpoint.store import StoredCheckpoint
from tests.effort import seeds
from tests.everstep.elastic.checkpoint.media import FOLDER, MEDIA, Medium, crash
from tests.everstep.elastic.checkpoint.simulated_disk import (
    CrashError,
    File,
    SimulatedDisk,
    StaleView,
)

RUN = {"model": "tiny"}
SCHEDULES = 400
PARTS = 4  # parameters of the test, so that parallel pytest processes can share the schedules


class World:
    """A run of successive groups: one medium, the record of the newest commit, and a random number generator."""

    def __init__(self, seed: int, medium: Medium) -> None:
        self.rng, self.medium = random.Random(seed), medium
        self.record, self.generation, self.step = CommitRecord(), 1, 0
        self.depth = 0  # number of writers that are paused, each during the pause of another one

    def commit(self, manifest: Manifest) -> bool:
        """Record a commit of the current generation; sometimes its response is lost."""
        if manifest.generation != self.generation:
            return False
        self.record = CommitRecord(manifest.generation, manifest.step)
        return self.rng.random() > 0.1

    def write(self) -> None:
        """Write the current group's next checkpoint."""
        self.step += 8
        state = {"weight": torch.full((40,), float(self.step))}
        manifest = Manifest(self.step, self.generation, RUN)
        with contextlib.suppress(FencedError, OSError):
            self.medium.store.write(state, manifest, commit=self.commit, keep=2)

    def form_group(self) -> None:
        """Start the next generation, from the checkpoint that it finds."""
        self.generation += 1
        self.medium.clear()
        checkpoint = restore.restore_point(self.medium.store, RUN, self.record, wait_seconds=0)
        self.check(checkpoint)
        self.step = checkpoint.manifest.step if checkpoint else 0

    def check(self, checkpoint: StoredCheckpoint | None) -> None:
        """Raise AssertionError if a committed checkpoint is lost."""
        if self.record.generation:
            assert checkpoint is not None, f"{self.record} is lost"
            assert self.record.is_satisfied_by(checkpoint.manifest), (
                f"{checkpoint} instead of {self.record}"
            )
        if isinstance(checkpoint, BucketCheckpoint):  # a folder's state is read from the real disk
            weight = checkpoint.load()["weight"]
            assert torch.equal(weight, torch.full((40,), float(checkpoint.manifest.step)))

    def write_with_fault(self) -> None:
        """Write, usually with a fault; form the next group after a fault."""
        fault = self.rng.choice([*self.medium.faults, "none"])
        self.medium.inject(fault, self.rng, self.run_other_writers)
        with contextlib.suppress(CrashError):
            self.write()
        self.medium.apply_crash_effects(fault, self.rng)
        if fault != "none":
            self.form_group()

    def run_other_writers(self) -> None:
        """Write as another group while this writer is paused."""
        self.form_group()
        for _ in range(self.rng.randrange(3)):
            self.write()
        if self.depth < 2 and self.rng.random() < 0.3:
            self.depth += 1
            self.write_with_fault()


@pytest.mark.schedules
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", MEDIA)
def test_a_committed_checkpoint_is_never_lost(name: str, part: int) -> None:
    for seed in seeds(SCHEDULES)[part::PARTS]:
        world = World(seed, MEDIA[name]())
        for _ in range(6):
            world.write_with_fault()
        world.form_group()


def write(disk: SimulatedDisk, step: int, generation: int = 1, *, committed: bool = True) -> None:
    files.write(
        FOLDER,
        {"weight": torch.zeros(40)},
        Manifest(step, generation, RUN),
        commit=lambda _: committed,
        disk=disk,
    )


def test_folders_that_another_writer_created_are_durable_before_the_commit() -> None:
    """`make search` found this: the other writer was paused before it made the name of the run's folder durable."""
    for seed in range(50):
        disk = SimulatedDisk()
        disk.actions_before[1] = (
            crash  # between the creation of the run's folder and the sync of its parent
        )
        with pytest.raises(CrashError):
            write(disk, 8)

        write(disk, 8)
        disk.lose_power(random.Random(seed))

        checkpoint = restore.restore_point(
            FolderStore(FOLDER, disk), RUN, CommitRecord(1, 8), wait_seconds=0
        )
        assert checkpoint is not None


def test_all_of_a_checkpoint_is_durable_before_it_is_committed() -> None:
    for seed in range(50):
        disk = SimulatedDisk()

        def commit(_: Manifest, disk: SimulatedDisk = disk) -> bool:
            disk.actions_before[len(disk.operations)] = crash
            return True

        with pytest.raises(CrashError):
            files.write(
                FOLDER, {"weight": torch.zeros(40)}, Manifest(8, 1, RUN), commit=commit, disk=disk
            )
        disk.lose_power(random.Random(seed))

        checkpoint = restore.restore_point(
            FolderStore(FOLDER, disk), RUN, CommitRecord(1, 8), wait_seconds=0
        )
        assert checkpoint is not None, "the commit must outlive a power failure right after it"
        assert checkpoint.manifest.step == 8


def test_the_new_name_is_durable_before_older_checkpoints_are_removed() -> None:
    disk = SimulatedDisk()
    for step in (8, 16, 24, 32):
        write(disk, step)

    operations = disk.operations
    rename_index = max(
        i
        for i, (kind, name) in enumerate(operations)
        if (kind, name) == ("rename", "step-00000032")
    )
    removal_index = max(
        i
        for i, (kind, name) in enumerate(operations)
        if (kind, name) == ("remove", "step-00000008")
    )
    assert ("sync folder", "checkpoints") in operations[rename_index:removal_index]


def test_the_state_is_durable_before_its_manifest_is_created() -> None:
    disk = SimulatedDisk()
    write(disk, 8)

    sync_index = disk.operations.index(("sync", files.STATE_FILE))
    assert sync_index < disk.operations.index(("create", files.MANIFEST_FILE))


@pytest.mark.parametrize(
    "operation",
    [
        ("sync", files.STATE_FILE),
        ("sync", files.MANIFEST_FILE),
        ("sync folder", "staging"),
        ("sync folder", "checkpoints"),
    ],
)
def test_each_sync_comes_before_the_commit(operation: tuple[str, str]) -> None:
    disk, operations_at_commit = SimulatedDisk(), list[tuple[str, str]]()

    def commit(_: Manifest) -> bool:
        operations_at_commit.extend(
            (kind, "staging" if name.startswith(".step-") else name)
            for kind, name in disk.operations
        )
        return True

    files.write(FOLDER, {"weight": torch.zeros(40)}, Manifest(8, 1, RUN), commit=commit, disk=disk)

    creation_index = max(
        i for i, op in enumerate(operations_at_commit) if op == ("mkdir", "staging")
    )
    assert operation in operations_at_commit[creation_index:], (
        "a power failure after the commit would lose the checkpoint"
    )


def test_a_writer_that_was_paused_between_commit_and_rename_does_not_remove_the_checkpoint() -> (
    None
):
    disk = SimulatedDisk()
    write(disk, 90)

    def commit_then_pause(_: Manifest) -> bool:
        files.place_committed(FOLDER, 1, 100, disk)
        return True

    files.write(
        FOLDER, {"w": torch.zeros(4)}, Manifest(100, 1, RUN), commit=commit_then_pause, disk=disk
    )

    checkpoint = restore.newest_checkpoint(
        FolderStore(FOLDER, disk), RUN, record=CommitRecord(1, 100)
    )
    assert checkpoint is not None
    assert checkpoint.manifest.step == 100


def test_a_folder_that_becomes_valid_while_it_is_moved_away_is_put_back() -> None:
    disk = SimulatedDisk()
    write(disk, 100, generation=5)
    _damage(disk, 100)

    def others_replace_it() -> None:
        write(disk, 100, generation=7)

    def commit(_: Manifest) -> bool:
        # After the check, before the rename.
        disk.actions_before[len(disk.operations)] = others_replace_it
        return True

    files.write(FOLDER, {"w": torch.zeros(4)}, Manifest(100, 6, RUN), commit=commit, disk=disk)

    checkpoint = restore.newest_checkpoint(
        FolderStore(FOLDER, disk), RUN, record=CommitRecord(7, 100)
    )
    assert checkpoint is not None, "the checkpoint of generation 7 was committed last"


def test_a_damaged_folder_of_the_same_step_does_not_hide_a_committed_one() -> None:
    disk = SimulatedDisk()
    write(disk, 96)
    write(disk, 100, generation=5)
    _damage(disk, 100)
    with pytest.raises(FencedError):
        write(disk, 100, generation=6, committed=False)  # etcd recorded it, then the writer died

    checkpoint = restore.restore_point(
        FolderStore(FOLDER, disk), RUN, CommitRecord(6, 100), wait_seconds=0
    )

    assert checkpoint is not None
    assert (checkpoint.manifest.generation, checkpoint.manifest.step) == (6, 100)


def test_a_damaged_folder_of_the_same_step_is_replaced_by_a_new_write() -> None:
    disk = SimulatedDisk()
    write(disk, 100, generation=5)
    _damage(disk, 100)

    write(disk, 100, generation=6)

    checkpoint = restore.newest_checkpoint(FolderStore(FOLDER, disk), RUN)
    assert checkpoint is not None
    assert checkpoint.manifest.generation == 6


def test_a_committed_checkpoint_that_another_machine_does_not_list_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "POLL_SECONDS", 0.01)
    disk = SimulatedDisk()
    write(disk, 8)
    view = StaleView(disk, FOLDER, cached_reads=7)
    write(disk, 16, generation=2)

    checkpoint = restore.restore_point(
        FolderStore(FOLDER, view), RUN, CommitRecord(2, 16), wait_seconds=20
    )

    assert checkpoint is not None
    assert checkpoint.manifest.step == 16, "the cached list has only step 8"


def _damage(disk: SimulatedDisk, step: int) -> None:
    folder = disk._folder(FOLDER / files.folder_name(step))
    file = folder.entries[files.STATE_FILE]
    assert isinstance(file, File)
    file.data = file.data[:-1] + b"\xff"
