"""Checkpoints in a simulated bucket: leftovers of a dead writer, and requests that arrive late or twice."""

import pytest
import torch

from everstep.elastic.checkpoint import restore
from everstep.elastic.checkpoint.bucket import BucketError
from everstep.elastic.checkpoint.bucket_store import COMMITTED, DATA, BucketStore
from everstep.elastic.checkpoint.files import FencedError, Manifest
from everstep.elastic.checkpoint.restore import CommitRecord, LostCheckpointError
from everstep.errors import EverstepError
from tests.everstep.elastic.checkpoint.media import crash
from tests.everstep.elastic.checkpoint.simulated_bucket import SimulatedBucket
from tests.everstep.elastic.checkpoint.simulated_disk import CrashError

RUN = {"model": "tiny"}


class SavedRun:
    """A run that saves checkpoints to a simulated bucket."""

    def __init__(self) -> None:
        self.bucket = SimulatedBucket()
        self.store = BucketStore(self.bucket)

    def save(
        self, step: int, generation: int = 1, *, committed: bool = True, keep: int = 3
    ) -> None:
        state = {"weight": torch.full((40,), float(step)), "none": torch.empty(0, 3)}
        manifest = Manifest(step, generation, RUN)
        self.store.write(state, manifest, commit=lambda _: committed, keep=keep)

    def newest(self, record: CommitRecord | None = None) -> int:
        checkpoint = restore.restore_point(
            self.store, RUN, record or CommitRecord(), wait_seconds=0
        )
        return checkpoint.manifest.step if checkpoint else 0

    def written_steps(self) -> set[str]:
        return {key.removeprefix(DATA)[:13] for key in self.bucket.objects if DATA in key}


@pytest.fixture
def saved_run() -> SavedRun:
    return SavedRun()


def test_a_written_checkpoint_is_restored(saved_run: SavedRun) -> None:
    saved_run.save(8)

    checkpoint = restore.newest_checkpoint(saved_run.store, RUN)

    assert checkpoint is not None
    tensors = checkpoint.load()
    assert torch.equal(tensors["weight"], torch.full((40,), 8.0))
    assert tensors["none"].shape == (0, 3)


@pytest.mark.parametrize("request_number", range(12))  # all requests of one write
def test_a_writer_that_dies_at_any_request_leaves_a_complete_checkpoint_or_none(
    saved_run: SavedRun, request_number: int
) -> None:
    saved_run.save(8)
    first_request = len(saved_run.bucket.requests)
    saved_run.bucket.actions_before[first_request + request_number] = crash

    with pytest.raises(CrashError):
        saved_run.save(16)

    *executed_requests, _ = saved_run.bucket.requests[first_request:]
    is_complete = any(
        kind == "put" and key.startswith(COMMITTED) for kind, key in executed_requests
    )
    assert saved_run.newest() == (16 if is_complete else 8)


def test_a_checkpoint_that_was_not_committed_is_never_read(saved_run: SavedRun) -> None:
    saved_run.save(8)
    with pytest.raises(FencedError):
        saved_run.save(16, committed=False)

    assert saved_run.newest() == 8


def test_a_checkpoint_whose_commit_response_was_lost_is_made_visible_on_restore(
    saved_run: SavedRun,
) -> None:
    saved_run.save(8)
    with pytest.raises(FencedError):
        saved_run.save(16, generation=3, committed=False)  # etcd recorded it; its response was lost

    assert saved_run.newest(CommitRecord(3, 16)) == 16


def test_everything_is_put_before_the_commit(saved_run: SavedRun) -> None:
    keys_at_commit = list[str]()

    def commit(_: Manifest) -> bool:
        keys_at_commit.extend(saved_run.bucket.objects)
        return True

    state = {"weight": torch.zeros(4)}
    saved_run.store.write(state, Manifest(8, 1, RUN), commit=commit, keep=3)

    assert [key.rpartition("/")[2] for key in keys_at_commit] == [
        "state.safetensors",
        "manifest.json",
    ]


@pytest.mark.parametrize(
    "damage", ["a changed byte", "a missing byte", "no state", "an empty manifest"]
)
def test_a_damaged_committed_checkpoint_stops_the_run(saved_run: SavedRun, damage: str) -> None:
    saved_run.save(8)
    saved_run.save(16)
    objects = saved_run.bucket.objects
    name = saved_run.store.names()[0]
    state = f"{DATA}{name}/state.safetensors"
    if damage == "a changed byte":
        objects[state] = objects[state][:-1] + b"\x01"
    elif damage == "a missing byte":
        objects[state] = objects[state][:-1]
    elif damage == "no state":
        del objects[state]
    else:
        objects[f"{COMMITTED}{name}.json"] = b"{}"

    with pytest.raises(LostCheckpointError, match="is damaged"):
        saved_run.newest(CommitRecord(1, 16))

    checkpoint = restore.restore_point(
        saved_run.store, RUN, CommitRecord(1, 16), accept_lost_step=16, wait_seconds=0
    )
    assert checkpoint is not None
    assert checkpoint.manifest.step == 8


