"""Checkpoints of a model in shards: written by several workers of a node, restored, damaged, abandoned."""

import errno
import json
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from everstep.elastic.checkpoint import files, restore, sharded_store
from everstep.elastic.checkpoint.disk import DISK, Disk, OutputFile
from everstep.elastic.checkpoint.files import Checkpoint, FencedError, Manifest, shard_file
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.restore import OtherRunError, SkippedCheckpoint
from everstep.elastic.checkpoint.sharded_store import ShardedFolderStore, Sharding, SnapshotName
from everstep.elastic.checkpoint.state_format import Tensors
from everstep.errors import EverstepError

SHARDS = 2
FINGERPRINT = {"model": "tiny", "shards": SHARDS}


@dataclass
class Node:
    """The workers of a node with their stores.

    Attributes:
        folder: folder of the checkpoints.
        disk: file system of the workers after the first.
        timeout_seconds: time without progress after which the first worker gives up.
        processes: identifier of the current processes.
        number: number of the last snapshot.
    """

    folder: Path
    disk: Disk = DISK
    timeout_seconds: float = 100.0
    processes: str = "0000000a"
    number: int = 0
    stores: list[ShardedFolderStore] = field(init=False)

    def __post_init__(self) -> None:
        self.stores = [
            ShardedFolderStore(
                self.folder,
                Sharding(shard, SHARDS, lambda: self.processes),
                self.timeout_seconds,
                self.disk if shard else DISK,
            )
            for shard in range(SHARDS)
        ]

    def next_snapshot(self) -> str:
        self.number += 1
        return str(SnapshotName(self.processes, self.number, 1))

    def write(
        self,
        shard: int,
        step: int,
        snapshot: str,
        state: Tensors | None = None,
        *,
        generation: int = 1,
    ) -> int:
        """Write one worker's shard."""
        state = state or {"weight": torch.full((300,), 10.0 * step + shard)}
        manifest = Manifest(step, generation, FINGERPRINT, {"shard": shard}, snapshot=snapshot)
        return self.stores[shard].write(state, manifest, commit=lambda _: True, keep=3)

    def save(self, step: int) -> Path:
        """Write a checkpoint; return its folder."""
        snapshot = self.next_snapshot()
        for shard in (*range(1, SHARDS), 0):
            self.write(shard, step, snapshot)
        return self.folder / files.folder_name(step)

    @contextmanager
    def first_worker_writes(self, step: int, snapshot: str) -> Iterator[Future[int]]:
        """Let the first worker write while the block runs, and wait for its end."""
        with ThreadPoolExecutor(1) as executor:
            yield executor.submit(self.write, 0, step, snapshot)


@pytest.fixture(autouse=True)
def _polls_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_store, "POLL_SECONDS", 0.002)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "checkpoints")


def newest(node: Node, shard: int = 0) -> tuple[Checkpoint | None, list[SkippedCheckpoint]]:
    """Return the checkpoint that a worker continues from, and those that it skips."""
    skipped = list[SkippedCheckpoint]()
    checkpoint = restore.newest_checkpoint(node.stores[shard], FINGERPRINT, skipped.append)
    assert checkpoint is None or isinstance(checkpoint, Checkpoint)
    return checkpoint, skipped


def reasons(node: Node) -> list[str]:
    return [skip.reason for skip in newest(node)[1]]


def test_each_worker_restores_its_shard_and_its_extra_values(node: Node) -> None:
    node.save(7)

    chosen, _ = newest(node)
    assert chosen is not None
    for shard, checkpoint in enumerate((chosen, node.stores[1].check_own(7, 1))):
        assert torch.equal(checkpoint.load()["weight"], torch.full((300,), 70.0 + shard))
        assert checkpoint.manifest.extra == {"shard": shard}
        assert checkpoint.manifest.step == 7


