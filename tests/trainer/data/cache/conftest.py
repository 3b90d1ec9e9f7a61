"""Shards of a few photographs, in a folder that stands in for an object store."""

from pathlib import Path

import pytest

from everstep.progress import Silent
from everstep.staging.sources import objects as objects_module
from tests.trainer.data.cache.stores import FolderObjects
from tests.trainer.data.photographs import write_photographs
from trainer.data import convert
from trainer.data.shard import Resizing


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three shards of each split."""
    folder = tmp_path_factory.mktemp("stored")
    test = write_photographs(folder / "photographs", per_class=40) / "test"
    # Otherwise both splits have the same images, and their indexes could be confused.
    (test / "cat" / "0.jpg").write_bytes((test / "dog" / "0.jpg").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "MIN_SAMPLES", 27)  # a third of the 80 images, rounded up
        convert.convert(
            folder / "photographs", folder / "shards", Resizing(short_side=32), 1, Silent()
        )
    return folder / "shards"


@pytest.fixture
def store(shards: Path, monkeypatch: pytest.MonkeyPatch) -> FolderObjects:
    """Return the shards as objects; broken requests are retried immediately."""
    monkeypatch.setattr(objects_module, "FIRST_WAIT_SECONDS", 0.0)
    return FolderObjects(shards)
