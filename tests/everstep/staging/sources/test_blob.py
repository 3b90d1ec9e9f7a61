"""Sources in Azure Blob Storage, with Azurite."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everstep.errors import EverstepError
from everstep.staging import copying
from everstep.staging.content import ChangedError, FileError
from everstep.staging.sources import blob
from everstep.staging.sources.blob import BlobSource
from everstep.staging.sources.location import open_source
from everstep.staging.stage import Observer, Options, stage
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.stores import (
    check_copy_continues,
    check_second_run_copies_nothing,
    check_wrong_checksum_is_refused,
)
from tests.everstep.staging.trees import files_of, make_tree
from tests.processes import free_port

LARGE_CONTENT = bytes(range(256)) * (10 << 12)  # 10 MiB: more than two ranges
SPECIAL_NAME = "a b+c%20d/é ü/#1&.bin"


class Store:
    """An Azurite server and one of its containers.

    Attributes:
        address: address of the server, without the account.
        container: client of the container.
    """

    def __init__(self, address: str) -> None:
        from azure.storage.blob import ContainerClient

        self.address = address
        account = f"{address}/{servers.AZURITE_ACCOUNT}"
        self.container: Any = ContainerClient(account, "data", credential=servers.AZURITE_KEY)

    def source(self, prefix: str = "", container: str = "data") -> BlobSource:
        return BlobSource(servers.AZURITE_ACCOUNT, container, prefix, self.address)

    def put(self, name: str, content: bytes, *, md5: bool = True, **settings: object) -> None:
        from azure.storage.blob import ContentSettings

        blob = self.container.upload_blob(name, content, overwrite=True, **settings)
        if not md5:  # like the MD5 of a blob that was uploaded in blocks
            blob.set_http_headers(ContentSettings(content_type="x/y"))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.azurite(tmp_path_factory.mktemp("azurite")) as address:
        yield address


@pytest.fixture
def store(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_KEY", servers.AZURITE_KEY)
    monkeypatch.setattr(copying, "FIRST_WAIT_SECONDS", 0.0)
    store = Store(address)
    store.container.create_container()
    yield store
    store.container.delete_container()


@pytest.fixture
def data(store: Store, tmp_path: Path) -> Path:
    """Return a folder that has the same files as the prefix `sets/imagenet` of the container."""
    folder = make_tree(tmp_path / "data", 20)
    (folder / SPECIAL_NAME).parent.mkdir(parents=True)
    (folder / SPECIAL_NAME).write_bytes(b"special")
    (folder / "large").write_bytes(LARGE_CONTENT)
    for number, (name, path) in enumerate(files_of(folder).items()):
        store.put(f"sets/imagenet/{name}", path.read_bytes(), md5=bool(number % 2))
    store.put("sets/imagenet/folder", b"", metadata={"hdi_isfolder": "true"})
    store.put("sets/imagenet/folder/file", b"in a folder")
    (folder / "folder").mkdir()
    (folder / "folder/file").write_bytes(b"in a folder")
    store.put("sets/imagenet-2/other", b"another data set")
    return folder


def test_a_prefix_is_staged_and_a_second_run_reads_no_blob(
    store: Store, data: Path, tmp_path: Path
) -> None:
    check_second_run_copies_nothing(store.source("sets/imagenet"), data, tmp_path / "out", files=23)


@pytest.mark.parametrize("name", ["sets/imagenet/large", "top"])
def test_one_blob_is_staged_by_its_name(store: Store, tmp_path: Path, name: str) -> None:
    store.put(name, b"one")
    store.put(name + "-other", b"other")

    stage(store.source(name), tmp_path / "out", Options(), Observer())

    assert list(files_of(tmp_path / "out")) == [name.rpartition("/")[2]]


@pytest.mark.parametrize("md5", [True, False])
def test_the_copy_of_a_blob_continues_at_an_offset(store: Store, tmp_path: Path, md5: bool) -> None:
    store.put("large", LARGE_CONTENT, md5=md5)

    check_copy_continues(store, tmp_path, LARGE_CONTENT)


@pytest.mark.parametrize("change", ["put", "delete"])
def test_a_blob_that_changed_after_it_was_listed_is_named(
    store: Store, tmp_path: Path, change: str
) -> None:
    store.put("folder/file", b"old")
    (entry,) = store.source().entries()
    store.put("folder/file", b"new")
    if change == "delete":
        store.container.delete_blob("folder/file")

    with pytest.raises(ChangedError, match="folder/file changed or was removed"):
        copying.copy(store.source(), entry, tmp_path / "file", tmp_path, lambda _: None)

    assert not (tmp_path / "file").exists()


def test_content_that_differs_from_its_md5_is_refused(store: Store, tmp_path: Path) -> None:
    check_wrong_checksum_is_refused(store, tmp_path)


def test_a_name_with_an_empty_component_is_refused(store: Store, tmp_path: Path) -> None:
    store.put("a//b", b"x")

    with pytest.raises(EverstepError, match="empty component"):
        stage(store.source(), tmp_path / "out", Options(), Observer())


def test_an_archived_blob_is_refused_before_anything_is_copied(
    store: Store, tmp_path: Path
) -> None:
    from azure.storage.blob import StandardBlobTier

    store.put("old", b"x", standard_blob_tier=StandardBlobTier.ARCHIVE)

    with pytest.raises(EverstepError, match=r"the blob 'old' of az://.* is archived"):
        stage(store.source(), tmp_path / "out", Options(), Observer())


def test_a_blob_that_was_archived_after_it_was_listed_is_named(store: Store) -> None:
    from azure.storage.blob import StandardBlobTier

    store.put("old", b"x")
    (entry,) = store.source().entries()
    store.container.get_blob_client("old").set_standard_blob_tier(StandardBlobTier.ARCHIVE)

    with (
        pytest.raises(FileError, match=r"the blob 'old' of az://.* is archived") as error,
        store.source().open(entry, 0),
    ):
        pytest.fail("opened")

    assert "set-tier" in error.value.fix


def test_another_blob_that_begins_with_the_name_is_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = SimpleNamespace(content_md5=None)
    blobs = [
        SimpleNamespace(
            name=name, size=1, etag="1", metadata=None, blob_tier=tier, content_settings=settings
        )
        for name, tier in (("photos.tar", "Hot"), ("photos.tar.old", "Archive"))
    ]

    def list_blobs(name_starts_with: str, include: list[str]) -> list[SimpleNamespace]:
        return [blob for blob in blobs if blob.name.startswith(name_starts_with)]

    client = SimpleNamespace(list_blobs=list_blobs)
    monkeypatch.setattr(blob, "new_client", lambda *_: client)

    entries = list(BlobSource("account", "data", "photos.tar").entries())

    assert [entry.name for entry in entries] == ["photos.tar"]


def test_a_missing_container_is_named(store: Store) -> None:
    source = open_source(f"az://{servers.AZURITE_ACCOUNT}/none/x", store.address)

    with pytest.raises(EverstepError, match="the container 'none' of the account") as error:
        list(source.entries())

    assert "az storage container list" in error.value.fix


def test_wrong_credentials_are_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "d3Jvbmc=")

    with pytest.raises(EverstepError, match=r"no valid credentials|cannot be accessed") as error:
        list(store.source().entries())

    assert "AZURE_STORAGE_KEY" in error.value.fix


@pytest.mark.parametrize(
    "connection",
    [
        "AccountName=other;AccountKey=d3Jvbmc=;EndpointSuffix=core.windows.net",
        "BlobEndpoint=https://other.blob.core.windows.net/;SharedAccessSignature=sig=d3Jvbmc=",
    ],
)
def test_a_connection_string_of_another_account_is_refused(
    connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection)

    with pytest.raises(EverstepError, match="account 'other', not for 'account'") as error:
        open_source("az://account/data")

    assert "d3Jvbmc=" not in str(error.value), "the key is a secret"


def test_an_account_that_does_not_respond_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob, "ATTEMPTS", 0)
    monkeypatch.setenv("AZURE_STORAGE_KEY", servers.AZURITE_KEY)
    source = BlobSource("account", "data", "", f"http://127.0.0.1:{free_port()}")

    with pytest.raises(EverstepError, match="the storage account 'account' does not") as error:
        list(source.entries())

    assert "az storage account list" in error.value.fix


@pytest.mark.parametrize(
    ("code", "status", "words", "fix"),
    [
        ("ContainerNotFound", 404, "'data' of the account 'me' does not exist", "container list"),
        (
            "AuthorizationPermissionMismatch",
            403,
            "'data' of the account 'me' cannot be",
            "Blob Data Rea",
        ),
        ("AuthorizationFailure", 403, "cannot be accessed: AuthorizationFailure", "firewall"),
        ("ServerBusy", 503, "az://me/data/x cannot be listed: ServerBusy", "later"),
    ],
)
def test_each_refusal_of_a_container_has_a_fix(
    code: str, status: int, words: str, fix: str
) -> None:
    error = blob.listing_error("az://me/data/x", code, status)

    assert words in error.problem
    assert fix in error.fix


def test_a_container_that_the_identity_may_not_read_is_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("set/file", b"content")
    settings = f"BlobEndpoint={store.address}/{servers.AZURITE_ACCOUNT};SharedAccessSignature="
    location = f"az://{servers.AZURITE_ACCOUNT}/data/set"

    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING", settings + servers.container_token("data")
    )
    stage(open_source(location), tmp_path / "out", Options(), Observer())
    assert list(files_of(tmp_path / "out")) == ["file"]

    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING", settings + servers.container_token("other")
    )
    with pytest.raises(
        EverstepError, match=r"'data' .* cannot be accessed: AuthorizationFailure"
    ) as error:
        list(open_source(location).entries())

    assert "Storage Blob Data Reader" in str(error.value.fix)
