"""Ranges of the objects below a prefix of a bucket or container, read in any order.

They are for a reader that already has names, sizes and checksums, such as a cache of shards: it needs no
listing and no permission to list. `Source` is for copies, which list first.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from everstep.errors import EverstepError
from everstep.staging.content import BrokenContentError
from everstep.staging.sources import blob, s3
from everstep.staging.sources.location import BLOB, S3

FORMS = "s3://BUCKET/PREFIX or az://ACCOUNT/CONTAINER/PREFIX"
CONNECTIONS = 16
RETRY_SECONDS = 600.0
"""Time for which requests are retried: longer than usual outages last, and than Azure takes to apply a role
("Troubleshoot Azure RBAC")."""

FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.5, 30.0


class Objects(Protocol):
    """The objects below a prefix."""

    @property
    def name(self) -> str:
        """The prefix as a user writes it."""

    def read(self, name: str, first: int = 0, size: int | None = None) -> bytes:
        """Return `size` bytes of an object from `first` on; the whole object without `size`.

        Raises:
            EverstepError: the object is missing, forbidden, too short, or archived.
            BrokenContentError: the connection broke, or the store returned another error.
        """


def open_objects(location: str) -> Objects:
    """Return the objects at a location, one of FORMS; this sends no request.

    Raises:
        EverstepError: the location is not valid, a package is not installed, or a connection string is for another
            account.
    """
    scheme, _, path = location.partition("://")
    parts = path.rstrip("/").split("/")
    if scheme == S3 and parts[0]:
        return S3Objects(parts[0], "/".join(parts[1:]))
    if scheme == BLOB and len(parts) > 1 and all(parts[:2]):
        return BlobObjects(parts[0], parts[1], "/".join(parts[2:]))
    raise EverstepError(f"{location!r} is not an address of objects", f"Use {FORMS}.")


class S3Objects:
    """Objects of S3, or of another server with its protocol.

    Args:
        bucket: name of the bucket.
        prefix: prefix without leading or trailing slashes; empty for the whole bucket.
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""
        self._client: Any = s3.new_client("", CONNECTIONS)
        self.name = f"s3://{bucket}/{prefix}".rstrip("/")

    def read(self, name: str, first: int = 0, size: int | None = None) -> bytes:
        """Return bytes of an object."""
        range_header = {} if size is None else {"Range": f"bytes={first}-{first + size - 1}"}
        with self._converted_errors(name):
            response = self._client.get_object(
                Bucket=self._bucket, Key=self._prefix + name, **range_header
            )
            with contextlib.closing(response["Body"]) as body:
                return _complete_content(body.read(), size)

    @contextlib.contextmanager
    def _converted_errors(self, name: str) -> Iterator[None]:
        """Convert errors of boto3 into errors with a fix, or into an error that allows another attempt."""
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            PartialCredentialsError,
        )

        try:
            yield
        except ClientError as error:
            raise self._converted_error(f"{self.name}/{name}", error) from None
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise EverstepError(
                f"there are no credentials for {self.name}: {error}",
                f"Use a pod with an identity, or set AWS_PROFILE. {s3.CREDENTIALS}",
            ) from None
        except BotoCoreError as error:
            raise BrokenContentError(f"{self.name}/{name} could not be read: {error}") from None

    def _converted_error(self, address: str, error: Any) -> Exception:  # noqa: ANN401  of boto3
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = s3.status_of(error)
        if refusal := s3.role_error(self._client, self.name, error):
            return refusal
        if code == "NoSuchBucket" or code in s3.REFUSED_REQUESTS:
            return s3.listing_error(self._bucket, code, status, str(error))
        if status == 404:
            return _missing_object(address)
        if code == "InvalidObjectState":
            return EverstepError(
                f"{address} is archived", "Restore it first: aws s3api restore-object."
            )
        if status == 403:
            return EverstepError(
                f"{address} cannot be accessed: {code}, or it does not exist",
                f"Allow s3:GetObject on arn:aws:s3:::{self._bucket}/{self._prefix}*, and kms:Decrypt on its key.",
            )
        if status == 416:
            return _too_short(address)
        return BrokenContentError(f"{address} could not be read: {error}")


