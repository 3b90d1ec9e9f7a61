"""Downloads to the cache of a node: complete or absent, and verified."""

import errno
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from everstep.errors import EverstepError
from tests.trainer.data.cache.stores import FolderObjects
from trainer.data.cache import folder as cache_folder
from trainer.data.cache.filler import NeededShards, fill
from trainer.data.cache.folder import (
    MAX_DAMAGED_DOWNLOADS,
    CacheFolder,
    DamagedShardError,
    open_cache_folder,
)
from trainer.data.cache.plan import CacheLimits, OtherData
from trainer.data.images import open_images


@pytest.fixture
def cache(store: FolderObjects, tmp_path: Path) -> CacheFolder:
    return open_cache_folder(tmp_path / "cache", store)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.jpegs*")}


def test_a_filled_cache_has_the_bytes_of_the_store(
    cache: CacheFolder, store: FolderObjects, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folder, "PIECE_BYTES", 1000)  # several pieces per shard

    assert fill(cache, store, NeededShards(), CacheLimits())

    assert len(names(shards)) == 6, "the test needs several shards"
    assert names(cache.folder) == names(shards)
    for path in shards.iterdir():
        assert (cache.folder / path.name).read_bytes() == path.read_bytes()


def test_a_warm_cache_downloads_nothing(cache: CacheFolder, store: FolderObjects) -> None:
    fill(cache, store, NeededShards(), CacheLimits())
    store.requests.clear()

    reopened_cache = open_cache_folder(cache.folder.parent, store)
    fill(reopened_cache, store, NeededShards(), CacheLimits())

    assert dict(store.requests) == {"manifest.json": 1}


def test_a_cache_is_filled_up_to_its_limit(cache: CacheFolder, store: FolderObjects) -> None:
    limit = sum(file.bytes for file in cache.files) - 1

    assert fill(cache, store, NeededShards(), CacheLimits(bytes=limit))

    assert len(names(cache.folder)) == len(cache.files) - 1
    assert sum(path.stat().st_size for path in cache.folder.glob("*.jpegs")) <= limit


def test_a_process_that_dies_while_it_downloads_leaves_no_shard(
    cache: CacheFolder, store: FolderObjects
) -> None:
    name = cache.files[0].name
    (cache.folder / f"{name}.partial").write_bytes(b"torn")

    assert 0 not in cache.state(CacheLimits()).complete_shards
    cache.remove_partial()
    fill(cache, store, NeededShards(), CacheLimits())

    assert names(cache.folder) == {file.name for file in cache.files}


