"""The cache of a node with its process, filled from an S3-compatible server."""

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from everstep.staging.sources.objects import open_objects
from tests.everstep.elastic.checkpoint.s3_environment import use_server
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.servers import client_of
from trainer import data
from trainer.data import BatchRequest, Cache, open_cache
from trainer.data.cache.folder import open_cache_folder
from trainer.data.cache.plan import CacheLimits
from trainer.data.loader import Loader

SIZE, WAIT_SECONDS = 24, 300.0
STORE = "s3://photographs/shards/small"


@pytest.fixture(scope="module")
def address(shards: Path) -> Iterator[str]:
    """Yield the address of a server with the shards."""
    with servers.moto() as address:
        client = client_of(address)
        client.create_bucket(Bucket="photographs")
        for path in shards.iterdir():
            client.upload_file(str(path), "photographs", f"shards/small/{path.name}")
        yield address


@pytest.fixture(autouse=True)
def credentials(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_server(monkeypatch, address)


@pytest.fixture
def caches(tmp_path: Path) -> Iterator[list[Cache]]:
    """Yield two caches in one folder, as two worker processes of a node open them."""
    opened_caches = [open_cache(STORE, tmp_path / "cache", CacheLimits()) for _ in range(2)]
    yield opened_caches
    for cache in opened_caches:
        cache.close()


def wait_for_end(process: int) -> bool:
    """Return True if a process ends in time."""
    handle = os.pidfd_open(process)
    try:
        return bool(select.select([handle], [], [], WAIT_SECONDS)[0])
    finally:
        os.close(handle)


def test_the_cache_is_filled_and_its_process_ends(caches: list[Cache], shards: Path) -> None:
    assert all(wait_for_end(cache.process_id) for cache in caches)

    for path in shards.iterdir():
        assert (caches[0].folder / path.name).read_bytes() == path.read_bytes()
    assert not list(caches[0].folder.glob("*.partial"))
    caches[0].prefetch([np.arange(10)])  # a process that has ended needs no hint


def test_another_process_continues_if_the_first_is_killed(
    caches: list[Cache], shards: Path
) -> None:
    os.kill(caches[0].process_id, signal.SIGKILL)

    caches[1].prefetch([np.arange(10)])

    assert wait_for_end(caches[1].process_id)
    assert {path.name for path in caches[1].folder.iterdir()} == {p.name for p in shards.iterdir()}


def test_readers_get_the_images_of_the_folder_while_the_cache_is_cold(
    shards: Path, tmp_path: Path
) -> None:
    # In place of the process that fills the cache: it does nothing until its input is closed.
    idle_command = ["sh", "-c", "cat > /dev/null"]
    cache = Cache(
        open_cache_folder(tmp_path / "cache", open_objects(STORE)),
        STORE,
        CacheLimits(),
        idle_command,
    )
    folder_dataset = data.load("imagefolder", shards, "train", SIZE)
    splits = [
        data.load("imagefolder", cache.folder, split, SIZE, store=STORE)
        for split in ("train", "test")
    ]
    train, _ = data.read_ahead(splits[0], splits[1], readers=2, global_batch=16)
    assert isinstance(train, Loader)
    try:
        ids = np.arange(len(folder_dataset))[::-1]
        train.prefetch([BatchRequest(ids=ids, seed=4)])

        images, labels = train.train_batch(ids, 4, 0)

        expected_images, expected_labels = folder_dataset.train_batch(ids, 4, 0)
        assert np.array_equal(images, expected_images)
        assert np.array_equal(labels, expected_labels)
        assert not list(cache.folder.glob("*.jpegs")), "the cache was not cold"
    finally:
        train.close()
        cache.close()
