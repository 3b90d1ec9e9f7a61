"""Checkpoints in a bucket of a real server: MinIO where `make test-staging` has built it, and moto's stand-in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from everstep.elastic.checkpoint import restore, s3_bucket
from everstep.elastic.checkpoint.bucket import BucketError, MissingObjectError
from everstep.elastic.checkpoint.bucket_store import DATA, BucketStore
from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.checkpoint.s3_bucket import S3Bucket, bucket_at
from everstep.errors import EverstepError
from tests.everstep.elastic.checkpoint.s3_environment import use_server
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.test_s3 import client_of
from tests.processes import free_port

RUN = {"model": "tiny"}
PART_BYTES = 5 << 20  # smallest part that S3 accepts


@pytest.fixture(scope="module", params=["moto", "minio"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("s3")
    with servers.moto() if request.param == "moto" else servers.minio(folder) as address:
        client_of(address).create_bucket(Bucket="models")
        yield address


@pytest.fixture
def bucket(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Bucket:
    use_server(monkeypatch, address)
    monkeypatch.setattr(s3_bucket, "PART_BYTES", PART_BYTES)
    return bucket_at(f"s3://models/{tmp_path.name}")


def save(store: BucketStore, step: int, *, values: int = 10, commit: bool = True) -> None:
    state = {"weight": torch.arange(values).float(), "step": torch.tensor(step)}
    store.write(state, Manifest(step, 1, RUN), commit=lambda _: commit, keep=2)


def test_a_state_in_several_parts_is_restored(bucket: S3Bucket) -> None:
    store, values = BucketStore(bucket), (PART_BYTES * 5) // (2 * 4)
    save(store, 8, values=values)

    checkpoint = restore.newest_checkpoint(store, RUN)

    assert checkpoint is not None
    tensors = checkpoint.load()
    assert torch.equal(tensors["weight"], torch.arange(values).float())
    assert int(tensors["step"]) == 8
    assert bucket.responded_at > 0
    assert bucket.uploads("") == []


def test_a_small_state_is_restored_and_old_ones_are_deleted(bucket: S3Bucket) -> None:
    store = BucketStore(bucket)
    for step in (8, 16, 24):
        save(store, step)

    assert [name[:13] for name in store.names()] == ["step-00000024", "step-00000016"]
    assert {key.removeprefix(DATA)[:13] for key in bucket.keys(DATA)} == {
        "step-00000016",
        "step-00000024",
    }


def test_an_upload_that_breaks_leaves_no_object(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_piece = bucket._put_piece

    def put_or_break(key: str, upload: str, number: int, piece: bytes) -> dict[str, Any]:
        if number == 2:
            raise BucketError(5, "the connection is broken", key)
        return put_piece(key, upload, number, piece)

    monkeypatch.setattr(bucket, "_put_piece", put_or_break)

    with pytest.raises(BucketError, match="is broken"):
        save(BucketStore(bucket), 8, values=PART_BYTES)

    assert bucket.keys("") == []
    assert bucket.uploads(DATA) == []


def test_a_completed_upload_whose_response_was_lost_is_recognized(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = bucket._complete

    def complete_twice(*arguments: Any) -> None:
        complete(*arguments)
        complete(*arguments)  # as boto3 does without a response

    monkeypatch.setattr(bucket, "_complete", complete_twice)
    save(BucketStore(bucket), 8, values=PART_BYTES)

    assert restore.newest_checkpoint(BucketStore(bucket), RUN) is not None


def test_an_object_is_put_only_in_place_of_the_expected_version(bucket: S3Bucket) -> None:
    assert bucket.put_if("run.json", b"first", None)
    assert not bucket.put_if("run.json", b"second", None), "another worker was faster"

    content, version = bucket.get("run.json")
    assert content == b"first"
    assert bucket.put_if("run.json", b"third", version)
    assert not bucket.put_if("run.json", b"fourth", version)
    assert bucket.get("run.json")[0] == b"third"


def test_a_missing_object_and_one_of_another_size_are_different_errors(bucket: S3Bucket) -> None:
    bucket.put("state", b"12345678")

    with pytest.raises(MissingObjectError):
        bucket.get_large("other", 8)
    with pytest.raises(ValueError, match="8 bytes instead of 9"):
        bucket.get_large("state", 9)
    bucket.delete("other")  # no error


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_does_not_exist_is_an_error_with_a_fix() -> None:
    with pytest.raises(
        EverstepError, match="the bucket of s3://nothing/run does not exist"
    ) as error:
        bucket_at("s3://nothing/run").put("a", b"")
    assert "create it" in error.value.fix


@pytest.mark.parametrize("url", ["s3://models", "s3://models/", "s3://Models/run", "s3:///run"])
def test_an_address_without_a_valid_bucket_or_a_prefix_is_refused(url: str) -> None:
    with pytest.raises(EverstepError, match="not of the form s3://BUCKET/PREFIX"):
        bucket_at(url)


def test_an_address_of_another_store_is_refused() -> None:
    with pytest.raises(EverstepError, match="a folder or at s3://BUCKET/PREFIX") as error:
        bucket_at("gs://bucket/run")
    assert "Mount" in error.value.fix


def test_a_server_that_is_gone_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_server(monkeypatch, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(s3_bucket, "ATTEMPTS", 1)

    with pytest.raises(BucketError, match="it does not respond"):
        S3Bucket("models", "run").put("a", b"")