def test_a_hidden_checkpoint_stays_hidden_when_its_puts_arrive_again(
    saved_run: SavedRun,
) -> None:
    saved_run.save(8)
    saved_run.save(16)
    lost_name = saved_run.store.names()[0]
    saved_run.store.hide(lost_name)

    assert saved_run.bucket.delivered_puts
    for key, content in saved_run.bucket.delivered_puts:
        saved_run.bucket.objects[key] = content

    assert saved_run.newest() == 8


def test_old_checkpoints_and_leftovers_of_dead_writers_are_deleted(saved_run: SavedRun) -> None:
    with pytest.raises(FencedError):
        saved_run.save(4, committed=False)
    second_part = len(saved_run.bucket.requests) + 2
    saved_run.bucket.actions_before[second_part] = crash
    with pytest.raises(CrashError):
        saved_run.save(6)
    assert saved_run.bucket.uploads(DATA)

    for step in (8, 16, 24):
        saved_run.save(step, keep=2)

    assert saved_run.written_steps() == {"step-00000016", "step-00000024"}
    assert saved_run.bucket.uploads(DATA) == [], (
        "the parts of an incomplete upload cost money until it is aborted"
    )


def test_checkpoints_are_ordered_by_number_beyond_the_digits_of_their_names(
    saved_run: SavedRun,
) -> None:
    for step in (99_999_998, 99_999_999, 100_000_000):
        saved_run.save(step, keep=2)

    assert [name.partition("-g")[0] for name in saved_run.store.names()] == [
        "step-100000000",
        "step-99999999",
    ]
    assert saved_run.newest() == 100_000_000


def test_a_late_writer_of_an_older_step_deletes_nothing_of_newer_steps(saved_run: SavedRun) -> None:
    saved_run.save(24, generation=2)
    with pytest.raises(FencedError):
        saved_run.save(32, generation=2, committed=False)  # etcd recorded it; its response was lost
    second_part = len(saved_run.bucket.requests) + 2
    saved_run.bucket.actions_before[second_part] = crash
    with pytest.raises(CrashError):
        saved_run.save(40, generation=2)

    saved_run.save(16, keep=1)

    assert [name[:13] for name in saved_run.store.names()] == ["step-00000024", "step-00000016"]
    assert saved_run.bucket.uploads(DATA), "its writer may still be at work"
    assert saved_run.newest(CommitRecord(2, 32)) == 32


def test_objects_of_another_writer_of_the_same_step_are_kept(saved_run: SavedRun) -> None:
    with pytest.raises(FencedError):
        saved_run.save(16, generation=2, committed=False)  # etcd recorded it; its response was lost
    saved_run.save(16, generation=1)

    assert saved_run.newest(CommitRecord(2, 16)) == 16


def test_the_objects_of_a_checkpoint_are_deleted_in_the_reverse_order_of_their_puts(
    saved_run: SavedRun,
) -> None:
    saved_run.save(8)
    (name,) = saved_run.store.names()
    saved_run.save(16, keep=1)

    deleted_keys = [key for kind, key in saved_run.bucket.requests if kind == "delete"]
    assert deleted_keys == [
        f"{COMMITTED}{name}.json",
        f"{DATA}{name}/manifest.json",
        f"{DATA}{name}/state.safetensors",
    ], "a manifest without its state would look complete"


def test_a_failed_upload_is_an_error_and_leaves_no_object(saved_run: SavedRun) -> None:
    second_part = len(saved_run.bucket.requests) + 2
    saved_run.bucket.broken_requests.add(second_part)

    with pytest.raises(BucketError, match="the connection is broken"):
        saved_run.save(8)

    assert not saved_run.bucket.objects


def test_a_store_that_fails_after_the_commit_leaves_a_checkpoint_that_can_be_restored(
    saved_run: SavedRun,
) -> None:
    saved_run.save(8)
    requests = len(saved_run.bucket.requests)
    saved_run.save(16)
    index = next(
        number
        for number, (kind, key) in enumerate(saved_run.bucket.requests[requests:])
        if kind == "put" and COMMITTED in key
    )
    saved_run.bucket.broken_requests.add(len(saved_run.bucket.requests) + index)

    with pytest.raises(BucketError):
        saved_run.save(24)

    assert saved_run.newest(CommitRecord(1, 24)) == 24


def test_a_name_of_another_generation_is_not_taken_for_the_committed_one(
    saved_run: SavedRun,
) -> None:
    saved_run.save(16, generation=2)
    (name,) = saved_run.store.names()
    objects = saved_run.bucket.objects
    for key in list(objects):
        objects[key.replace("-g00000002-", "-g00000005-")] = objects.pop(key)

    with pytest.raises(ValueError, match="not named after its step"):
        saved_run.store.check(name.replace("-g00000002-", "-g00000005-"))


def test_a_checkpoint_is_complete_although_listing_incomplete_uploads_is_forbidden(
    saved_run: SavedRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def uploads(_: str) -> list[str]:
        raise EverstepError("s3://bucket/run is forbidden", "Allow s3:ListBucketMultipartUploads.")

    monkeypatch.setattr(saved_run.bucket, "uploads", uploads)
    saved_run.save(8)

    assert saved_run.newest() == 8
    assert "Allow s3:ListBucketMultipartUploads" in caplog.text
