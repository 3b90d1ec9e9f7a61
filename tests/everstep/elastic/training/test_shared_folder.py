"""Nodes whose folder of the run is not the same one."""

import errno
import json
import threading
from pathlib import Path

import pytest
from torch._C._distributed_c10d import HashStore

from everstep.elastic.recovery.worker import SingleProcessGroup
from everstep.elastic.training import shared_folder
from everstep.elastic.training.run_storage import FolderStorage
from everstep.elastic.training.shared_folder import STORE_KEY, check_folder, find_difference
from everstep.elastic.transport.group import RankAssignment
from tests.trainer.elastic.nodes import Nodes, running_etcd
from tests.waiting import wait_until

IMPATIENT_PROGRAM = """
from everstep.elastic.training import shared_folder
from tests.everstep.elastic.training.any_optimizer import main

shared_folder.DIFFERENT_SECONDS, shared_folder.INTERVAL_SECONDS = 1.0, 0.1
main()
"""


@pytest.fixture(autouse=True)
def short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the folders differ for a short time only."""
    monkeypatch.setattr(shared_folder, "DIFFERENT_SECONDS", 0.3)
    monkeypatch.setattr(shared_folder, "INTERVAL_SECONDS", 0.01)


def storage_in(folder: Path, *, opened: bool = True) -> FolderStorage:
    storage = FolderStorage(folder)
    if opened:
        storage.open(8, {})
    return storage


def store_of(storage: FolderStorage) -> HashStore:
    """Return the store of a group whose rank 0 has this folder."""
    store = HashStore()
    store.set(STORE_KEY, json.dumps(["node-0", storage.run_id()]))
    return store


def always() -> bool:
    return True


@pytest.mark.parametrize("has_record", [True, False])
def test_a_folder_that_differs_from_the_one_of_rank_0_is_named_with_both_nodes(
    tmp_path: Path, *, has_record: bool
) -> None:
    store = store_of(storage_in(tmp_path / "first"))

    error = find_difference(storage_in(tmp_path / "own", opened=has_record), store, always)

    assert error
    assert f"do not share the folder of the checkpoints, {tmp_path / 'own'}" in error.problem
    assert "on node-0" in error.problem
    assert ("does not exist" in error.problem) == (not has_record)
    assert "Mount the same file system" in error.fix


def test_a_shared_folder_is_accepted_under_any_path(tmp_path: Path) -> None:
    store = store_of(storage_in(tmp_path / "run"))
    (tmp_path / "mount").symlink_to(tmp_path / "run")

    assert find_difference(storage_in(tmp_path / "mount", opened=False), store, always) is None


def test_a_folder_whose_record_becomes_visible_late_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_folder, "DIFFERENT_SECONDS", 60.0)
    shared = storage_in(tmp_path)
    late_storage, visible = storage_in(tmp_path), iter(["", "of-an-older-writer", shared.run_id()])
    monkeypatch.setattr(late_storage, "run_id", lambda: next(visible))

    assert find_difference(late_storage, store_of(shared), always) is None
    assert next(visible, "all read") == "all read"


def test_a_folder_that_cannot_be_compared_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> str:
        raise OSError(errno.ESTALE, "Stale file handle")

    own, first = storage_in(tmp_path / "own"), storage_in(tmp_path / "first")
    without_record = storage_in(tmp_path / "empty", opened=False)

    assert find_difference(own, store_of(without_record), always) is None
    assert find_difference(own, HashStore(), always) is None, "rank 0 is of an earlier version"
    monkeypatch.setattr(own, "run_id", fail)
    assert find_difference(own, store_of(first), always) is None


def test_a_worker_that_has_left_the_group_is_not_refused(tmp_path: Path) -> None:
    calls = iter([True, True])

    error = find_difference(
        storage_in(tmp_path / "own"),
        store_of(storage_in(tmp_path / "first")),
        lambda: next(calls, False),
    )

    assert error is None


def test_rank_0_publishes_the_record_again_after_another_writer_has_replaced_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_folder, "DIFFERENT_SECONDS", 60.0)
    storage, store, left = storage_in(tmp_path), HashStore(), threading.Event()
    assignment = RankAssignment(0, 2, store, 2, lambda _: None)

    def published() -> str | None:
        return json.loads(store.get(STORE_KEY))[1] if store.check([STORE_KEY]) else None

    try:
        check_folder(storage, assignment, SingleProcessGroup(), lambda: not left.is_set())
        wait_until(lambda: published() == storage.run_id(), "the record is published", 60)
        first_run = storage.run_id()
        (tmp_path / "run.json").unlink()
        storage.open(8, {})
        assert storage.run_id() != first_run
        wait_until(lambda: published() == storage.run_id(), "the new record is published", 60)
    finally:
        left.set()


def test_a_folder_without_a_record_is_compared_once_rank_0_has_published(tmp_path: Path) -> None:
    first, own = storage_in(tmp_path / "first"), storage_in(tmp_path / "own", opened=False)
    store = HashStore()
    published = [json.dumps(["node-0", first.run_id()])]
    first_looks = iter([True, True, True])

    def is_current() -> bool:
        if next(first_looks, None) is None and published:
            store.set(STORE_KEY, published.pop())
        return True

    assert find_difference(own, store, is_current) is not None


@pytest.mark.twin
@pytest.mark.timeout(600)
def test_a_node_with_a_folder_of_its_own_ends_and_the_others_continue(tmp_path: Path) -> None:
    script, own_folder = tmp_path / "program.py", tmp_path / "own" / "run"
    script.write_text(IMPATIENT_PROGRAM)
    options = ["--optimizer", "SGD", "--step-seconds", "0.4", "--alone-seconds", "1"]
    (tmp_path / "etcd").mkdir()
    with running_etcd(tmp_path / "etcd") as endpoint:
        nodes = Nodes(tmp_path, endpoint, options, program=(str(script),), preloaded=True)
        try:
            nodes.start("w0")
            first_step = nodes.next_step(0, world_size=1, seconds=240)
            nodes.start("w1", "--run", str(own_folder))
            nodes.next_step(first_step["at"], world_size=2, seconds=240)
            assert nodes.exit_code("w1", 240) == 1, nodes.logs()
            assert nodes.exit_code("w0", 240) == 0, nodes.logs()
            assert f"do not share the folder of the checkpoints, {own_folder}" in nodes.logs()
        finally:
            nodes.close()
