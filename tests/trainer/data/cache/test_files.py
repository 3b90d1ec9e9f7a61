"""Images of a cache that is being filled: from the node or from the store, with the same bytes."""

from pathlib import Path

import numpy as np
import pytest

from everstep.errors import EverstepError
from tests.trainer.data.cache.stores import FolderObjects
from trainer import data
from trainer.data.cache.files import CachedFiles
from trainer.data.cache.filler import NeededShards, fill
from trainer.data.cache.folder import CacheFolder, open_cache_folder
from trainer.data.cache.plan import CacheLimits
from trainer.data.images import ImageDataset
from trainer.data.shards import open_shards

SIZE = 24


@pytest.fixture
def cache(store: FolderObjects, tmp_path: Path) -> CacheFolder:
    return open_cache_folder(tmp_path / "cache", store)


def open_cached(cache: CacheFolder, store: FolderObjects) -> ImageDataset:
    """Open the training split through a cache."""
    names = cache.manifest["parts"]["train"]["files"]
    files = CachedFiles(cache.folder, names, store.name, lambda _: store)
    source = open_shards(cache.folder, cache.manifest, "train", files)
    return ImageDataset(source, cache.folder, "train", SIZE)


def batch(dataset: data.Dataset) -> np.ndarray:
    return dataset.train_batch(np.arange(len(dataset))[::-1], 3, 1)[0]


@pytest.mark.parametrize("shards_in_cache", [0, 1, 100])
def test_images_equal_the_images_of_the_folder_wherever_they_come_from(
    shards_in_cache: int, cache: CacheFolder, store: FolderObjects, shards: Path
) -> None:
    folder_dataset = data.load("imagefolder", shards, "train", SIZE)
    for number in range(min(shards_in_cache, len(cache.files))):
        cache.download(number, store)

    dataset = open_cached(cache, store)

    assert dataset.identity == folder_dataset.identity, "a run could not continue from the folder"
    assert np.array_equal(batch(dataset), batch(folder_dataset))


def test_a_shard_that_appears_during_the_training_is_used(
    cache: CacheFolder, store: FolderObjects
) -> None:
    dataset = open_cached(cache, store)
    expected = batch(dataset)
    fill(cache, store, NeededShards(), CacheLimits())
    store.requests.clear()

    assert np.array_equal(batch(dataset), expected)
    assert not store.requests, "the node has these bytes already"


def test_each_image_is_requested_once(cache: CacheFolder, store: FolderObjects) -> None:
    dataset = open_cached(cache, store)
    store.requests.clear()

    batch(dataset)

    assert store.requests.total() == len(dataset)


def test_a_damaged_shard_of_the_cache_is_removed_and_its_images_come_from_the_store(
    cache: CacheFolder, store: FolderObjects, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = open_cached(cache, store)
    expected = batch(dataset)
    cache.download(0, store)
    name, size, *_ = cache.files[0]
    (cache.folder / name).write_bytes(bytes(size))

    assert np.array_equal(batch(dataset), expected)

    assert not (cache.folder / name).exists()
    assert f"the cached shard {name} is damaged and is removed" in caplog.text


def test_a_damaged_response_is_requested_again(cache: CacheFolder, store: FolderObjects) -> None:
    dataset = open_cached(cache, store)
    expected = batch(dataset)

    store.damaged_responses = 2

    assert np.array_equal(batch(dataset), expected)


def test_a_replaced_object_is_reported_by_name(cache: CacheFolder, store: FolderObjects) -> None:
    dataset = open_cached(cache, store)
    store.damaged_responses = 100_000

    with pytest.raises(
        EverstepError, match=r"s3://photographs/shards/train-.* is damaged"
    ) as error:
        batch(dataset)

    assert "do not replace objects" in error.value.fix


def test_an_object_that_the_store_lost_is_reported_by_name(
    cache: CacheFolder, tmp_path: Path
) -> None:
    dataset = open_cached(cache, FolderObjects(tmp_path))

    with pytest.raises(EverstepError, match=r"shards/train-.*\.jpegs does not exist"):
        batch(dataset)
