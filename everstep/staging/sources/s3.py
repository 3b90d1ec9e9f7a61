"""A bucket of S3, or of another server with its protocol, as a source."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from everstep.errors import EverstepError
from everstep.optional_packages import BOTO3
from everstep.staging.content import (
    BrokenContentError,
    ChangedError,
    Checksum,
    Content,
    FileError,
)
from everstep.staging.copying import CHUNK_BYTES
from everstep.staging.entry import Entry, check_name, is_own_file

MD5 = re.compile(r"[0-9a-f]{32}")
PARTS = re.compile(r"[0-9a-f]{32}-[0-9]+")
"""ETags of objects uploaded in one request, and in parts; ETags of encrypted objects look the same."""

DIRECTORY_BUCKET = "--x-s3"
"""End of the names of buckets of S3 Express One Zone, whose ETags are not checksums."""

ARCHIVED = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes whose objects have to be restored before they can be read."""

CREDENTIALS = "Check the credentials with `aws sts get-caller-identity`; `aws sso login` renews SSO credentials."
WRONG_CREDENTIALS = (
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidIdentityToken",
    "InvalidToken",
    "SignatureDoesNotMatch",
)
SKEWED_CLOCK = "RequestTimeTooSkewed"
REFUSED_REQUESTS = (*WRONG_CREDENTIALS, SKEWED_CLOCK)
"""Codes of requests that S3 refuses for a reason outside the bucket."""

ATTEMPTS = 5
TIMEOUT_SECONDS = 30


