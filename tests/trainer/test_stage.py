"""Staging before the preparation: from a bucket, or an archive on the volume."""

import io
import shutil
import tarfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import pytest
from PIL import Image

from everstep.progress import Silent
from everstep.staging.content import Content
from everstep.staging.entry import Entry
from everstep.staging.sources.folder import FolderSource
from everstep.staging.stage import Options
from everstep.staging.stage import stage as copy
from tests.everstep.elastic.checkpoint.s3_environment import use_server
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.servers import client_of
from tests.processes import free_port
from tests.waiting import wait_until
from trainer import prepare
from trainer import stage as staging
from trainer.data.manifest import read_manifest
from trainer.staging_metrics import StagingMetrics

WAIT_SECONDS = 100.0


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


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Yield the address of an S3 server with a bucket of photographs."""
    with servers.moto() as address:
        client = client_of(address)
        client.create_bucket(Bucket="my-photos")
        for name, content in PHOTOGRAPHS.items():
            client.put_object(Bucket="my-photos", Key=f"imagenet/{name}", Body=content)
        yield address


@pytest.fixture
def bucket(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment in which boto3 uses the server."""
    use_server(monkeypatch, address)


@pytest.mark.usefixtures("bucket")
def test_photographs_of_a_bucket_become_shards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage_and_prepare("s3://my-photos/imagenet", tmp_path) == 0, capsys.readouterr().err

    assert (tmp_path / "source/train/cat/1.jpg").read_bytes() == PHOTOGRAPHS["train/cat/1.jpg"]
    assert classes_in(tmp_path / "shards") == ["cat", "dog"]
    assert "8 files" in capsys.readouterr().err, "`everstep follow` shows the log"


@pytest.mark.usefixtures("bucket")
def test_a_second_attempt_copies_only_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage_and_prepare("s3://my-photos/imagenet", tmp_path) == 0
    (tmp_path / "source/val/dog/0.jpg").unlink()
    capsys.readouterr()

    assert stage_and_prepare("s3://my-photos/imagenet", tmp_path) == 0

    assert "1 file, 0.00 GB to copy, 7 complete" in capsys.readouterr().err


@pytest.mark.usefixtures("bucket")
def test_a_missing_bucket_ends_with_an_error_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
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


class PausedSource(FolderSource):
    """A folder whose last file cannot be read until `continue_copy` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.continue_copy = threading.Event()

    @contextmanager
    def open(self, entry: Entry, offset: int) -> Iterator[Content]:
        if entry.name.startswith("last"):
            assert self.continue_copy.wait(WAIT_SECONDS), "the test did not continue the copy"
        with super().open(entry, offset) as content:
            yield content


def scrape(port: int) -> dict[str, float]:
    """Return the values of the metrics without labels by name; empty while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            lines = response.read().decode().splitlines()
    except URLError:
        return {}
    samples = (line.split() for line in lines if line.startswith("everstep_staging_"))
    return {name.removeprefix("everstep_staging_"): float(value) for name, value in samples}


def test_a_scrape_shows_the_progress_of_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, port = tmp_path / "photographs", free_port()
    folder.mkdir()
    for name in ("first", "last"):
        (folder / name).write_bytes(b"x" * 1000)
    source = PausedSource(folder)
    monkeypatch.setattr(staging, "open_source", lambda _: source)
    monkeypatch.setenv("EVERSTEP_METRICS_PORT", str(port))
    copying = threading.Thread(target=staging.stage, args=("here", tmp_path / "volume", Silent()))
    expected = {
        "listed_files": 2,
        "planned_files": 2,
        "planned_bytes": 2000,
        "files": 1,
        "bytes": 1000,
        "failed_files": 0,
    }

    copying.start()
    try:
        wait_until(
            lambda: scrape(port) == expected,
            "a scrape shows one of two files",
            WAIT_SECONDS,
            details=lambda: scrape(port),
        )
    finally:
        source.continue_copy.set()
        copying.join()

    assert not scrape(port), "values of a copy that has ended would look like a copy that hangs"


def test_files_of_an_earlier_attempt_count_as_complete(tmp_path: Path) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    (folder / "first").write_bytes(b"x" * 1000)
    staging.stage(str(folder), tmp_path / "volume", Silent())
    (folder / "second").write_bytes(b"y" * 500)
    metrics = StagingMetrics()

    copy(FolderSource(folder), tmp_path / "volume", Options(), metrics)

    read = metrics.registry.get_sample_value
    assert (read("everstep_staging_files"), read("everstep_staging_bytes")) == (2, 1500)


def test_an_unusable_port_does_not_stop_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    (folder / "first").write_bytes(b"x")
    monkeypatch.setenv("EVERSTEP_METRICS_PORT", "no port")

    staging.stage(str(folder), tmp_path / "volume", Silent())

    assert (tmp_path / "volume" / "first").exists()
    assert "metrics are disabled" in caplog.text


def folder_of(photographs: dict[str, bytes], folder: Path) -> Path:
    for name, content in photographs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_the_images_of_another_source_are_not_mixed_with_the_first_images(
    tmp_path: Path,
) -> None:
    first = folder_of(PHOTOGRAPHS, tmp_path / "first")
    second = folder_of(
        {name.replace("cat", "bird"): content for name, content in PHOTOGRAPHS.items()},
        tmp_path / "second",
    )
    assert stage_and_prepare(str(first), tmp_path / "volume") == 0
    shutil.rmtree(tmp_path / "volume" / "shards")

    assert stage_and_prepare(str(second), tmp_path / "volume") == 0

    assert classes_in(tmp_path / "volume" / "shards") == ["bird", "dog"]


def test_a_bad_file_that_is_removed_from_the_source_no_longer_stops_the_preparation(
    tmp_path: Path,
) -> None:
    source = folder_of(PHOTOGRAPHS, tmp_path / "source-of-photographs")
    bad = source / "train" / "cat" / "bad.jpg"
    bad.write_bytes(b"not a picture")
    assert stage_and_prepare(str(source), tmp_path / "volume") == 1

    bad.unlink()

    assert stage_and_prepare(str(source), tmp_path / "volume") == 0