def test_a_worker_that_starts_while_another_one_downloads_keeps_its_files(
    cache: CacheFolder, store: FolderObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def rename_after_removal(path: Path, target: Path) -> Path:
        cache.remove_partial()
        return rename(path, target)

    (cache.folder / "train-index.npy").unlink()
    monkeypatch.setattr(Path, "rename", rename_after_removal)

    assert open_cache_folder(cache.folder.parent, store).index("train").size == 80


def test_a_shard_of_another_size_is_downloaded_again(
    cache: CacheFolder, store: FolderObjects, shards: Path
) -> None:
    name = cache.files[0].name
    (cache.folder / name).write_bytes(b"short")

    fill(cache, store, NeededShards(), CacheLimits())

    assert (cache.folder / name).read_bytes() == (shards / name).read_bytes()


def test_a_damaged_download_does_not_appear_and_is_repeated(
    cache: CacheFolder, store: FolderObjects, shards: Path
) -> None:
    store.damaged_responses = 1
    with pytest.raises(DamagedShardError, match=r"train-00000.* is damaged"):
        cache.download(0, store)
    assert names(cache.folder) == set()

    store.damaged_responses = 1
    assert fill(cache, store, NeededShards(), CacheLimits())
    assert names(cache.folder) == names(shards)


def test_a_shard_that_stays_damaged_ends_the_downloads_and_not_the_training(
    cache: CacheFolder, store: FolderObjects, caplog: pytest.LogCaptureFixture
) -> None:
    store.damaged_responses = 1000

    assert not fill(cache, store, NeededShards(), CacheLimits())

    assert caplog.text.count("images are read from the store: the image at byte 0 of train-") == 1


def test_one_damaged_download_of_each_shard_does_not_end_the_downloads(
    cache: CacheFolder, store: FolderObjects, shards: Path
) -> None:
    store.damaged_once = {file.name for file in cache.files}
    assert len(store.damaged_once) >= MAX_DAMAGED_DOWNLOADS

    assert fill(cache, store, NeededShards(), CacheLimits())

    assert names(cache.folder) == names(shards)


def test_a_request_is_repeated_after_a_broken_connection(
    cache: CacheFolder, store: FolderObjects
) -> None:
    store.broken_requests = 3

    assert fill(cache, store, NeededShards(), CacheLimits())


def test_a_full_disk_ends_the_downloads_and_is_reported_once(
    cache: CacheFolder,
    store: FolderObjects,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raise_no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", raise_no_space)

    assert not fill(cache, store, NeededShards(), CacheLimits())

    assert caplog.text.count("read from the store: No space left on device") == 1
    assert names(cache.folder) == set(), "an incomplete shard would take the last free space"


def test_a_missing_shard_ends_the_downloads_with_its_name(
    store: FolderObjects, shards: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    incomplete_folder = tmp_path / "incomplete"
    shutil.copytree(shards, incomplete_folder)
    missing_shard = next(incomplete_folder.glob("train-00001*.jpegs"))
    missing_shard.unlink()
    objects = FolderObjects(incomplete_folder)
    cache = open_cache_folder(tmp_path / "cache", objects)

    assert not fill(cache, objects, NeededShards(), CacheLimits())

    assert f"{missing_shard.name} does not exist" in caplog.text


def test_another_data_set_is_evicted_to_free_space(
    cache: CacheFolder, store: FolderObjects
) -> None:
    other_folder = cache.folder.parent / "other"
    other_folder.mkdir()
    (other_folder / "train-00000.jpegs").write_bytes(bytes(4000))
    (other_folder / "train-00001.jpegs.partial").write_bytes(bytes(1000))
    limit = sum(file.bytes for file in cache.files)

    assert cache.state(CacheLimits(bytes=limit)).other_data == [OtherData("other", 5000)]
    assert fill(cache, store, NeededShards(), CacheLimits(bytes=limit))

    assert names(other_folder) == set()
    assert cache.state(CacheLimits(bytes=limit)).other_data == []
    assert names(cache.folder) == {file.name for file in cache.files}


def test_a_run_whose_shards_were_evicted_can_still_open_its_data(
    cache: CacheFolder, store: FolderObjects, tmp_path: Path
) -> None:
    fill(cache, store, NeededShards(), CacheLimits())
    other_folder = cache.folder.parent / "other"
    other_folder.mkdir()

    CacheFolder(other_folder, {}).evict([cache.folder.name])

    assert names(cache.folder) == set()
    test_set = open_images(cache.folder, "test", 28, store=f"file://{tmp_path}")
    assert len(test_set) == 80


def test_a_cache_that_was_removed_ends_the_downloads_and_not_the_training(
    cache: CacheFolder, store: FolderObjects, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(cache.folder)

    assert not fill(cache, store, NeededShards(), CacheLimits(free_percent=5))

    assert "read from the store: No such file or directory" in caplog.text


def test_the_shards_that_the_worker_needs_come_first(
    cache: CacheFolder, store: FolderObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = NeededShards()
    monkeypatch.setattr(sys, "stdin", ["4 2\n"])
    monkeypatch.setattr(os, "_exit", lambda _: None)
    needs.follow()

    fill(cache, store, needs, CacheLimits())

    order = list(store.requests)[-len(cache.files) :]
    assert order[:2] == [cache.files[4].name, cache.files[2].name]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "is not a manifest of shards"),
        (b"[]", "is not a manifest of shards"),
        (b'{"dataset": "fashion-mnist"}', "is not a manifest of shards"),
        (b'{"kind": "shards", "format": 99}', "have format 99"),
    ],
)
def test_a_prefix_without_valid_shards_is_refused(
    content: bytes, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_bytes(content)

    with pytest.raises(EverstepError, match=problem):
        open_cache_folder(tmp_path / "cache", FolderObjects(tmp_path))


def test_an_index_of_other_shards_is_refused(shards: Path, tmp_path: Path) -> None:
    manifest = json.loads((shards / "manifest.json").read_text())
    manifest["parts"]["train"]["index_sha256"] = "0" * 64
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    shutil.copy(shards / "train-index.npy", tmp_path)

    with pytest.raises(EverstepError, match=r"the checksum of .*/train-index\.npy differs"):
        open_cache_folder(tmp_path / "cache", FolderObjects(tmp_path))


def test_a_cache_that_cannot_be_written_is_named(store: FolderObjects, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(EverstepError, match=r"the cache .*file/cache cannot be written"):
        open_cache_folder(tmp_path / "file" / "cache", store)
