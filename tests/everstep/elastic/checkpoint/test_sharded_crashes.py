"""A checkpoint of several shards is complete or absent when any of its writers fails.

The workers of a node are killed, lose power, run out of space, and pause at any operation. EVERSTEP_SCHEDULES=5000
runs more schedules.
"""

import contextlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from everstep.elastic.checkpoint import restore, state_format
from everstep.elastic.checkpoint.files import FencedError, Manifest
from everstep.elastic.checkpoint.restore import CommitRecord
from everstep.elastic.checkpoint.sharded_store import ShardedFolderStore, Sharding, SnapshotName
from tests.everstep.elastic.checkpoint.media import FOLDER, OPERATIONS, crash
from tests.everstep.elastic.checkpoint.simulated_disk import CrashError, File, SimulatedDisk

SHARDS = 3
RUN = {"model": "tiny", "shards": SHARDS}
SCHEDULES = int(os.environ.get("EVERSTEP_SCHEDULES", "400"))


@dataclass
class Node:
    """A node: the ID of its present worker processes, and the number of their last snapshot."""

    processes_id: int
    number: int = 0

    def sharding(self, shard: int) -> Sharding:
        return Sharding(shard, SHARDS, lambda: f"{self.processes_id:08x}")

    def next_snapshot(self, generation: int) -> str:
        self.number += 1
        return str(SnapshotName(f"{self.processes_id:08x}", self.number, generation))


class World:
    """A run of successive groups, in each of which one node writes: one disk, and the record of the newest commit.

    Attributes:
        polls: for each write in progress, the function that is called whenever its first worker polls for the shards.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.disk = random.Random(seed), SimulatedDisk()
        self.disk.make_folder(FOLDER.parent)
        self.disk.sync_folder(FOLDER.parent.parent)
        self.record, self.generation, self.step = CommitRecord(), 1, 0
        self.node, self._nodes = Node(1), 1
        self.polls: list[Callable[[], None]] = []
        self.depth = 0  # pauses of a writer during the pause of another

    def store(self, shard: int, node: Node | None = None) -> ShardedFolderStore:
        sharding = (node or self.node).sharding(shard)
        return ShardedFolderStore(FOLDER, sharding, disk=self.disk)

    def commit(self, manifest: Manifest) -> bool:
        """Record a commit of the current generation; sometimes its response is lost."""
        if manifest.generation != self.generation:
            return False
        self.record = CommitRecord(manifest.generation, manifest.step)
        return self.rng.random() > 0.1

    def write(self) -> None:
        """Write the current node's next checkpoint; each other worker writes before or while the first one waits."""
        self.step += 8
        node, snapshot = self.node, self.node.next_snapshot(self.generation)
        manifest = Manifest(self.step, self.generation, RUN, snapshot=snapshot)
        others = [self._writer(node, shard, manifest) for shard in range(1, SHARDS)]
        self.rng.shuffle(others)
        while others and self.rng.random() < 0.5:
            others.pop()()

        def poll() -> None:
            if others:
                others.pop()()
            else:  # a worker was killed, and its replacement changes the ID
                node.processes_id += 1000

        self.polls.append(poll)
        try:
            with contextlib.suppress(FencedError, OSError):
                self._write_shard(node, 0, manifest)
        finally:
            self.polls.pop()
            if self.rng.random() < 0.5:  # the others outlive the first worker
                for other in others:
                    other()

    def _writer(self, node: Node, shard: int, manifest: Manifest) -> Callable[[], None]:
        def write() -> None:
            with contextlib.suppress(CrashError, OSError):
                self._write_shard(node, shard, manifest)

        return write

    def _write_shard(self, node: Node, shard: int, manifest: Manifest) -> None:
        state = {"weight": torch.full((10,), float(1000 * shard + manifest.step))}
        self.store(shard, node).write(state, manifest, commit=self.commit, keep=2)

    def form_group(self) -> None:
        """Start the next generation with another node, from the checkpoint that it finds."""
        self.generation += 1
        self._nodes += 1
        self.node = Node(self._nodes)
        self.disk.actions_before.clear()
        self.disk.free_bytes = None
        checkpoint = restore.restore_point(self.store(0), RUN, self.record, wait_seconds=0)
        if self.record.generation:
            assert checkpoint is not None, f"{self.record} is lost"
            assert self.record.is_satisfied_by(checkpoint.manifest), "an older one is restored"
        self.step = checkpoint.manifest.step if checkpoint else 0
        if checkpoint:
            self._check_shards(self.step, checkpoint.manifest.generation)

    def _check_shards(self, step: int, generation: int) -> None:
        """Check that each worker of the node restores its shard of this step."""
        for shard in range(SHARDS):
            own = self.store(shard).check_own(step, generation)
            content = bytearray(b"".join(self.disk.read(own.path / own.state_file)))
            weight = state_format.decode(content)["weight"]
            assert torch.equal(weight, torch.full((10,), float(1000 * shard + step)))

    def write_with_fault(self) -> None:
        """Write, usually with a fault; form the next group after a fault."""
        fault = self.rng.choice(["killed", "power", "space", "paused", "none"])
        position = len(self.disk.operations) + self.rng.randrange(2 * OPERATIONS)
        if fault == "space":
            self.disk.free_bytes = self.rng.randrange(900)
        elif fault == "paused":
            self.disk.actions_before[position] = self.run_other_writers
        elif fault != "none":
            self.disk.actions_before[position] = crash
        with contextlib.suppress(CrashError):
            self.write()
        if fault == "power":
            self.disk.lose_power(self.rng)
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


