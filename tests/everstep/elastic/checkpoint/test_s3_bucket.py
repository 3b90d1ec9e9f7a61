"""Checkpoints in a bucket of an S3-compatible server: moto's, and MinIO where `make test-staging` has built it."""

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.exceptions import ClientError, CredentialRetrievalError, EndpointConnectionError
from urllib3 import HTTPHeaderDict, HTTPResponse

from everstep.elastic.checkpoint import restore, s3_bucket
from everstep.elastic.checkpoint.bucket import BucketError, MissingObjectError
from everstep.elastic.checkpoint.bucket_store import DATA, BucketStore
from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.checkpoint.s3_bucket import S3Bucket, bucket_at
from everstep.errors import EverstepError
from tests.everstep.elastic.checkpoint.s3_environment import use_server
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.servers import client_of
from tests.processes import free_port

RUN = {"model": "tiny"}
PART_BYTES = 5 << 20  # smallest part that S3 accepts, except for the last one


@pytest.fixture(scope="module", params=["moto", "minio"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("s3")
    with servers.moto() if request.param == "moto" else servers.minio(folder) as address:
        client_of(address).create_bucket(Bucket="models")
        yield address


@pytest.fixture
def bucket(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Bucket:
    use_server(monkeypatch, address)
    monkeypatch.setattr(s3_bucket, "PART_BYTES", PART_BYTES)
    return bucket_at(f"s3://models/{tmp_path.name}")


def save(store: BucketStore, step: int, *, values: int = 10, commit: bool = True) -> None:
    state = {"weight": torch.arange(values).float(), "step": torch.tensor(step)}
    store.write(state, Manifest(step, 1, RUN), commit=lambda _: commit, keep=2)


def test_a_state_in_several_parts_is_restored(bucket: S3Bucket) -> None:
    store, values = BucketStore(bucket), (PART_BYTES * 5) // (2 * 4)
    save(store, 8, values=values)

    checkpoint = restore.newest_checkpoint(store, RUN)

    assert checkpoint is not None
    tensors = checkpoint.load()
    assert torch.equal(tensors["weight"], torch.arange(values).float())
    assert int(tensors["step"]) == 8
    assert bucket.responded_at > 0
    assert bucket.uploads("") == []


def test_a_small_state_is_restored_and_old_ones_are_deleted(bucket: S3Bucket) -> None:
    store = BucketStore(bucket)
    for step in (8, 16, 24):
        save(store, step)

    assert [name[:13] for name in store.names()] == ["step-00000024", "step-00000016"]
    assert {key.removeprefix(DATA)[:13] for key in bucket.keys(DATA)} == {
        "step-00000016",
        "step-00000024",
    }


def test_an_upload_that_breaks_leaves_no_object(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_piece = bucket._put_piece

    def put_or_break(key: str, upload: str, number: int, piece: bytes) -> dict[str, Any]:
        if number == 2:
            raise BucketError(5, "the connection is broken", key)
        return put_piece(key, upload, number, piece)

    monkeypatch.setattr(bucket, "_put_piece", put_or_break)

    with pytest.raises(BucketError, match="is broken"):
        save(BucketStore(bucket), 8, values=PART_BYTES)

    assert bucket.keys("") == []
    assert bucket.uploads(DATA) == []


def test_a_completed_upload_whose_response_was_lost_is_recognized(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = bucket._complete

    def complete_twice(*arguments: Any) -> None:
        complete(*arguments)
        complete(*arguments)  # as boto3 does without a response

    monkeypatch.setattr(bucket, "_complete", complete_twice)
    save(BucketStore(bucket), 8, values=PART_BYTES)

    assert restore.newest_checkpoint(BucketStore(bucket), RUN) is not None


def test_an_object_is_put_only_in_place_of_the_expected_version(bucket: S3Bucket) -> None:
    assert bucket.put_if("run.json", b"first", None)
    assert not bucket.put_if("run.json", b"second", None), "another worker was faster"

    content, version = bucket.get("run.json")
    assert content == b"first"
    assert bucket.put_if("run.json", b"third", version)
    assert not bucket.put_if("run.json", b"fourth", version)
    assert bucket.get("run.json")[0] == b"third"


def test_a_missing_object_and_one_of_another_size_are_different_errors(bucket: S3Bucket) -> None:
    bucket.put("state", b"12345678")

    with pytest.raises(MissingObjectError):
        bucket.get_large("other", 8)
    with pytest.raises(ValueError, match="8 bytes instead of 9"):
        bucket.get_large("state", 9)
    bucket.delete("other")  # no error


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_does_not_exist_is_an_error_with_a_fix() -> None:
    with pytest.raises(
        EverstepError, match="the bucket of s3://nothing/run does not exist"
    ) as error:
        bucket_at("s3://nothing/run").put("a", b"")
    assert "create it" in error.value.fix


@pytest.mark.parametrize("url", ["s3://models", "s3://models/", "s3://Models/run", "s3:///run"])
def test_an_address_without_a_valid_bucket_or_a_prefix_is_refused(url: str) -> None:
    with pytest.raises(EverstepError, match="not of the form s3://BUCKET/PREFIX"):
        bucket_at(url)


def test_an_address_of_another_store_is_refused() -> None:
    with pytest.raises(EverstepError, match="a folder or at s3://BUCKET/PREFIX") as error:
        bucket_at("gs://bucket/run")
    assert "Mount" in error.value.fix


def test_an_unreachable_server_is_a_bucket_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_server(monkeypatch, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(s3_bucket, "ATTEMPTS", 1)

    with pytest.raises(BucketError, match="it does not respond"):
        S3Bucket("models", "run").put("a", b"")


Responder = Callable[[AWSRequest], AWSResponse]


@pytest.fixture
def offline_bucket(monkeypatch: pytest.MonkeyPatch) -> S3Bucket:
    """Return a bucket without a server; `respond_with` answers its requests."""
    use_server(monkeypatch, "http://127.0.0.1:1")
    return S3Bucket("models", "run")


def respond_with(bucket: S3Bucket, responder: Responder) -> None:
    def respond(request: AWSRequest, **_: object) -> AWSResponse:
        return responder(request)

    bucket._client.meta.events.register("before-send.s3", respond)


def response(status: int, body: bytes, **headers: str) -> AWSResponse:
    raw = HTTPResponse(io.BytesIO(body), preload_content=False)
    return AWSResponse("http://127.0.0.1:1", status, HTTPHeaderDict(headers), raw)


def error_response(status: int, code: str) -> AWSResponse:
    return response(status, f"<Error><Code>{code}</Code></Error>".encode())


@pytest.mark.parametrize(
    ("status", "code", "problem", "fix"),
    [
        (400, "ExpiredToken", "credentials for s3://models/run are not valid", "aws sso login"),
        (403, "InvalidAccessKeyId", "are not valid: InvalidAccessKeyId", "AWS_PROFILE"),
        (403, "SignatureDoesNotMatch", "are not valid", "AWS_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", "whose clock is wrong", "NTP"),
        (403, "InvalidObjectState", "s3://models/run/a is archived", "restore-object"),
        (403, "AccessDenied", "is forbidden: AccessDenied", "Allow s3:ListBucket"),
    ],
)
def test_a_refused_request_is_an_error_with_the_fix_for_its_cause(
    offline_bucket: S3Bucket, status: int, code: str, problem: str, fix: str
) -> None:
    respond_with(offline_bucket, lambda _: error_response(status, code))

    with pytest.raises(EverstepError) as error:
        offline_bucket.get("a")

    assert problem in error.value.problem
    assert fix in error.value.fix
    assert ("s3:ListBucket" in error.value.fix) == (code == "AccessDenied")


@pytest.mark.parametrize(
    ("operation", "status", "code"),
    [
        ("AssumeRoleWithWebIdentity", 403, "AccessDenied"),
        ("GetRoleCredentials", 404, "ResourceNotFoundException"),  # not a missing object
    ],
)
def test_a_refusal_of_the_service_that_issues_credentials_has_the_fix_for_the_role(
    offline_bucket: S3Bucket, operation: str, status: int, code: str
) -> None:
    respond_with(offline_bucket, refuse_credentials(operation, status, code))

    with pytest.raises(EverstepError) as error:
        offline_bucket.get("a")

    assert f"no credentials for s3://models/run: {operation} was refused: {code}" in str(
        error.value
    )
    assert "trust policy" in error.value.fix
    assert "s3:" not in error.value.fix, "S3 has not received a request"


@pytest.mark.parametrize(("status", "code"), [(500, "InternalFailure"), (400, "Throttling")])
def test_credentials_may_be_issued_later_by_an_overloaded_service(
    offline_bucket: S3Bucket, status: int, code: str
) -> None:
    respond_with(offline_bucket, refuse_credentials("AssumeRole", status, code))

    with pytest.raises(BucketError, match=code):
        offline_bucket.get("a")


def refuse_credentials(operation: str, status: int, code: str) -> Responder:
    def respond(_: AWSRequest) -> AWSResponse:
        response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(response, operation)

    return respond


def test_an_object_that_was_deleted_does_not_have_the_expected_version(
    offline_bucket: S3Bucket,
) -> None:
    respond_with(offline_bucket, lambda _: error_response(404, "NoSuchKey"))

    assert not offline_bucket.put_if("run.json", b"content", '"version"')


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"AWS_PROFILE": "absent"}, "profile (absent) could not be found"),
        ({"AWS_ENDPOINT_URL_S3": "localhost:9000"}, "Invalid endpoint: localhost:9000"),
        ({"AWS_DEFAULT_REGION": "not a region"}, "not a region"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "Partial credentials"),
        ({"AWS_CONFIG_FILE": __file__}, "Unable to parse config file"),
    ],
)
def test_a_wrong_configuration_is_an_error_with_a_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], problem: str
) -> None:
    use_server(monkeypatch, "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "absent"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(EverstepError) as error:
        S3Bucket("models", "run").put("a", b"")

    assert problem in error.value.problem
    assert "s3://models/run" in error.value.problem
    assert "AWS_PROFILE" in error.value.fix


def test_credentials_that_cannot_be_retrieved_now_may_be_retrieved_later(
    offline_bucket: S3Bucket,
) -> None:
    def respond(_: AWSRequest) -> AWSResponse:
        raise CredentialRetrievalError(provider="pod identity", error_msg="no response")

    respond_with(offline_bucket, respond)

    with pytest.raises(BucketError, match="no response"):
        offline_bucket.get("a")


def test_a_piece_is_read_again_after_a_pause_if_the_connection_ends(
    offline_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies, pauses = [b"1234", b"", b"12345678"], list[float]()
    monkeypatch.setattr(time, "sleep", pauses.append)
    headers = {"Content-Range": "bytes 0-7/8"}
    respond_with(offline_bucket, lambda _: response(206, bodies.pop(0), **headers))

    assert offline_bucket.get_large("state", 8) == b"12345678"
    assert pauses == [1.0, 2.0]


def test_a_request_without_a_response_has_as_many_attempts_as_boto3_makes(
    offline_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = list[str]()

    def respond(request: AWSRequest) -> AWSResponse:
        attempts.append(request.url)
        raise EndpointConnectionError(endpoint_url=request.url)

    monkeypatch.setattr(time, "sleep", lambda _: None)
    respond_with(offline_bucket, respond)

    with pytest.raises(BucketError, match="it does not respond"):
        offline_bucket.get_large("state", 8)
    assert len(attempts) == s3_bucket.ATTEMPTS


def test_the_first_failure_of_a_piece_cancels_the_pending_pieces(
    offline_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces, requests = 2000, list[str]()
    monkeypatch.setattr(s3_bucket, "PART_BYTES", 1)

    def respond(request: AWSRequest) -> AWSResponse:
        requests.append(request.url)
        return error_response(403, "AccessDenied")

    respond_with(offline_bucket, respond)

    with pytest.raises(EverstepError, match="is forbidden"):
        offline_bucket.get_large("state", pieces)
    assert len(requests) < pieces
