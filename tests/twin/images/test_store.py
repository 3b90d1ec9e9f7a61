import os

import pytest

from everstep.errors import EverstepError
from everstep.progress import Silent
from twin import images
from twin.images import store


def test_a_store_is_made_anew_when_an_image_or_an_archive_of_others_changes(tmp_path):
    archive = tmp_path / "other.tar"
    archive.write_text("one")
    keys = {"trainer": "a", "etcd": "b"}
    seen = {store.store_key(keys, []), store.store_key(keys, [archive])}
    assert store.store_key(dict(reversed(keys.items())), []) in seen

    seen.add(store.store_key(keys | {"etcd": "c"}, []))
    os.utime(archive, ns=(0, 1))
    seen.add(store.store_key(keys, [archive]))

    assert len(seen) == 4


def test_archives_of_others_are_those_in_the_folder_that_is_named(tmp_path, monkeypatch):
    for name in ("b.tar", "a.tar", "notes.txt"):
        (tmp_path / name).touch()

    monkeypatch.delenv(store.FOREIGN, raising=False)
    assert store.foreign_archives() == []
    monkeypatch.setenv(store.FOREIGN, str(tmp_path))
    assert [path.name for path in store.foreign_archives()] == ["a.tar", "b.tar"]


def test_a_folder_of_archives_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(store.FOREIGN, str(tmp_path / "gone"))

    with pytest.raises(
        EverstepError, match=r"EVERSTEP_TWIN_IMAGES is '.*gone', which is no folder"
    ):
        store.foreign_archives()


def test_an_image_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(EverstepError, match="no image 'trianer'") as caught:
        images.build("trianer", Silent())

    assert "trainer" in caught.value.remedy