def test_the_manifest_has_size_checksum_and_extra_values_of_each_shard(node: Node) -> None:
    folder = node.save(7)

    manifest = json.loads((folder / files.MANIFEST_FILE).read_text())

    sizes = [(folder / shard_file(shard, SHARDS)).stat().st_size for shard in range(SHARDS)]
    assert [shard["bytes"] for shard in manifest["shards"]] == sizes
    assert len({shard["checksum"] for shard in manifest["shards"]}) == SHARDS
    assert manifest["bytes"] == sum(sizes)
    assert manifest["extra"] == {"shard": 0}, "verifiers of the ledger read it"


def test_the_format_of_a_whole_state_is_unchanged(tmp_path: Path) -> None:
    """A checkpoint of an earlier version stays readable, and an earlier version can read a new one."""
    path = files.write(
        tmp_path, {"a": torch.ones(2)}, Manifest(3, 1, {"model": "m"}), commit=lambda _: True
    )

    fields = json.loads((path / files.MANIFEST_FILE).read_text())
    assert list(fields) == [
        "format", "seal", "step", "generation", "fingerprint", "extra", "checksum", "bytes",
    ]  # fmt: skip


def test_the_first_worker_waits_for_the_shards_of_the_others(node: Node) -> None:
    snapshot = node.next_snapshot()

    with node.first_worker_writes(8, snapshot) as writing:
        with pytest.raises(TimeoutError):
            writing.result(0.1)
        assert newest(node) == (None, [])
        node.write(1, 8, snapshot)

    assert writing.result() > 2 * 300 * 4
    assert newest(node)[0] is not None


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_damaged_or_missing_shard_makes_the_checkpoint_invalid(node: Node, shard: int) -> None:
    previous_folder = node.save(2)
    file = node.save(3) / shard_file(shard, SHARDS)
    content = file.read_bytes()
    label = f"its shard {shard} of 2"

    file.write_bytes(content[:-1] + b"\1")
    assert reasons(node) == [f"{label} is damaged: the checksum differs"]
    file.write_bytes(content[:-1])
    assert reasons(node) == [f"{label} has {len(content) - 1} bytes instead of {len(content)}"]
    file.unlink()
    assert reasons(node)[0].startswith(f"{label} cannot be read:")
    for other_shard in range(SHARDS):
        restored, _ = newest(node, other_shard)
        assert restored is not None
        assert restored.location == str(previous_folder), "all workers skip it"