class BlobObjects:
    """Blobs of Azure, or of another server with its protocol.

    Args:
        account: name of the storage account.
        container: name of the container.
        prefix: prefix without leading or trailing slashes; empty for the whole container.
    """

    def __init__(self, account: str, container: str, prefix: str) -> None:
        self._prefix = f"{prefix}/" if prefix else ""
        self._client: Any = blob.new_client(account, container, "")
        self.name = f"az://{account}/{container}/{prefix}".rstrip("/")

    def read(self, name: str, first: int = 0, size: int | None = None) -> bytes:
        """Return bytes of a blob."""
        from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

        address = f"{self.name}/{name}"
        try:
            target = self._client.get_blob_client(self._prefix + name)
            return _complete_content(bytes(target.download_blob(first, size).readall()), size)
        except ClientAuthenticationError as error:
            raise EverstepError(
                f"there are no valid credentials for {self.name}: {blob.first_line(error)}",
                f"{blob.ROLE}, {blob.KEYS}",
            ) from None
        except HttpResponseError as error:
            raise self._converted_error(address, error) from None
        except AzureError as error:
            problem = blob.first_line(error)
            raise BrokenContentError(f"{address} could not be read: {problem}") from None

    def _converted_error(self, address: str, error: Any) -> Exception:  # noqa: ANN401  of the SDK
        code, status = blob.error_code(error), error.status_code or 0
        if code == "ContainerNotFound" or (status == 404 and not code):
            return blob.listing_error(self.name, "ContainerNotFound", 404)
        if status == 404:
            return _missing_object(address)
        if code == blob.ARCHIVED:
            return EverstepError(f"{address} is archived", blob.REHYDRATE)
        if code == blob.NO_ROLE:
            return BrokenContentError(f"{address} cannot be accessed: {code}. {blob.ROLE}")
        if status in blob.FORBIDDEN:
            return EverstepError(
                f"{address} cannot be accessed: {code}", f"{blob.ROLE}, {blob.KEYS}"
            )
        if status == 416:
            return _too_short(address)
        return BrokenContentError(f"{address} could not be read: {code or status}")


def read_with_retries(
    read: Callable[[], bytes],
    name: str,
    seconds: float = RETRY_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes:
    """Return the result of `read`; retry it with growing waits while another attempt may succeed.

    Args:
        read: function that makes one attempt.
        name: the store as a user writes it.
        seconds: total time of the waits after which the last problem is raised.
        sleep: function that waits.

    Raises:
        EverstepError: no attempt succeeded, or `read` raises it.
    """
    wait_seconds, total_seconds = FIRST_WAIT_SECONDS, 0.0
    while True:
        try:
            return read()
        except BrokenContentError as error:
            if total_seconds >= seconds:
                raise EverstepError(
                    f"{name} cannot be read: {error}",
                    "Check the network, the region, the roles and the state of the store; then start again.",
                ) from None
        sleep(wait_seconds)
        total_seconds += wait_seconds
        wait_seconds = min(2 * wait_seconds, MAX_WAIT_SECONDS)


def _complete_content(content: bytes, size: int | None) -> bytes:
    """Return the content if it has this size.

    Raises:
        BrokenContentError: the content ended early.
    """
    if size is not None and len(content) != size:
        raise BrokenContentError(f"the response has {len(content)} bytes instead of {size}")
    return content


def _missing_object(address: str) -> EverstepError:
    return EverstepError(
        f"{address} does not exist", "Check the address, and that all files were copied to it."
    )


def _too_short(address: str) -> EverstepError:
    return EverstepError(
        f"{address} is shorter than it was", "Copy the file again, and do not replace it later."
    )
