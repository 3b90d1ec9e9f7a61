"""Staging before the preparation: from a bucket, or an archive on the volume."""

import io
import tarfile
from pathlib import Path
from typing import Any

import boto3
import pytest
from PIL import Image

from tests.everstep.staging.sources import servers
from trainer import prepare
from trainer.data.manifest import read_manifest


def photograph(shade: int) -> bytes:
    """Return a small picture as a JPEG."""
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (shade, shade, shade)).save(buffer, "JPEG")
    return buffer.getvalue()


PHOTOGRAPHS = {
    f"{part}/{name}/{index}.jpg": photograph(40 * index)
    for part in ("train", "val")
    for name in ("cat", "dog")
    for index in range(2)
}


def stage_and_prepare(location: str, volume: Path) -> int:
    """Stage and prepare a data set; return the exit code."""
    folders = ["--source", str(volume / "source"), "--output", str(volume / "shards")]
    arguments = ["--dataset", "imagefolder", "--stage", location, *folders]
    return prepare.main([*arguments, "--short-side", "16", "--processes", "1"])


def classes_in(shards: Path) -> list[str]:
    """Return the classes in the manifest of shards."""
    manifest = read_manifest(shards)
    assert manifest is not None, "the manifest is written last"
    classes: list[str] = manifest["classes"]
    return classes


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield a client of an S3 server with a bucket of photographs; the environment names the server."""
    with servers.moto() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", servers.KEY_ID)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", servers.SECRET)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="my-photos")
        for name, content in PHOTOGRAPHS.items():
            client.put_object(Bucket="my-photos", Key=f"imagenet/{name}", Body=content)
        yield client


def test_photographs_of_a_bucket_become_shards(
    bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage_and_prepare("s3://my-photos/imagenet", tmp_path) == 0, capsys.readouterr().err

    assert (tmp_path / "source/train/cat/1.jpg").read_bytes() == PHOTOGRAPHS["train/cat/1.jpg"]
    assert classes_in(tmp_path / "shards") == ["cat", "dog"]
    assert "8 files" in capsys.readouterr().err, "`everstep follow` shows the log"


def test_a_second_attempt_copies_only_what_is_missing(
    bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage_and_prepare("s3://my-photos/imagenet", tmp_path) == 0
    (tmp_path / "source/val/dog/0.jpg").unlink()
    capsys.readouterr()

    assert stage_and_prepare("s3://my-photos/imagenet", tmp_path) == 0

    assert "1 files, 0.00 GB to copy, 7 complete" in capsys.readouterr().err


def test_a_missing_bucket_ends_with_an_error_that_names_it(
    bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage_and_prepare("s3://my-photo", tmp_path) == 1

    assert "the bucket 'my-photo' does not exist" in capsys.readouterr().err
    assert not (tmp_path / "shards").exists()


def test_an_archive_becomes_shards(tmp_path: Path) -> None:
    archive = tmp_path / "photos.tar"
    with tarfile.open(archive, "w") as tar:
        for name, content in PHOTOGRAPHS.items():
            (tmp_path / "photo.jpg").write_bytes(content)
            tar.add(tmp_path / "photo.jpg", name)

    assert stage_and_prepare(str(archive), tmp_path) == 0
    assert classes_in(tmp_path / "shards") == ["cat", "dog"]