def test_any_damage_of_any_file_is_detected(node: Node, tmp_path: Path) -> None:
    rng = random.Random(5)
    folder = node.save(3)
    intact = shutil.copytree(folder, tmp_path / "intact")
    for _ in range(60):
        shutil.rmtree(folder)
        shutil.copytree(intact, folder)
        names = [files.MANIFEST_FILE, *(shard_file(shard, SHARDS) for shard in range(SHARDS))]
        file = folder / rng.choice(names)
        content = bytearray(file.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        assert newest(node)[0] is None, f"{file.name} is damaged"


def test_a_shard_of_another_step_is_detected(node: Node) -> None:
    first, second = node.save(2), node.save(3)
    for shard in range(SHARDS):
        file = shard_file(shard, SHARDS)
        content = (second / file).read_bytes()
        shutil.copyfile(first / file, second / file)
        assert reasons(node) == [f"its shard {shard} of 2 is damaged: the checksum differs"]
        (second / file).write_bytes(content)


def test_a_worker_refuses_its_shard_of_another_checkpoint_than_the_chosen_one(node: Node) -> None:
    file = node.save(7) / shard_file(1, SHARDS)

    with pytest.raises(ValueError, match="replaced by another"):
        node.stores[1].check_own(7, 2)
    file.write_bytes(b"torn")
    with pytest.raises(ValueError, match="its shard 1 of 2 has 4 bytes"):
        node.stores[1].check_own(7, 1)
    with pytest.raises(ValueError, match="no manifest"):
        node.stores[1].check_own(8, 1)


def test_another_number_of_shards_is_refused_with_both_numbers(node: Node) -> None:
    node.save(7)

    with pytest.raises(OtherRunError, match="in 2 shards, and this run has it in 4") as error:
        restore.newest_checkpoint(node.stores[0], {**FINGERPRINT, "shards": 4})
    assert "--nproc-per-node 2" in error.value.fix
    with pytest.raises(OtherRunError, match="in 2 shards, and this run has it in 1"):
        restore.newest_checkpoint(FolderStore(node.folder), {"model": "tiny"})


def test_a_model_in_shards_does_not_continue_from_a_whole_state(node: Node) -> None:
    files.write(
        node.folder, {"a": torch.ones(2)}, Manifest(3, 1, {"model": "tiny"}), commit=lambda _: True
    )

    with pytest.raises(OtherRunError, match="in 1 shard, and this run has it in 2"):
        newest(node)


def test_a_refused_commit_leaves_the_checkpoint_invisible_until_it_turns_out_to_be_committed(
    node: Node,
) -> None:
    snapshot = node.next_snapshot()
    node.write(1, 8, snapshot)
    with pytest.raises(FencedError):
        node.stores[0].write(
            {"weight": torch.zeros(3)},
            Manifest(8, 1, FINGERPRINT, snapshot=snapshot),
            commit=lambda _: False,
            keep=3,
        )
    assert newest(node)[0] is None

    node.stores[0].place_committed(1, 8)

    assert newest(node)[0] is not None


def test_a_worker_after_the_first_commits_nothing(node: Node) -> None:
    def commit(_: Manifest) -> bool:
        raise AssertionError

    node.stores[1].write(
        {"weight": torch.zeros(3)},
        Manifest(8, 1, FINGERPRINT, snapshot=node.next_snapshot()),
        commit=commit,
        keep=3,
    )

    assert newest(node)[0] is None


# --- shards that are never written ---


def refusal(writing: "Future[int]") -> str:
    error = writing.exception(60)
    assert isinstance(error, OSError), error
    return str(error)


class FullDisk(Disk):
    """A disk that is full once the file of a shard has been created."""

    @contextmanager
    def create(self, path: Path) -> Iterator[OutputFile]:
        with super().create(path) as file:
            if path.suffix == ".safetensors":
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            yield file


def test_the_first_worker_reports_why_another_one_could_not_write(tmp_path: Path) -> None:
    node = Node(tmp_path, FullDisk())
    snapshot = node.next_snapshot()

    with node.first_worker_writes(8, snapshot) as writing:
        with pytest.raises(OSError, match="No space left"):
            node.write(1, 8, snapshot)
        assert "shard 1 of 2 is not written: [Errno 28] No space left" in refusal(writing)
    assert list(tmp_path.iterdir()) == [], "a failed checkpoint takes no space"


def test_the_first_worker_reports_a_tensor_that_another_one_cannot_save(tmp_path: Path) -> None:
    """Without its report, the first worker would wait until the storage counts as hung."""
    node = Node(tmp_path)
    snapshot = node.next_snapshot()
    complex_state = {"w": torch.ones(2, dtype=torch.complex64)}

    with node.first_worker_writes(8, snapshot) as writing:
        with pytest.raises(EverstepError, match="complex64"):
            node.write(1, 8, snapshot, complex_state)
        assert "shard 1 of 2 is not written: the tensor w is of type" in refusal(writing)
    assert list(tmp_path.iterdir()) == [], "a failed checkpoint takes no space"


def test_a_snapshot_that_was_replaced_on_another_worker_is_given_up(node: Node) -> None:
    """The other worker took the newer snapshot before it wrote this one; the first worker has both."""
    first_snapshot, second_snapshot = node.next_snapshot(), node.next_snapshot()

    with node.first_worker_writes(8, first_snapshot) as writing:
        node.write(1, 16, second_snapshot)
        assert "has begun a later one" in refusal(writing)
    node.write(0, 16, second_snapshot)

    restored, _ = newest(node)
    assert restored is not None
    assert restored.manifest.step == 16


def test_a_shard_counts_although_its_worker_has_begun_a_later_one(node: Node) -> None:
    first_snapshot, second_snapshot = node.next_snapshot(), node.next_snapshot()
    node.write(1, 8, first_snapshot)
    node.write(1, 16, second_snapshot)

    node.write(0, 8, first_snapshot)

    assert newest(node)[0] is not None


def test_the_wait_for_a_process_that_was_replaced_ends(node: Node) -> None:
    with node.first_worker_writes(8, node.next_snapshot()) as writing:
        node.processes = "0000000b"
        assert "a worker of this node was replaced" in refusal(writing)


def test_the_wait_ends_when_the_folder_is_removed(node: Node) -> None:
    snapshot = node.next_snapshot()

    with node.first_worker_writes(8, snapshot) as writing:
        with pytest.raises(TimeoutError):
            writing.result(0.1)
        shutil.rmtree(node.folder / f".step-00000008-{snapshot}")
        assert "its folder was removed" in refusal(writing)


def test_the_wait_for_a_worker_whose_storage_hangs_ends(tmp_path: Path) -> None:
    node = Node(tmp_path, timeout_seconds=0.1)

    with node.first_worker_writes(8, node.next_snapshot()) as writing:
        assert "there was no progress for 0 s" in refusal(writing)


class SlowDisk(Disk):
    """A disk whose files grow slowly.

    Attributes:
        before_part: called before each part of a file is written.
    """

    before_part: Callable[[], object] = staticmethod(lambda: None)

    @contextmanager
    def create(self, path: Path) -> Iterator[OutputFile]:
        with path.open("wb", buffering=0) as raw:
            yield _SlowFile(raw.write, self.before_part)


class _SlowFile:
    def __init__(self, write: Callable[[bytes], object], before_part: Callable[[], object]) -> None:
        self._write, self._before_part = write, before_part

    def write(self, data: bytes | memoryview, /) -> object:
        for first in range(0, len(data), 100):
            self._before_part()
            self._write(bytes(data[first : first + 100]))
        return len(data)

    def sync(self) -> None:
        self._before_part()


def test_a_slow_worker_is_waited_for_as_long_as_its_file_grows(tmp_path: Path) -> None:
    disk, pause = SlowDisk(), threading.Event()
    node = Node(tmp_path, disk, timeout_seconds=1.0)
    disk.before_part = lambda: pause.wait(0.15)  # 14 parts take longer than the timeout
    snapshot = node.next_snapshot()

    with node.first_worker_writes(8, snapshot) as writing:
        node.write(1, 8, snapshot)
        assert writing.result(60)


@pytest.mark.parametrize(
    "change", [{"step": 9}, {"generation": 2}, {"snapshot": "0000000a-000009-g00000001"}]
)
def test_a_shard_of_another_snapshot_is_not_combined(
    tmp_path: Path, change: dict[str, object]
) -> None:
    node = Node(tmp_path, timeout_seconds=0.1)
    snapshot = node.next_snapshot()
    node.write(1, 8, snapshot)
    [written] = tmp_path.glob(".step-*/state-1-of-2.json")
    manifest = files.parse_manifest(written.read_bytes())
    changed = Manifest(**{**vars(manifest), **change})
    written.write_bytes(files.manifest_content(changed, manifest.bytes, manifest.checksum))

    with pytest.raises(OSError, match="shard 1 of 2 is not written"):
        node.write(0, 8, snapshot)


def test_names_of_snapshots_are_read_from_names_of_folders() -> None:
    name = SnapshotName("0123abcd", 1_234_567, 89)

    assert SnapshotName.parse(f".step-00000008-{name}") == name
    assert SnapshotName.parse(".step-00000008-0123abcd") is None
    assert SnapshotName.parse("step-00000008") is None
