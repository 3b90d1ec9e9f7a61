import contextlib
import os
import resource
import threading
from pathlib import Path

import pytest
import torch

from everstep.elastic import checkpoint
from everstep.elastic.checkpoint import Manifest
from everstep.elastic.writer import Snapshot, Writer

RUN = {"model": "tiny"}
NOBODY = 65534


class Saves:
    """A writer, and what it said of its checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.written: list[int] = []
        self.failed: list[tuple[int, str]] = []
        self.may_commit = threading.Event()  # a slow disk, as far as training can tell
        self.may_commit.set()
        self.asks = threading.Event()  # set once it is all written and only the commit is missing
        self.writer = Writer(
            folder,
            commit=self._commit,
            on_written=lambda manifest, seconds, size: self.written.append(manifest.step),
            on_failed=lambda step, reason: self.failed.append((step, reason)),
        )

    def _commit(self, manifest: Manifest) -> bool:
        self.asks.set()
        return self.may_commit.wait(20)

    def start(self, step: int) -> None:
        state = {"weight": torch.full((3000,), float(step))}
        self.writer.start(state, Manifest(step, 1, RUN))

    def save(self, step: int) -> None:
        self.start(step)
        self.writer.wait()


@pytest.fixture
def saves(tmp_path):
    return Saves(tmp_path / "checkpoints")


def newest(folder: Path) -> int:
    found = checkpoint.newest(folder, RUN)
    return found.manifest.step if found else -1


def test_a_snapshot_is_not_changed_by_the_steps_that_follow(tmp_path, saves):
    weight = torch.zeros(10)
    saves.may_commit.clear()
    saves.writer.start({"weight": weight}, Manifest(1, 1, RUN))
    weight += 1
    assert saves.writer.busy
    saves.may_commit.set()
    saves.writer.wait()

    found = checkpoint.newest(tmp_path / "checkpoints", RUN)
    assert found is not None
    assert torch.equal(found.load()["weight"], torch.zeros(10))


def test_training_never_waits_for_a_slow_disk_and_of_what_waits_the_newest_is_written(saves):
    saves.may_commit.clear()
    saves.start(1)
    assert saves.asks.wait(20)
    for step in (2, 3, 4):
        saves.start(step)  # returns, though the first is not in place

    assert saves.writer.busy
    assert saves.written == []
    saves.may_commit.set()
    saves.writer.wait()

    assert saves.written == [1, 4]
    assert not saves.writer.busy


def test_memory_set_aside_beforehand_is_what_snapshots_are_taken_in(saves):
    state = {"weight": torch.ones(3000)}
    saves.writer.prepare(state)
    saves.writer._preparing.join()
    first, second = saves.writer._spare

    saves.save(1)
    saves.save(2)

    assert {id(first), id(second)} == {id(snapshot) for snapshot in saves.writer._spare}


def test_a_state_of_another_shape_gets_memory_of_its_own(tmp_path, saves):
    saves.save(1)
    saves.writer.start({"other": torch.ones(2, 2)}, Manifest(2, 1, RUN))
    saves.writer.wait()

    found = checkpoint.newest(tmp_path / "checkpoints", RUN)
    assert found is not None
    assert torch.equal(found.load()["other"], torch.ones(2, 2))


def test_a_snapshot_keeps_the_layout_of_what_it_copies():
    weight = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    state = {"weight": weight, "slice": torch.randn(6, 4)[:, 1:3], "count": torch.tensor(7)}
    snapshot = Snapshot(state)

    snapshot.take(state)

    for name, tensor in state.items():
        assert torch.equal(snapshot.tensors[name], tensor)
    assert snapshot.tensors["weight"].stride() == weight.stride(), "a copy of memory as it lies"


@contextlib.contextmanager
def files_at_most(size: int):
    """The kernel refuses to let any file of this process grow beyond this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more_ends_no_training_and_the_next_save_is_tried_again(
    tmp_path, saves, caplog
):
    folder = tmp_path / "checkpoints"
    saves.save(1)
    with files_at_most(6000):  # a state has 12,000 bytes
        saves.save(2)

    assert saves.failed == [(2, f"[Errno 27] File too large: '{folder}'")]
    assert "checkpoint of step 2 FAILED" in caplog.text
    assert [path.name for path in folder.iterdir()] == ["step-00000001"], "its room is given back"

    saves.save(3)
    assert saves.written == [1, 3]
    assert newest(folder) == 3


def test_a_folder_that_may_only_be_read_ends_no_training_and_the_next_save_is_tried_again(
    tmp_path,
):
    child = os.fork()
    if child == 0:  # root may write everywhere, so somebody else tries
        os._exit(save_in_a_read_only_folder(tmp_path))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def save_in_a_read_only_folder(folder: Path) -> int:
    """0 where everything is as it should be, else which expectation failed."""
    try:
        checkpoints = folder / "checkpoints"
        checkpoints.mkdir()
        if os.geteuid() == 0:
            os.chown(checkpoints, NOBODY, NOBODY)
            for parent in (folder, *folder.parents[:3]):
                os.chmod(parent, 0o755)  # noqa: PTH101 - as the call above
            os.setuid(NOBODY)
        saves = Saves(checkpoints)
        saves.save(1)
        checkpoints.chmod(0o555)
        saves.save(2)
        checkpoints.chmod(0o755)
        saves.save(3)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        return 1
    if saves.written != [1, 3] or newest(checkpoints) != 3:
        return 2
    (step, reason), *more = saves.failed
    return 0 if step == 2 and "Permission denied" in reason and not more else 3


def test_what_was_promised_to_stay_is_copied_later_and_everything_else_at_once(tmp_path, saves):
    steady, moving = torch.zeros(300_000), torch.zeros(10)
    state = {"steady": steady, "moving": moving}
    saves.writer.start(state, Manifest(1, 1, RUN), steady={"steady"})
    moving += 1  # a forward pass
    saves.writer.taken()
    steady += 1  # the optimizer
    saves.writer.wait()

    found = checkpoint.newest(tmp_path / "checkpoints", RUN)
    assert found is not None
    assert not any(tensor.any() for tensor in found.load().values())


def test_whoever_waits_waits_for_the_snapshot_s_copy_too(saves):
    state = {"weight": torch.ones(300_000)}
    saves.writer.start(state, Manifest(1, 1, RUN), steady={"weight"})
    other = threading.Thread(target=saves.writer.wait)
    other.start()
    other.join(20)

    assert saves.written == [1]
