"""Ranges of objects, with moto, and with MinIO and Azurite where `make test-staging` has installed them."""

import base64
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from everstep.errors import EverstepError
from everstep.staging.content import BrokenContentError
from everstep.staging.sources.objects import (
    Objects,
    open_objects,
    read_with_retries,
)
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.servers import client_of

CONTENT = bytes(range(200))
PREFIX = "shards of/2012"


@pytest.fixture(scope="module", params=["moto", "minio", "azurite"])
def location(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Yield the address of a prefix with one object, `shard`, on each of the servers."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "azurite":
            with servers.azurite(folder) as address:
                yield set_up_azure(address, patch)
        else:
            server = servers.moto() if request.param == "moto" else servers.minio(folder)
            with server as address:
                yield set_up_s3(address, patch)


def set_up_azure(address: str, patch: pytest.MonkeyPatch) -> str:
    from azure.storage.blob import ContainerClient

    account = servers.AZURITE_ACCOUNT
    settings = f"AccountName={account};AccountKey={servers.AZURITE_KEY};"
    settings += f"BlobEndpoint={address}/{account};"
    patch.setenv("AZURE_STORAGE_CONNECTION_STRING", settings)
    client = ContainerClient.from_connection_string(settings, "objects")
    client.create_container()
    client.upload_blob(f"{PREFIX}/shard", CONTENT)
    return f"az://{account}/objects/{PREFIX}"


def set_up_s3(address: str, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("AWS_ENDPOINT_URL_S3", address)
    patch.setenv("AWS_ACCESS_KEY_ID", servers.KEY_ID)
    patch.setenv("AWS_SECRET_ACCESS_KEY", servers.SECRET)
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client_of(address).create_bucket(Bucket="objects")
    client_of(address).put_object(Bucket="objects", Key=f"{PREFIX}/shard", Body=CONTENT)
    return f"s3://objects/{PREFIX}"


@pytest.fixture
def objects(location: str) -> Objects:
    return open_objects(location)


def test_a_range_and_the_whole_object_are_read(objects: Objects, location: str) -> None:
    assert objects.read("shard") == CONTENT
    assert objects.read("shard", 0, 1) == CONTENT[:1]
    assert objects.read("shard", 150, 50) == CONTENT[150:]
    assert objects.name == location


def test_a_missing_object_is_named(objects: Objects, location: str) -> None:
    for size in (None, 10):
        with pytest.raises(EverstepError, match=f"{location}/other does not exist"):
            objects.read("other", 0, size)


def test_a_range_after_the_end_of_the_object_is_an_error(objects: Objects) -> None:
    with pytest.raises(EverstepError, match="shard is shorter than it was"):
        objects.read("shard", len(CONTENT) + 1, 10)  # at the end, Azurite returns no error


def test_a_range_beyond_the_end_of_the_object_is_not_returned_in_part(objects: Objects) -> None:
    with pytest.raises(BrokenContentError, match="10 bytes instead of 20"):
        objects.read("shard", 190, 20)


def test_a_missing_bucket_is_named(location: str) -> None:
    other_objects = open_objects(location.replace("/objects/", "/nowhere/"))

    with pytest.raises(EverstepError, match=r"'nowhere'.* does not exist"):
        other_objects.read("shard")


def test_wrong_credentials_are_an_error_with_a_fix(
    location: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.node.callspec.params["location"] == "moto":
        pytest.skip("moto accepts all credentials")
    connection = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    invalid_connection = connection.replace(
        servers.AZURITE_KEY, base64.b64encode(b"wrong").decode()
    )
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", invalid_connection)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")

    with pytest.raises(
        EverstepError, match=r"are not valid|no valid credentials|cannot be accessed"
    ) as error:
        open_objects(location).read("shard")

    assert error.value.fix


def test_requests_to_a_store_that_does_not_respond_are_retried_before_they_fail() -> None:
    waits: list[float] = []

    def raise_broken() -> bytes:
        raise BrokenContentError("the connection broke")

    with pytest.raises(EverstepError, match=r"s3://b cannot be read: the connection broke"):
        read_with_retries(raise_broken, "s3://b", 10, waits.append)

    assert waits == [0.5, 1, 2, 4, 8]


def test_requests_are_retried_until_azure_has_applied_a_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    with one_refusal("AuthorizationPermissionMismatch") as address:
        settings = f"BlobEndpoint={address}/account;SharedAccessSignature=sig=none"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", settings)
        objects = open_objects("az://account/objects")

        content = read_with_retries(lambda: objects.read("shard"), objects.name, 10, waits.append)

    assert content == CONTENT
    assert waits == [0.5]


def test_a_request_is_not_retried_after_another_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with one_refusal("AuthorizationFailure") as address:
        settings = f"BlobEndpoint={address}/account;SharedAccessSignature=sig=none"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", settings)
        objects = open_objects("az://account/objects")

        with pytest.raises(EverstepError, match="cannot be accessed: AuthorizationFailure"):
            read_with_retries(lambda: objects.read("shard"), objects.name, 10, waits.append)

    assert not waits


@contextmanager
def one_refusal(code: str) -> Iterator[str]:
    """Run a server that refuses its first request as Blob Storage does; yield its address.

    Azurite has no roles.
    """
    codes = [code]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            refusal = codes.pop() if codes else ""
            content = b"" if refusal else CONTENT
            self.send_response(HTTPStatus.FORBIDDEN if refusal else HTTPStatus.PARTIAL_CONTENT)
            if refusal:
                self.send_header("x-ms-error-code", refusal)
            else:
                self.send_header("Content-Range", f"bytes 0-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as in the base class
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_response_after_a_failed_attempt_is_returned() -> None:
    waits: list[float] = []

    def read() -> bytes:
        if not waits:
            raise BrokenContentError("the connection broke")
        return b"content"

    assert read_with_retries(read, "s3://b", 10, waits.append) == b"content"


@pytest.mark.parametrize(
    "location", ["", "s3://", "az://account", "az:///container", "gs://bucket/x", "/a/folder"]
)
def test_an_address_that_is_not_a_prefix_of_objects_is_refused(location: str) -> None:
    with pytest.raises(EverstepError, match="is not an address of objects") as error:
        open_objects(location)

    assert "s3://BUCKET/PREFIX or az://" in error.value.fix
