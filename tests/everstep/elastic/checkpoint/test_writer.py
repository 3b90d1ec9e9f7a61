"""The background writer of snapshots."""

import contextlib
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from everstep.elastic.checkpoint import restore
from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.state_format import Tensors
from everstep.elastic.checkpoint.writer import STUCK_SECONDS, HostSnapshot, Writer
from tests.waiting import wait_until

RUN = {"model": "tiny"}
UNPRIVILEGED_USER = 65534


class SavedRun:
    """A run whose writer reports its checkpoints to this object."""

    def __init__(self, folder: Path) -> None:
        self.written_steps: list[int] = []
        self.failures: list[tuple[int, str]] = []
        self.may_commit = threading.Event()  # cleared to simulate a slow disk: the commit waits
        self.may_commit.set()
        self.at_commit = threading.Event()  # set when the commit begins
        self.writer = Writer(
            FolderStore(folder),
            commit=self._commit,
            on_written=lambda manifest, seconds, size: self.written_steps.append(manifest.step),
            on_failed=lambda step, reason: self.failures.append((step, reason)),
        )

    def _commit(self, manifest: Manifest) -> bool:
        self.at_commit.set()
        return self.may_commit.wait(100)

    def start(self, step: int) -> None:
        state = {"weight": torch.full((3000,), float(step))}
        self.writer.start(state, Manifest(step, 1, RUN))

    def save(self, step: int) -> None:
        self.start(step)
        self.writer.wait()


@pytest.fixture
def saved_run(tmp_path: Path) -> SavedRun:
    return SavedRun(tmp_path / "checkpoints")


def newest(folder: Path) -> int:
    checkpoint = restore.newest_checkpoint(FolderStore(folder), RUN)
    return checkpoint.manifest.step if checkpoint else -1


def test_a_snapshot_is_not_changed_by_later_steps(tmp_path: Path, saved_run: SavedRun) -> None:
    weight = torch.zeros(10)
    saved_run.may_commit.clear()
    saved_run.writer.start({"weight": weight}, Manifest(1, 1, RUN))
    weight += 1
    assert saved_run.writer.busy
    saved_run.may_commit.set()
    saved_run.writer.wait()

    checkpoint = restore.newest_checkpoint(FolderStore(tmp_path / "checkpoints"), RUN)
    assert checkpoint is not None
    assert torch.equal(checkpoint.load()["weight"], torch.zeros(10))


def test_training_never_waits_for_a_slow_disk_and_only_the_newest_pending_snapshot_is_written(
    saved_run: SavedRun,
) -> None:
    saved_run.may_commit.clear()
    saved_run.start(1)
    assert saved_run.at_commit.wait(100)
    for step in (2, 3, 4):
        saved_run.start(step)  # returns although the first is not complete

    assert saved_run.writer.busy
    assert saved_run.written_steps == []
    saved_run.may_commit.set()
    saved_run.writer.wait()

    assert saved_run.written_steps == [1, 4]
    assert not saved_run.writer.busy