class S3Source:
    """The objects below a prefix, or one object."""

    def __init__(self, bucket: str, prefix: str, endpoint: str = "", connections: int = 16) -> None:
        """Create a client; this sends no request.

        Args:
            bucket: name of the bucket.
            prefix: prefix without a trailing slash, or the key of one object; empty for the whole bucket.
            endpoint: address of a server; empty for AWS's.
            connections: maximum number of connections.

        Raises:
            EverstepError: boto3 is not installed.
        """
        self._bucket, self._prefix = bucket, prefix
        self._client = new_client(endpoint, connections)
        self.name = f"s3://{bucket}/{prefix}".rstrip("/")

    def entries(self) -> Iterator[Entry]:
        """Yield all objects below the prefix; if there is none, the object with that key.

        Raises:
            EverstepError: the bucket is missing or forbidden, an object is archived or has an unsafe name.
        """
        has_entries = False
        with self._converted_errors():
            for item in self._entries_below(f"{self._prefix}/" if self._prefix else ""):
                has_entries = True
                yield item
            if self._prefix and not has_entries:
                yield from self._object(self._prefix)

    def _entries_below(self, prefix: str) -> Iterator[Entry]:
        pages = self._client.get_paginator("list_objects_v2")
        is_directory_bucket = self._bucket.endswith(DIRECTORY_BUCKET)  # it has no archived objects
        attributes = {} if is_directory_bucket else {"OptionalObjectAttributes": ["RestoreStatus"]}
        for page in pages.paginate(Bucket=self._bucket, Prefix=prefix, **attributes):
            for item in page.get("Contents", ()):
                key: str = item["Key"]
                name = key.removeprefix(prefix)
                is_marker = key.endswith("/") and not item["Size"]
                if name and not is_own_file(name) and not is_marker:
                    self._check_readable(item)
                    yield self._entry(name, key, item["Size"], item["ETag"])

    def _object(self, key: str) -> Iterator[Entry]:
        from botocore.exceptions import ClientError

        try:
            head = self._client.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if status_of(error) == 404:
                return
            if status_of(error) == 403 and error.operation_name == "HeadObject":
                # S3's response for a missing object too, unless this identity may list the object's own name.
                raise EverstepError(
                    f"{self.name} has no files, and no object of that name that this identity may read",
                    "Check the path or the prefix. If it is an object, allow s3:GetObject on it.",
                ) from None
            raise
        yield self._entry(key.rpartition("/")[2], key, head["ContentLength"], head["ETag"])

    def _entry(self, name: str, key: str, size: int, etag: str) -> Entry:
        text = etag.strip('"')
        md5 = text if MD5.fullmatch(text) and not self._bucket.endswith(DIRECTORY_BUCKET) else ""
        return Entry(check_name(name, self.name), size, etag, key, md5)

    def _check_readable(self, item: dict[str, Any]) -> None:
        is_restored = "RestoreExpiryDate" in item.get("RestoreStatus", {})  # its class stays
        if item.get("StorageClass") in ARCHIVED and not is_restored:
            raise EverstepError(
                f"s3://{self._bucket}/{item['Key']} is archived: {item['StorageClass']}",
                "Restore it first: aws s3api restore-object.",
            )

    @contextmanager
    def open(self, entry: Entry, offset: int) -> Iterator[Content]:
        """Open an object at an offset, in the version that was listed.

        Raises:
            FileError: the object changed, is missing, forbidden or archived.
            BrokenContentError: the connection broke, or S3 returned another error.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        target = {"Bucket": self._bucket, "Key": entry.locator, "IfMatch": entry.version}
        range_header = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            response = self._client.get_object(**target, **range_header)
            checksum = self._checksum(entry, response)
            with response["Body"] as body:
                yield Content(iter(lambda: body.read(CHUNK_BYTES), b""), checksum)
        except ClientError as error:
            raise self._file_error(entry, error) from None
        except BotoCoreError as error:
            raise BrokenContentError(f"could not be read: {error}") from None

    def _checksum(self, entry: Entry, response: dict[str, Any]) -> Checksum | None:
        """Return the checksum in the ETag, if the ETag is a checksum that can be compared.

        For an object uploaded in parts, the sizes of the first and the last part are requested: clients usually give
        all parts but the last the same size. If a client did not, there is no checksum.
        """
        encrypted = response.get("ServerSideEncryption", "AES256") != "AES256"
        if encrypted or "SSECustomerAlgorithm" in response:
            return None  # botocore compares the checksum that S3 has for such an object
        if entry.md5:
            return Checksum(entry.md5)
        etag = entry.version.strip('"')
        if not PARTS.fullmatch(etag):
            return None
        first = self._head_part(entry, 1)
        part_bytes, parts = first["ContentLength"], first.get("PartsCount")
        if not parts or not part_bytes:
            return None
        last_bytes = self._head_part(entry, parts)["ContentLength"]
        is_uniform = (
            part_bytes * (parts - 1) + last_bytes == entry.size and last_bytes <= part_bytes
        )
        return Checksum(etag, part_bytes) if is_uniform else None

    def _head_part(self, entry: Entry, number: int) -> dict[str, Any]:
        """Return the attributes of an object's part, counted from 1."""
        response: dict[str, Any] = self._client.head_object(
            Bucket=self._bucket, Key=entry.locator, PartNumber=number
        )
        return response

    def _file_error(self, entry: Entry, error: Any) -> Exception:  # noqa: ANN401  of boto3
        code = error.response.get("Error", {}).get("Code", "")
        name = f"s3://{self._bucket}/{entry.locator}"
        if refusal := role_error(self._client, self.name, error):
            return FileError(refusal.problem, refusal.fix)
        if code in REFUSED_REQUESTS:
            refused = listing_error(self._bucket, code, status_of(error), str(error))
            return FileError(refused.problem, refused.fix)
        if status_of(error) == 412:
            return ChangedError(entry.name, "changed after it was listed")
        if code in ("NoSuchKey", "404"):
            return ChangedError(entry.name, "was removed after it was listed")
        if code == "InvalidObjectState":
            return FileError(f"{name} is archived", "Restore it first: aws s3api restore-object.")
        if status_of(error) == 403:
            return FileError(
                f"{name} cannot be accessed: {code}",
                f"Allow s3:GetObject on arn:aws:s3:::{self._bucket}/*, and kms:Decrypt on its key.",
            )
        return BrokenContentError(f"could not be read: {error}")

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Convert the errors of boto3 into errors with a fix."""
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            HTTPClientError,
            NoCredentialsError,
            PartialCredentialsError,
        )
        from botocore.exceptions import ConnectionError as NoConnectionError

        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            raise (
                role_error(self._client, self.name, error)
                or listing_error(self._bucket, code, status_of(error), str(error))
            ) from None
        except (NoCredentialsError, PartialCredentialsError) as error:
            fix = "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. " + CREDENTIALS
            raise EverstepError(f"there are no credentials for {self.name}: {error}", fix) from None
        except (NoConnectionError, HTTPClientError) as error:
            raise EverstepError(
                f"the server of {self.name} does not respond: {error}",
                "Check the network, the region (AWS_REGION) and --endpoint.",
            ) from None
        except BotoCoreError as error:
            raise EverstepError(f"{self.name} cannot be listed: {error}", CREDENTIALS) from None


def new_client(endpoint: str, connections: int) -> Any:  # noqa: ANN401  of boto3
    """Return a client that retries; this sends no request.

    Args:
        endpoint: address of a server; empty for AWS_ENDPOINT_URL_S3 if it is set, else AWS's.
        connections: maximum number of connections.

    Raises:
        EverstepError: boto3 is not installed.
    """
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError:
        raise BOTO3.missing_error("reading from S3 needs boto3") from None
    retries: Any = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
    config = Config(
        max_pool_connections=connections,
        connect_timeout=TIMEOUT_SECONDS,
        read_timeout=TIMEOUT_SECONDS,
        retries=retries,
    )
    return boto3.Session().client("s3", endpoint_url=endpoint or None, config=config)


def listing_error(bucket: str, code: str, status: int, message: str) -> EverstepError:
    """Return the error for a bucket that S3 does not list."""
    if code == "NoSuchBucket":
        return EverstepError(
            f"the bucket {bucket!r} does not exist", "Check its name: `aws s3 ls` lists yours."
        )
    if code in WRONG_CREDENTIALS:
        return EverstepError(
            f"the credentials for the bucket {bucket!r} are not valid: {code}", CREDENTIALS
        )
    if code == SKEWED_CLOCK:
        return EverstepError(
            f"the bucket {bucket!r} refuses requests from this machine, whose clock is wrong: {code}",
            "Set the clock by NTP.",
        )
    if status == 403:
        return EverstepError(
            f"the bucket {bucket!r} cannot be accessed: {code or message}",
            f"Allow s3:ListBucket on arn:aws:s3:::{bucket} and s3:GetObject on "
            f"arn:aws:s3:::{bucket}/* to this identity. {CREDENTIALS}",
        )
    return EverstepError(
        f"the bucket {bucket!r} cannot be listed: {message}",
        "Check the region (AWS_REGION) and --endpoint, or try again later.",
    )


def role_error(client: Any, name: str, error: Any) -> EverstepError | None:  # noqa: ANN401  of boto3
    """Return the error for credentials that STS or IAM Identity Center refuses to issue; None for an error of S3.

    Args:
        client: the client of S3 that needs the credentials.
        name: address of the source.
        error: the `ClientError`.
    """
    if error.operation_name in client.meta.service_model.operation_names or status_of(error) != 403:
        return None
    code = error.response.get("Error", {}).get("Code", "")
    return EverstepError(
        f"there are no credentials for {name}: {error.operation_name} was refused: {code}",
        "Allow it in the trust policy of the role (AWS_ROLE_ARN, or role_arn in ~/.aws/config). "
        + CREDENTIALS,
    )


def status_of(error: Any) -> int:  # noqa: ANN401  of boto3
    """Return the HTTP status of an error of boto3; 0 without one."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
