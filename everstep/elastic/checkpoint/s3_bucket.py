"""A bucket for checkpoints in S3, or on an S3-compatible server.

boto3 finds credentials, region and endpoint: the pod's identity, `AWS_PROFILE`, `AWS_ENDPOINT_URL_S3`.
"""

import contextlib
import errno
import re
import time
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from everstep.elastic.checkpoint.bucket import BucketError, MissingObjectError
from everstep.errors import EverstepError
from everstep.optional_packages import BOTO3

NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
CONNECTIONS = 4  # concurrent requests
PART_BYTES = 16 << 20
MAX_PARTS = 10_000  # limit of S3
READ_BYTES = 1 << 20
ATTEMPTS = 5
PAUSE_SECONDS = 1.0  # before the second attempt to read a piece; doubled before each further one
CONNECT_SECONDS, READ_SECONDS = 10, 30
CREDENTIAL_ERRORS = (
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidIdentityToken",
    "InvalidToken",
    "SignatureDoesNotMatch",
)
CREDENTIALS_FIX = (
    "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a pod with an identity; "
    "`aws sts get-caller-identity` checks them, and `aws sso login` renews SSO credentials."
)
ROLE_FIX = (
    "Allow it in the trust policy of the role (AWS_ROLE_ARN, or role_arn in ~/.aws/config). "
    + CREDENTIALS_FIX
)
TRANSIENT_CODES = (
    "IDPCommunicationError",
    "RequestLimitExceeded",
    "Throttling",
    "TooManyRequestsException",
)
"""Codes of the services that issue credentials, with status 400 or 429, after which a later request may succeed."""
TRANSIENT_ERRORS = (
    "ConnectionError",
    "CredentialRetrievalError",
    "FlexibleChecksumError",
    "HTTPClientError",
    "IncompleteReadError",
    "MetadataRetrievalError",
)
"""Errors of botocore, with their subclasses, after which a later request may succeed; other errors need user action."""


def bucket_at(url: str) -> "S3Bucket":
    """Return the bucket at an address such as `s3://bucket/prefix`.

    Raises:
        EverstepError: the address is not valid, boto3 is not installed, or its configuration is not valid.
        BucketError: the service that issues this pod's credentials does not respond.
    """
    scheme, _, path = url.partition("://")
    name, _, prefix = path.rstrip("/").partition("/")
    if scheme != "s3":
        raise EverstepError(
            f"checkpoint is {url!r}: checkpoints are kept in a folder or at s3://BUCKET/PREFIX",
            "Mount other storage and pass the folder.",
        )
    if not NAME.fullmatch(name) or not prefix:
        raise EverstepError(
            f"checkpoint is {url!r}, which is not of the form s3://BUCKET/PREFIX",
            "Name the bucket and a prefix that only this run uses.",
        )
    return S3Bucket(name, prefix)


