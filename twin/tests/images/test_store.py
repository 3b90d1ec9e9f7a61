"""Keys of image stores, and the archives of users."""

import os
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.images import store


def test_a_store_is_built_again_when_an_image_or_a_users_archive_changes(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "other.tar"
    archive.write_text("one")
    keys = {"trainer": "a", "etcd": "b"}
    store_keys = {store.store_key(keys, []), store.store_key(keys, [archive])}
    assert store.store_key(dict(reversed(keys.items())), []) in store_keys

    store_keys.add(store.store_key(keys | {"etcd": "c"}, []))
    os.utime(archive, ns=(0, 1))
    store_keys.add(store.store_key(keys, [archive]))

    assert len(store_keys) == 4


def test_the_users_archives_are_the_tars_in_the_configured_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.tar", "a.tar", "notes.txt"):
        (tmp_path / name).touch()

    monkeypatch.delenv(store.ARCHIVES_VARIABLE, raising=False)
    assert store.image_archives() == []
    monkeypatch.setenv(store.ARCHIVES_VARIABLE, str(tmp_path))
    assert [path.name for path in store.image_archives()] == ["a.tar", "b.tar"]


def test_a_missing_folder_of_archives_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.ARCHIVES_VARIABLE, str(tmp_path / "gone"))

    with pytest.raises(TwinError, match=r"CLOUDTWIN_IMAGES is '.*gone', which is not a folder"):
        store.image_archives()
