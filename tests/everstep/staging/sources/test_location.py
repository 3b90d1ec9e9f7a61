"""The forms of a source's location."""

from pathlib import Path

import pytest

from everstep.errors import EverstepError
from everstep.staging.sources.location import FORMS, open_source


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("az://account/container", "az://account/container"),
        ("az://account/container/a/b/", "az://account/container/a/b"),
    ],
)
def test_a_store_is_named_without_a_slash_at_its_end(
    location: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")

    assert open_source(location).name == name


@pytest.mark.parametrize("location", ["s3://", "az://account", "az://", "ftp://host/x", "gs://b"])
def test_an_unsupported_location_is_refused_with_all_forms(location: str) -> None:
    with pytest.raises(EverstepError, match="is not supported") as error:
        open_source(location)

    assert FORMS in error.value.fix


def test_a_file_that_is_not_an_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.zip").touch()

    with pytest.raises(EverstepError, match=r"data\.zip' is not a tar archive"):
        open_source(str(tmp_path / "data.zip"))


def test_an_endpoint_of_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="--endpoint is 'http://x'"):
        open_source(str(tmp_path), "http://x")