def test_a_pending_snapshot_is_not_written_while_a_newer_one_replaces_it(
    saved_run: SavedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_run.may_commit.clear()
    saved_run.start(1)
    assert saved_run.at_commit.wait(100)
    saved_run.start(2)
    saved_run.writer.wait_snapshot()
    fits = HostSnapshot.fits

    def let_the_disk_continue(snapshot: HostSnapshot, state: Mapping[str, torch.Tensor]) -> bool:
        saved_run.may_commit.set()
        wait_until(lambda: not saved_run.writer.busy, "the first checkpoint is written", 100)
        return fits(snapshot, state)

    monkeypatch.setattr(HostSnapshot, "fits", let_the_disk_continue)
    saved_run.save(3)  # into the memory of the second snapshot

    assert saved_run.written_steps == [1, 3], "the second one would contain tensors of two steps"


def test_snapshots_use_their_preallocated_memory(saved_run: SavedRun) -> None:
    state = {"weight": torch.ones(3000)}
    saved_run.writer.prepare(state)
    assert saved_run.writer._prepare_thread is not None
    saved_run.writer._prepare_thread.join()
    first_snapshot, second_snapshot = saved_run.writer._spare_snapshots

    saved_run.save(1)
    saved_run.save(2)

    assert {id(first_snapshot), id(second_snapshot)} == {
        id(snapshot) for snapshot in saved_run.writer._spare_snapshots
    }


def test_a_state_of_another_shape_gets_new_memory(tmp_path: Path, saved_run: SavedRun) -> None:
    saved_run.save(1)
    saved_run.writer.start({"other": torch.ones(2, 2)}, Manifest(2, 1, RUN))
    saved_run.writer.wait()

    checkpoint = restore.newest_checkpoint(FolderStore(tmp_path / "checkpoints"), RUN)
    assert checkpoint is not None
    assert torch.equal(checkpoint.load()["other"], torch.ones(2, 2))


def test_a_snapshot_keeps_the_memory_layout() -> None:
    weight = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    state = {"weight": weight, "slice": torch.randn(6, 4)[:, 1:3], "count": torch.tensor(7)}
    snapshot = HostSnapshot(state)

    snapshot.take(state)

    for name, tensor in state.items():
        assert torch.equal(snapshot.tensors[name], tensor)
    assert snapshot.tensors["weight"].stride() == weight.stride(), (
        "the copy has the same memory layout"
    )


@contextlib.contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """Limit the size of all files that this process writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failed_write_does_not_end_the_training_and_the_next_save_is_tried(
    tmp_path: Path, saved_run: SavedRun, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "checkpoints"
    saved_run.save(1)
    with limit_file_size(6000):  # a state has 12,000 bytes
        saved_run.save(2)

    assert saved_run.failures == [(2, f"[Errno 27] File too large: '{folder}'")]
    assert "checkpoint of step 2 FAILED" in caplog.text
    assert [path.name for path in folder.iterdir()] == ["step-00000001"], "its disk space is freed"

    saved_run.save(3)
    assert saved_run.written_steps == [1, 3]
    assert newest(folder) == 3


def test_the_error_names_a_tensor_whose_type_cannot_be_saved(
    saved_run: SavedRun, tmp_path: Path
) -> None:
    state = {"frequencies": torch.ones(2, dtype=torch.complex64)}

    saved_run.writer.start(state, Manifest(1, 1, RUN))
    saved_run.writer.wait()

    [(step, reason)] = saved_run.failures
    assert step == 1
    assert "the tensor frequencies is of type torch.complex64" in reason
    assert list((tmp_path / "checkpoints").glob(".*")) == [], "its disk space is freed"


def test_an_error_of_a_report_does_not_end_the_writing_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "checkpoints"

    def fail(*_: object) -> None:
        raise OSError("the bucket does not respond")

    writer = Writer(FolderStore(folder), commit=lambda _: True, on_written=fail, on_failed=fail)
    for step in (1, 2):
        writer.start({"weight": torch.zeros(3000)}, Manifest(step, 1, RUN))
        writer.wait()

    assert newest(folder) == 2
    assert caplog.text.count("its callback failed: the bucket does not respond") == 2


def test_a_read_only_folder_does_not_end_the_training_and_the_next_save_is_tried() -> None:
    # Not in `tmp_path`: another pytest that starts removes other users' access to the folder above it.
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:  # root may write everywhere, so another user tries
            os._exit(save_in_a_read_only_folder(Path(folder)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def save_in_a_read_only_folder(folder: Path) -> int:
    """Return 0 if all expectations hold, otherwise the number of the failed expectation."""
    try:
        checkpoints = folder / "checkpoints"
        checkpoints.mkdir()
        if os.geteuid() == 0:
            os.chown(checkpoints, UNPRIVILEGED_USER, UNPRIVILEGED_USER)
            folder.chmod(0o755)
            os.setuid(UNPRIVILEGED_USER)
        saved_run = SavedRun(checkpoints)
        saved_run.save(1)
        checkpoints.chmod(0o555)
        saved_run.save(2)
        checkpoints.chmod(0o755)
        saved_run.save(3)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        return 1
    if saved_run.written_steps != [1, 3] or newest(checkpoints) != 3:
        return 2
    (step, reason), *other_failures = saved_run.failures
    return 0 if step == 2 and "Permission denied" in reason and not other_failures else 3


def test_unchanging_tensors_may_change_after_wait_snapshot_and_all_others_immediately(
    tmp_path: Path, saved_run: SavedRun
) -> None:
    unchanging_tensor, changing_tensor = torch.zeros(300_000), torch.zeros(10)
    state = {"steady": unchanging_tensor, "changing": changing_tensor}
    saved_run.writer.start(state, Manifest(1, 1, RUN), unchanging_names={"steady"})
    changing_tensor += 1  # a forward pass
    saved_run.writer.wait_snapshot()
    unchanging_tensor += 1  # the optimizer
    saved_run.writer.wait()

    checkpoint = restore.newest_checkpoint(FolderStore(tmp_path / "checkpoints"), RUN)
    assert checkpoint is not None
    assert not any(tensor.any() for tensor in checkpoint.load().values())


def test_a_snapshot_begins_only_after_the_copy_of_the_previous_one(
    saved_run: SavedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later wait would be for the newer copy only, and the next step would change the older snapshot."""
    copies: list[int] = []
    take = HostSnapshot.take

    def take_slowly(snapshot: HostSnapshot, state: Tensors) -> None:
        if state:
            time.sleep(0.2 if not copies else 0)
            copies.append(len(copies))
        take(snapshot, state)

    monkeypatch.setattr(HostSnapshot, "take", take_slowly)
    state = {"weight": torch.zeros(10)}
    saved_run.writer.start(state, Manifest(1, 1, RUN), unchanging_names=state)
    saved_run.writer.start(state, Manifest(2, 1, RUN), unchanging_names=state)

    assert copies, "the first copy is complete"
    saved_run.writer.wait()


def test_waiting_includes_the_copy_of_the_snapshot(saved_run: SavedRun) -> None:
    state = {"weight": torch.ones(300_000)}
    saved_run.writer.start(state, Manifest(1, 1, RUN), unchanging_names={"weight"})
    waiter = threading.Thread(target=saved_run.writer.wait)
    waiter.start()
    waiter.join(100)

    assert saved_run.written_steps == [1]


def test_a_checkpoint_that_takes_too_long_is_reported_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.elastic.checkpoint.writer.STUCK_SECONDS", 0.05)
    may_commit, failure_reported = threading.Event(), threading.Event()
    reasons = list[tuple[int, str]]()

    def record(step: int, reason: str) -> None:
        reasons.append((step, reason))
        failure_reported.set()

    writer = Writer(
        FolderStore(tmp_path),
        commit=lambda _: may_commit.wait(100),
        on_written=lambda *_: None,
        on_failed=record,
    )
    writer.start({"w": torch.zeros(4)}, Manifest(8, 1, {}))
    waiter = threading.Thread(target=writer.wait)
    waiter.start()

    assert failure_reported.wait(100), "training would continue without checkpoints, unnoticed"
    assert reasons[0][0] == 8
    assert "the store or etcd hangs or is too slow" in reasons[0][1]
    may_commit.set()
    waiter.join(100)
    assert not waiter.is_alive()


def test_the_wait_for_a_commit_is_not_mistaken_for_a_hung_disk(tmp_path: Path) -> None:
    """Otherwise a restart of etcd would make another worker write the checkpoints."""
    etcd_responds, commit_waits = threading.Event(), threading.Event()

    def commit(_: Manifest) -> bool:
        commit_waits.set()
        return etcd_responds.wait(100)

    writer = Writer(
        FolderStore(tmp_path),
        commit=commit,
        on_written=lambda *_: None,
        on_failed=lambda *_: None,
        timeout_seconds=0.0,
    )
    writer.start({"w": torch.zeros(4)}, Manifest(8, 1, {}))
    assert commit_waits.wait(100)

    assert not writer.is_hung()
    etcd_responds.set()
    writer.wait()


class HangingStore(FolderStore):
    """A store that hangs after the commit, with a fake clock."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now = 1000.0
        self.hangs, self.release = threading.Event(), threading.Event()

    @property
    def responded_at(self) -> float:
        return 0.0

    def write(
        self, state: Tensors, manifest: Manifest, *, commit: Callable[[Manifest], bool], keep: int
    ) -> int:
        del state, keep
        commit(manifest)
        self.hangs.set()
        self.release.wait(100)
        return 0


@pytest.fixture
def hanging_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingStore]:
    store = HangingStore(tmp_path)
    clock = SimpleNamespace(monotonic=lambda: store.now)
    monkeypatch.setattr("everstep.elastic.checkpoint.writer.time", clock)
    yield store
    store.release.set()


def test_a_store_counts_as_hung_when_it_does_not_respond_after_a_slow_commit(
    hanging_store: HangingStore,
) -> None:
    def commit(_: Manifest) -> bool:
        hanging_store.now += 500  # etcd restarts
        return True

    writer = Writer(
        hanging_store,
        commit=commit,
        on_written=lambda *_: None,
        on_failed=lambda *_: None,
        timeout_seconds=300.0,
    )
    writer.start({"w": torch.zeros(4)}, Manifest(8, 1, {}))
    assert hanging_store.hangs.wait(100)

    assert not writer.is_hung(), "the wait for the commit does not count"
    hanging_store.now += 300
    assert writer.is_hung()
    assert not writer.is_hung(earliest=hanging_store.now - 1), "the time before does not count"
    hanging_store.release.set()
    writer.wait()


def test_a_stuck_checkpoint_is_reported_again_when_its_age_has_doubled(
    hanging_store: HangingStore,
) -> None:
    failed_steps = list[int]()
    writer = Writer(
        hanging_store,
        commit=lambda _: True,
        on_written=lambda *_: None,
        on_failed=lambda step, _: failed_steps.append(step),
    )
    writer.start({"w": torch.zeros(4)}, Manifest(8, 1, {}))
    assert hanging_store.hangs.wait(100)

    counts = list[int]()
    for seconds in (STUCK_SECONDS - 1, 1, STUCK_SECONDS - 1, 1, 2 * STUCK_SECONDS):
        hanging_store.now += seconds
        writer.report_if_stuck()
        counts.append(len(failed_steps))

    assert counts == [0, 1, 1, 2, 3]
    hanging_store.release.set()
    writer.wait()