@pytest.fixture(autouse=True)
def worlds(monkeypatch: pytest.MonkeyPatch) -> list[World]:
    """Return the list for the current world, whose first workers do not really wait."""
    current = list[World]()
    sleep = "everstep.elastic.checkpoint.sharded_store.time.sleep"
    monkeypatch.setattr(sleep, lambda _: current[-1].polls[-1]())
    return current


@pytest.mark.parametrize("part", range(4))
def test_a_committed_checkpoint_of_all_shards_is_never_lost(worlds: list[World], part: int) -> None:
    for seed in range(part, SCHEDULES, 4):
        worlds.append(world := World(seed))
        for _ in range(6):
            world.write_with_fault()
        world.form_group()


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_kill_at_each_operation_of_each_worker_leaves_the_old_or_the_new_checkpoint(
    worlds: list[World], *, loses_power: bool
) -> None:
    restored_steps = list[int]()
    for seed in range(4):  # other orders of the workers
        for operation in range(2 * OPERATIONS):
            worlds.append(world := World(seed))
            world.write()
            if world.record.step != 8:
                continue  # the response to its commit was lost
            world.disk.actions_before[len(world.disk.operations) + operation] = crash
            with contextlib.suppress(CrashError):
                world.write()
            if loses_power:
                world.disk.lose_power(world.rng)
            world.form_group()
            restored_steps.append(world.step)
    assert set(restored_steps) == {8, 16}


def test_a_shard_counts_as_written_only_once_it_is_durable(worlds: list[World]) -> None:
    """At each operation of another worker, the first one looks for that worker's shard."""
    worlds.append(world := World(1))
    snapshot = world.node.next_snapshot(1)
    manifest = Manifest(8, 1, RUN, snapshot=snapshot)
    staging = FOLDER / f".step-00000008-{snapshot}"
    observations = list[bool]()

    def observe() -> None:
        is_seen = bool(world.store(0)._written_shard(staging, manifest, 1))
        entry = world.disk._folder(staging).entries.get("state-1-of-3.safetensors")
        is_durable = isinstance(entry, File) and entry.data == entry.durable_data != b""
        assert is_durable or not is_seen, "a power failure would lose a shard of the manifest"
        observations.append(is_seen)

    world.disk.make_folder(staging)
    for position in range(len(world.disk.operations), len(world.disk.operations) + OPERATIONS):
        world.disk.actions_before[position] = observe
    world._write_shard(world.node, 1, manifest)
    observe()

    assert len(observations) > 5
    assert observations[-1], "it is seen in the end"


def test_everything_is_durable_before_the_commit(worlds: list[World]) -> None:
    for seed in range(50):
        worlds.append(world := World(seed))

        def commit(manifest: Manifest, world: World = world) -> bool:
            world.record = CommitRecord(manifest.generation, manifest.step)
            world.disk.actions_before[len(world.disk.operations)] = crash
            return True

        world.commit = commit  # type: ignore[method-assign]
        with pytest.raises(CrashError):
            world.write()
        world.disk.lose_power(world.rng)
        world.form_group()
        assert world.step == 8, "the commit must outlive a power failure right after it"


def test_the_folder_of_a_worker_that_was_killed_just_after_creating_it_becomes_durable(
    worlds: list[World],
) -> None:
    for seed in range(20):
        worlds.append(world := World(seed))
        world.disk.actions_before[len(world.disk.operations) + 1] = crash
        manifest = Manifest(8, 1, RUN, snapshot=world.node.next_snapshot(1))
        with pytest.raises(CrashError):
            world._write_shard(world.node, 1, manifest)
        assert world.disk.operations[-2:] == [("mkdir", FOLDER.name), ("sync folder", "run")]

        world.write()
        world.disk.lose_power(world.rng)
        world.form_group()
