"""Sources in S3, with MinIO and moto."""

import io
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from everstep.errors import EverstepError
from everstep.staging import copying
from everstep.staging.content import ChangedError, Content, FileError
from everstep.staging.entry import Entry
from everstep.staging.sources import s3
from everstep.staging.sources.location import open_source
from everstep.staging.sources.s3 import S3Source
from everstep.staging.stage import Observer, Options, stage
from tests.everstep.elastic.checkpoint.s3_environment import use_server
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.servers import client_of
from tests.everstep.staging.sources.stores import (
    check_copy_continues,
    check_second_run_copies_nothing,
    check_wrong_checksum_is_refused,
)
from tests.everstep.staging.trees import files_of, make_tree, wrong_files
from tests.processes import free_port

PART_BYTES = 5 << 20
LARGE_CONTENT = bytes(range(256)) * (11 << 12)  # 11 MiB: two parts, and a shorter third
SPECIAL_NAME = "a b+c%20d/é ü/#1?&.bin"


class Store:
    """An S3-compatible server and one of its buckets.

    Attributes:
        address: address of the server.
        client: its boto3 client.
        bucket: name of the bucket.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = client_of(address)
        self.bucket = "data"

    @property
    def accepts_all_credentials(self) -> bool:
        response = self.client.list_buckets()
        return "MinIO" not in response["ResponseMetadata"]["HTTPHeaders"].get("server", "")

    def source(self, prefix: str = "") -> S3Source:
        return S3Source(self.bucket, prefix, self.address)

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def put_multipart(self, key: str, content: bytes) -> None:
        from boto3.s3.transfer import TransferConfig

        settings = TransferConfig(multipart_threshold=1, multipart_chunksize=PART_BYTES)
        self.client.upload_fileobj(io.BytesIO(content), self.bucket, key, Config=settings)

    def put_parts(self, key: str, parts: list[bytes]) -> None:
        target = {"Bucket": self.bucket, "Key": key}
        upload = self.client.create_multipart_upload(**target)["UploadId"]
        sent_parts = [
            {
                "PartNumber": number,
                "ETag": self.client.upload_part(
                    **target, UploadId=upload, PartNumber=number, Body=part
                )["ETag"],
            }
            for number, part in enumerate(parts, 1)
        ]
        self.client.complete_multipart_upload(
            **target, UploadId=upload, MultipartUpload={"Parts": sent_parts}
        )


@pytest.fixture(scope="module", params=["moto", "minio"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    server = (
        servers.moto() if request.param == "moto" else servers.minio(tmp_path_factory.mktemp("s3"))
    )
    with server as address:
        yield address


@pytest.fixture
def store(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", servers.KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", servers.SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(copying, "FIRST_WAIT_SECONDS", 0.0)
    store = Store(address)
    store.client.create_bucket(Bucket=store.bucket)
    yield store
    for page in store.client.get_paginator("list_objects_v2").paginate(Bucket=store.bucket):
        for item in page.get("Contents", ()):
            store.client.delete_object(Bucket=store.bucket, Key=item["Key"])
    store.client.delete_bucket(Bucket=store.bucket)


@pytest.fixture
def data(store: Store, tmp_path: Path) -> Path:
    """Return a folder that has the same files as the prefix `sets/imagenet` of the bucket."""
    folder = make_tree(tmp_path / "data", 30)
    (folder / SPECIAL_NAME).parent.mkdir(parents=True)
    (folder / SPECIAL_NAME).write_bytes(b"special")
    for name, path in files_of(folder).items():
        store.put(f"sets/imagenet/{name}", path.read_bytes())
    store.put_multipart("sets/imagenet/large", LARGE_CONTENT)
    (folder / "large").write_bytes(LARGE_CONTENT)
    store.put("sets/imagenet/folder-marker/", b"")
    store.put("sets/imagenet-2/other", b"another data set")
    return folder


def test_a_prefix_is_staged_and_a_second_run_requests_no_object(
    store: Store, data: Path, tmp_path: Path
) -> None:
    check_second_run_copies_nothing(store.source("sets/imagenet"), data, tmp_path / "out", files=32)


def test_existing_files_are_compared_with_their_etags_instead_of_copied(
    store: Store, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    shutil.copytree(data, target)
    name = next(name for name, path in files_of(data).items() if path.stat().st_size == 4096)
    (target / name).write_bytes(b"x" * (target / name).stat().st_size)
    requested_names: list[str] = []
    source = store.source("sets/imagenet")
    open_object = source.open

    def record_and_open(entry: Entry, offset: int) -> AbstractContextManager[Content]:
        requested_names.append(entry.name)
        return open_object(entry, offset)

    monkeypatch.setattr(source, "open", record_and_open)

    stage(source, target, Options(), Observer())

    assert sorted(requested_names) == sorted([name, "large"]), (
        "the ETag of a multipart object is not an MD5"
    )
    assert wrong_files(data, target) == []


def test_one_object_is_staged_by_its_key(store: Store, data: Path, tmp_path: Path) -> None:
    stage(store.source("sets/imagenet/large"), tmp_path / "out", Options(), Observer())

    assert {name: path.read_bytes() for name, path in files_of(tmp_path / "out").items()} == {
        "large": LARGE_CONTENT
    }


def test_the_checksum_of_a_multipart_object_is_its_etag_with_the_part_size(
    store: Store,
) -> None:
    store.put_multipart("large", LARGE_CONTENT)
    (entry,) = store.source().entries()

    with store.source().open(entry, 0) as content:
        assert content.checksum == (entry.version.strip('"'), PART_BYTES)
        assert entry.version.endswith('-3"')


@pytest.mark.parametrize(
    "sizes",
    [(PART_BYTES, 2 * PART_BYTES, 1), (2 * PART_BYTES, PART_BYTES, 2 * PART_BYTES)],
    ids=["another number of parts", "the number of parts of equal size"],
)
def test_an_object_with_parts_of_other_sizes_has_no_checksum(
    store: Store, sizes: tuple[int, ...]
) -> None:
    store.put_parts("parts", [bytes(size) for size in sizes])
    (entry,) = store.source().entries()

    with store.source().open(entry, 0) as content:
        assert content.checksum is None
        assert b"".join(content.chunks) == bytes(sum(sizes))


def test_the_copy_of_an_object_continues_at_an_offset(store: Store, tmp_path: Path) -> None:
    store.put_multipart("large", LARGE_CONTENT)

    check_copy_continues(store, tmp_path, LARGE_CONTENT)


@pytest.mark.parametrize(
    ("change", "words"), [("put", "changed after it was"), ("delete", "was removed")]
)
def test_an_object_that_changed_after_it_was_listed_is_named(
    store: Store, tmp_path: Path, change: str, words: str
) -> None:
    store.put("folder/file", b"old")
    (entry,) = store.source().entries()
    store.put("folder/file", b"new")
    if change == "delete":
        store.client.delete_object(Bucket=store.bucket, Key="folder/file")

    with pytest.raises(ChangedError, match=f"folder/file {words}"):
        copying.copy(store.source(), entry, tmp_path / "file", tmp_path, lambda _: None)

    assert not (tmp_path / "file").exists()


def test_content_that_differs_from_the_etag_is_refused(store: Store, tmp_path: Path) -> None:
    check_wrong_checksum_is_refused(store, tmp_path)


@pytest.mark.parametrize("key", ["../x", "/etc/passwd", "a/../../x", "a//b"])
def test_an_unsafe_key_is_refused(store: Store, tmp_path: Path, key: str) -> None:
    try:
        store.put(key, b"x")
    except store.client.exceptions.ClientError:
        pytest.skip("the server refuses this key")
    if [item["Key"] for item in store.client.list_objects_v2(Bucket="data")["Contents"]] != [key]:
        pytest.skip("the server changes this key")

    with pytest.raises(EverstepError, match=r"is an absolute path|contains '\.\.'|empty component"):
        stage(store.source(), tmp_path / "out", Options(), Observer())


def test_a_missing_bucket_is_named(store: Store) -> None:
    source = open_source("s3://no-such-bucket/x", store.address)

    with pytest.raises(EverstepError, match="the bucket 'no-such-bucket' does not exist"):
        list(source.entries())


def test_a_prefix_without_objects_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="s3://data/nothing has no files"):
        stage(store.source("nothing"), tmp_path / "out", Options(), Observer())


def test_missing_credentials_are_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")

    with pytest.raises(EverstepError, match="no credentials for s3://data") as error:
        list(store.source().entries())

    assert "AWS_PROFILE" in error.value.fix


def test_a_role_that_may_not_be_assumed_is_named_instead_of_permissions_of_s3(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(**_: object) -> None:
        response = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
        raise ClientError(response, "AssumeRoleWithWebIdentity")

    use_server(monkeypatch, "http://127.0.0.1:9")
    source = S3Source("data", "", "http://127.0.0.1:9")
    source._client.meta.events.register("before-send.s3", refuse)

    with pytest.raises(EverstepError, match="AssumeRoleWithWebIdentity was refused") as listing:
        list(source.entries())
    with pytest.raises(FileError, match="AssumeRoleWithWebIdentity was refused") as reading:
        source.open(Entry("a", 1, '"1"', "a"), 0).__enter__()

    for error in (listing, reading):
        assert "trust policy" in error.value.fix
        assert "s3:" not in error.value.fix


def test_a_server_that_does_not_respond_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    source = S3Source("data", "", f"http://127.0.0.1:{free_port()}")

    with pytest.raises(EverstepError, match="s3://data does not respond") as error:
        list(source.entries())

    assert "--endpoint" in error.value.fix


@pytest.mark.parametrize(
    ("code", "status", "words", "fix"),
    [
        ("NoSuchBucket", 404, "'data' does not exist", "aws s3 ls"),
        (
            "AccessDenied",
            403,
            "'data' cannot be accessed: AccessDenied",
            "s3:ListBucket on arn:aws:s3",
        ),
        ("InvalidAccessKeyId", 403, "credentials for the bucket 'data' are not", "aws sts"),
        ("ExpiredToken", 400, "are not valid: ExpiredToken", "aws sso login"),
        ("RequestTimeTooSkewed", 403, "whose clock is wrong", "NTP"),
        ("Other", 500, "'data' cannot be listed: message", "region"),
    ],
)
def test_each_refusal_of_a_bucket_has_a_fix(code: str, status: int, words: str, fix: str) -> None:
    error = s3.listing_error("data", code, status, "message")

    assert words in error.problem
    assert fix in error.fix


@pytest.mark.parametrize(
    ("code", "status", "fix"),
    [("ExpiredToken", 400, "aws sso login"), ("RequestTimeTooSkewed", 403, "NTP")],
)
def test_a_request_that_is_refused_while_a_file_is_copied_has_the_fix_for_its_cause(
    store: Store, code: str, status: int, fix: str
) -> None:
    store.put("folder/file", b"content")
    source = store.source()
    (entry,) = source.entries()
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = store.client.exceptions.ClientError(response, "GetObject")

    refusal = source._file_error(entry, error)

    assert isinstance(refusal, FileError)
    assert fix in refusal.fix


def test_an_archived_object_is_refused_before_anything_is_copied(
    store: Store, tmp_path: Path
) -> None:
    try:
        store.client.put_object(Bucket="data", Key="old", Body=b"x", StorageClass="GLACIER")
    except store.client.exceptions.ClientError:
        pytest.skip("the server has no such storage class")

    with pytest.raises(EverstepError, match=r"s3://data/old is archived: GLACIER") as error:
        stage(store.source(), tmp_path / "out", Options(), Observer())

    assert "restore-object" in error.value.fix


@pytest.mark.parametrize(
    ("bucket", "attributes"),
    [("data", {"OptionalObjectAttributes": ["RestoreStatus"]}), ("data--use1-az4--x-s3", {})],
)
def test_a_restored_object_is_listed(
    bucket: str, attributes: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    archived = {"Key": "old", "Size": 1, "ETag": '"1"', "StorageClass": "DEEP_ARCHIVE"}
    restored = {"IsRestoreInProgress": False, "RestoreExpiryDate": datetime.now(UTC)}
    client = client_of("http://127.0.0.1:9")
    monkeypatch.setattr(s3, "new_client", lambda *_: client)
    with Stubber(client) as stubber:
        for status in (restored, {"IsRestoreInProgress": True}):
            stubber.add_response(
                "list_objects_v2",
                {"Contents": [{**archived, "RestoreStatus": status}]},
                {"Bucket": bucket, "Prefix": "", **attributes},
            )

        assert [entry.name for entry in S3Source(bucket, "").entries()] == ["old"]
        with pytest.raises(EverstepError, match="old is archived"):
            list(S3Source(bucket, "").entries())


def test_the_etag_of_an_encrypted_object_is_not_taken_for_a_checksum(
    store: Store, tmp_path: Path
) -> None:
    try:
        store.client.put_object(
            Bucket="data", Key="file", Body=b"x", ServerSideEncryption="aws:kms"
        )
    except store.client.exceptions.ClientError:
        pytest.skip("the server has no KMS keys")
    (entry,) = store.source().entries()

    with store.source().open(entry, 0) as content:
        assert content.checksum is None


def test_wrong_credentials_are_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    if store.accepts_all_credentials:
        pytest.skip("moto accepts all credentials")

    with pytest.raises(EverstepError, match="credentials for the bucket 'data' are not") as error:
        list(store.source().entries())

    assert "aws sts get-caller-identity" in error.value.fix


def test_a_wrong_prefix_is_named_if_the_identity_may_list_only_its_own_prefix() -> None:
    # S3 responds 403 to HEAD of a missing object, unless the identity may list its name.
    source = S3Source("data", "imagnet", "http://127.0.0.1:1")
    with Stubber(source._client) as stub:
        stub.add_response("list_objects_v2", {"KeyCount": 0, "IsTruncated": False})
        stub.add_client_error("head_object", "403", "Forbidden", http_status_code=403)

        with pytest.raises(EverstepError, match="s3://data/imagnet has no files") as error:
            list(source.entries())

    assert "Check the path or the prefix" in str(error.value.fix)