class S3Bucket:
    """The objects below a prefix. Creating it sends no request to S3.

    Args:
        name: name of the bucket.
        prefix: prefix without a trailing slash.

    Attributes:
        url: address of the prefix.
        responded_at: monotonic time in seconds at which the server last responded; 0 before the first response.

    Raises:
        EverstepError: boto3 is not installed, or its configuration is not valid.
        BucketError: the service that issues this pod's credentials does not respond.
    """

    def __init__(self, name: str, prefix: str) -> None:
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ModuleNotFoundError:
            raise BOTO3.missing_error("checkpoints in a bucket need boto3") from None
        retries: Any = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
        config = Config(
            max_pool_connections=CONNECTIONS,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries=retries,
        )
        self._name, self._prefix = name, f"{prefix}/"
        self.url, self.responded_at = f"s3://{name}/{prefix}", 0.0
        try:
            self._client: Any = boto3.Session().client("s3", config=config)
        # ValueError: the endpoint is not a URL; FileNotFoundError: a variable names a missing file
        except (BotoCoreError, ValueError, FileNotFoundError) as error:
            raise self._request_error(error) from None
        weakref.finalize(self, self._client.close)  # closes its connections

    # --- the interface of a bucket ---

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, in order."""
        pages = self._pages("list_objects_v2", prefix)
        return [self._relative(item) for page in pages for item in page.get("Contents", ())]

    def get(self, key: str) -> tuple[bytes, str]:
        """Return a small object and its version."""
        with self._errors(key):
            response = self._client.get_object(**self._object_arguments(key))
            return response["Body"].read(), str(response["ETag"])

    def get_large(self, key: str, size: int) -> bytearray:
        """Return an object of this size; read its pieces concurrently."""
        content = bytearray(size)
        view = memoryview(content)
        pieces = [(start, min(start + PART_BYTES, size)) for start in range(0, size, PART_BYTES)]
        with ThreadPoolExecutor(CONNECTIONS, "everstep-s3") as pool:
            reads = [
                pool.submit(self._read, key, start, view[start:end], size) for start, end in pieces
            ]
            try:
                for read in reads:
                    read.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # each read would fail in turn
                raise
        return content

    def put(self, key: str, content: bytes) -> None:
        """Put a small object; replace an object with the same key."""
        with self._errors(key):
            self._client.put_object(**self._object_arguments(key), Body=content)

    def put_if(self, key: str, content: bytes, version: str | None) -> bool:
        """Put a small object if the existing object has this version; with None, if there is no object."""
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        try:
            with self._errors(key):
                self._client.put_object(**self._object_arguments(key), Body=content, **condition)
        except _RefusedError:
            return False
        except MissingObjectError:  # deleted in the meantime, so it does not have this version
            return False
        return True

    def put_large(self, key: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Upload an object of this size in pieces; it does not exist before the upload is complete."""
        pieces = _pieces(parts, max(PART_BYTES, -(-size // MAX_PARTS)))
        if size <= PART_BYTES:
            self.put(key, b"".join(pieces))
            return
        with self._errors(key):
            upload_id = self._client.create_multipart_upload(**self._object_arguments(key))[
                "UploadId"
            ]
        try:
            uploaded_parts = self._put_pieces(key, upload_id, pieces)
            self._complete(key, upload_id, uploaded_parts, size)
        except BaseException:
            with contextlib.suppress(OSError, EverstepError):  # `uploads` finds it later
                self._abort(key, upload_id)
            raise

    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        with self._errors(key):
            self._client.delete_object(**self._object_arguments(key))

    def uploads(self, prefix: str) -> list[str]:
        """Return the keys below a prefix that have an incomplete multipart upload."""
        pages = self._pages("list_multipart_uploads", prefix)
        return sorted({self._relative(i) for page in pages for i in page.get("Uploads", ())})

    def abort_uploads(self, key: str) -> None:
        """Abort the incomplete multipart uploads of a key."""
        for page in list(self._pages("list_multipart_uploads", key)):
            for item in page.get("Uploads", ()):
                if self._relative(item) == key:
                    self._abort(key, item["UploadId"])

    # --- pieces ---

    def _put_pieces(
        self, key: str, upload_id: str, pieces: Iterator[bytes]
    ) -> list[dict[str, Any]]:
        """Upload all pieces, several concurrently; return their numbers and ETags."""
        parts, pending = list[dict[str, Any]](), set[Future[dict[str, Any]]]()
        with ThreadPoolExecutor(CONNECTIONS, "everstep-s3") as pool:
            for number, piece in enumerate(pieces, 1):
                pending.add(pool.submit(self._put_piece, key, upload_id, number, piece))
                if len(pending) == CONNECTIONS:  # bounds the pieces in memory
                    completed, pending = wait(pending, return_when=FIRST_COMPLETED)
                    parts += [future.result() for future in completed]
            parts += [future.result() for future in pending]
        return sorted(parts, key=lambda part: part["PartNumber"])

    def _put_piece(self, key: str, upload_id: str, number: int, piece: bytes) -> dict[str, Any]:
        with self._errors(key):
            response = self._client.upload_part(
                **self._object_arguments(key), UploadId=upload_id, PartNumber=number, Body=piece
            )
        checksums = {name: value for name, value in response.items() if name.startswith("Checksum")}
        checksums.pop("ChecksumType", None)
        return {"PartNumber": number, "ETag": response["ETag"], **checksums}

    def _complete(self, key: str, upload_id: str, parts: list[dict[str, Any]], size: int) -> None:
        try:
            with self._errors(key):
                self._client.complete_multipart_upload(
                    **self._object_arguments(key),
                    UploadId=upload_id,
                    MultipartUpload={"Parts": parts},
                )
        except MissingObjectError:  # the upload is gone: a response was lost, and boto3 retried
            with self._errors(key):
                if self._client.head_object(**self._object_arguments(key))["ContentLength"] != size:
                    raise

    def _abort(self, key: str, upload_id: str) -> None:
        with contextlib.suppress(MissingObjectError), self._errors(key):
            self._client.abort_multipart_upload(**self._object_arguments(key), UploadId=upload_id)

    def _read(self, key: str, first: int, target: memoryview, size: int) -> None:
        """Read one piece of an object; retry if the connection breaks. boto3 retries only the request."""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
            response = self._open(key, first, len(target), size)
            try:
                with contextlib.closing(response["Body"]) as body, self._errors(key):
                    self._read_into(target, body, key)
            except BucketError:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def _open(self, key: str, first: int, count: int, size: int) -> dict[str, Any]:
        """Request some bytes of an object of this size."""
        byte_range = f"bytes={first}-{first + count - 1}"
        with self._errors(key):
            response: dict[str, Any] = self._client.get_object(
                **self._object_arguments(key), Range=byte_range
            )
        total = int(response["ContentRange"].rpartition("/")[2])
        if total != size:
            response["Body"].close()
            raise ValueError(f"{self.url}/{key} has {total} bytes instead of {size}")
        return response

    def _read_into(self, target: memoryview, body: Any, key: str) -> None:  # noqa: ANN401 - of boto3
        offset = 0
        while offset < len(target) and (block := body.read(READ_BYTES)):
            target[offset : offset + len(block)] = block
            offset += len(block)
            self.responded_at = time.monotonic()
        if offset < len(target):
            raise BucketError(errno.EIO, "the connection ended early", f"{self.url}/{key}")

    # --- requests ---

    def _object_arguments(self, key: str) -> dict[str, str]:
        return {"Bucket": self._name, "Key": self._prefix + key}

    def _relative(self, item: dict[str, Any]) -> str:
        return str(item["Key"]).removeprefix(self._prefix)

    def _pages(self, operation: str, prefix: str) -> Iterator[dict[str, Any]]:
        paginator = self._client.get_paginator(operation)
        pages = iter(paginator.paginate(Bucket=self._name, Prefix=self._prefix + prefix))
        while True:
            with self._errors(prefix):
                page = next(pages, None)
            if page is None:
                return
            yield page

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Convert boto3's errors.

        Raises:
            EverstepError: a user must act.
            ValueError: the object is shorter than the requested range.
            BucketError: any other error.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            self.responded_at = time.monotonic()
            raise self._client_error(key, error) from None
        except (BotoCoreError, FileNotFoundError) as error:  # FileNotFoundError: no token file
            raise self._request_error(error) from None
        self.responded_at = time.monotonic()

    def _request_error(self, error: Exception) -> Exception:
        """Return the error for a request that could not be sent, or got no response."""
        from botocore import exceptions

        if isinstance(error, tuple(getattr(exceptions, name) for name in TRANSIENT_ERRORS)):
            return BucketError(errno.EIO, f"it does not respond: {error}", self.url)
        if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
            return EverstepError(
                f"there are no credentials for {self.url}: {error}", CREDENTIALS_FIX
            )
        return EverstepError(
            f"the configuration of boto3 does not allow access to {self.url}: {error}",
            "Check AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL_S3 and ~/.aws/config. "
            + CREDENTIALS_FIX,
        )

    def _client_error(self, key: str, error: Any) -> Exception:  # noqa: ANN401 - of boto3
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        location = f"{self.url}/{key}"
        if code == "NoSuchBucket":
            return EverstepError(
                f"the bucket of {self.url} does not exist", "Check its name, or create it."
            )
        if refusal := self._credentials_error(code, status, error):
            return refusal
        if code == "RequestTimeTooSkewed":
            return EverstepError(
                f"{self.url} refuses requests from this machine, whose clock is wrong: {code}",
                "Set the clock by NTP.",
            )
        if code == "InvalidObjectState":
            return EverstepError(
                f"{location} is archived: {code}",
                "Restore it: aws s3api restore-object. Do not archive the checkpoints of a run.",
            )
        if status == 403:
            return EverstepError(
                f"{self.url} is forbidden: {code}",
                "Allow s3:ListBucket, s3:ListBucketMultipartUploads, s3:GetObject, s3:PutObject, "
                "s3:DeleteObject and s3:AbortMultipartUpload to this identity.",
            )
        if status in (409, 412):
            return _RefusedError(errno.EEXIST, f"the object has another version: {code}", location)
        if status == 404:
            return MissingObjectError(errno.ENOENT, "there is no such object", location)
        if status == 416:
            return ValueError(f"{location} has fewer bytes than expected")
        return BucketError(errno.EIO, str(error), location)

    def _credentials_error(self, code: str, status: int, error: Any) -> Exception | None:  # noqa: ANN401 - of boto3
        """Return the error for credentials that are not valid or not issued; None for any other error."""
        if code in CREDENTIAL_ERRORS:
            return EverstepError(
                f"the credentials for {self.url} are not valid: {code}", CREDENTIALS_FIX
            )
        if error.operation_name not in self._client.meta.service_model.operation_names:
            # The service that issues the credentials: STS, or IAM Identity Center.
            if status >= 500 or code in TRANSIENT_CODES:
                return BucketError(errno.EIO, str(error), self.url)
            return EverstepError(
                f"there are no credentials for {self.url}: {error.operation_name} was refused: {code}",
                ROLE_FIX,
            )
        return None


class _RefusedError(BucketError):
    """The condition of a request does not hold."""


def _pieces(parts: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of this size, the last one shorter."""
    piece = bytearray()
    for part in parts:
        view = memoryview(part)
        while view:
            missing_bytes = size - len(piece)
            piece += view[:missing_bytes]
            view = view[missing_bytes:]
            if len(piece) == size:
                yield bytes(piece)
                piece.clear()
    if piece:
        yield bytes(piece)
