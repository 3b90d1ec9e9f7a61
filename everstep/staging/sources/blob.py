"""A container of Azure Blob Storage as a source."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from everstep.errors import EverstepError
from everstep.optional_packages import AZURE_BLOB
from everstep.staging.content import (
    BrokenContentError,
    ChangedError,
    Checksum,
    Content,
    FileError,
)
from everstep.staging.entry import Entry, check_name, is_own_file

CHUNK_BYTES = 4 << 20
"""Largest range for which Blob Storage computes an MD5."""

ATTEMPTS = 5
TIMEOUT_SECONDS = 30
FORBIDDEN = (401, 403)
NO_ROLE = "AuthorizationPermissionMismatch"
"""Error code for an identity without a role, or whose role Azure has not applied yet."""

ARCHIVED = "BlobArchived"
"""Error code for reading a blob in the archive tier, from "Blob Storage error codes", 2026-11-28."""

REHYDRATE = "Set its tier to Hot or Cool first: az storage blob set-tier."
ROLE = "Assign this identity the role Storage Blob Data Reader on the account or container"
KEYS = "or set AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_KEY or AZURE_STORAGE_CONNECTION_STRING."


class BlobSource:
    """The blobs below a prefix, or one blob."""

    def __init__(self, account: str, container: str, prefix: str, endpoint: str = "") -> None:
        """Create a client; this sends no request.

        Args:
            account: name of the storage account.
            container: name of the container.
            prefix: prefix without a trailing slash, or the name of one blob; empty for the whole container.
            endpoint: address of a server, without the account; empty for Azure's.

        Raises:
            EverstepError: the package is not installed, or a connection string is for another account.
        """
        self._account, self._container, self._prefix = account, container, prefix
        self._client = new_client(account, container, endpoint)
        self.name = f"az://{account}/{container}/{prefix}".rstrip("/")

    def entries(self) -> Iterator[Entry]:
        """Yield all blobs below the prefix; if there is none, the blob with that name.

        Raises:
            EverstepError: the container is missing or forbidden, a blob is archived or has an unsafe name.
        """
        has_entries = False
        prefix = f"{self._prefix}/" if self._prefix else ""
        with self._converted_errors():
            for entry in self._entries_below(prefix):
                has_entries = True
                yield entry
            if self._prefix and not has_entries:
                parent = self._prefix.rpartition("/")[0]
                yield from self._entries_below(f"{parent}/" if parent else "", self._prefix)

    def _entries_below(self, folder: str, only: str = "") -> Iterator[Entry]:
        """Yield the blobs below a folder; with `only`, just the blob of this name."""
        # Metadata, since folders of an account with a hierarchical namespace are marked in it.
        blobs = self._client.list_blobs(name_starts_with=only or folder, include=["metadata"])
        for blob in blobs:
            if only and blob.name != only:
                continue
            name = blob.name.removeprefix(folder)
            is_folder = (blob.metadata or {}).get("hdi_isfolder") == "true"
            is_marker = blob.name.endswith("/") and not blob.size
            if not name or is_own_file(name) or is_folder or is_marker:
                continue
            if blob.blob_tier == "Archive":
                raise EverstepError(f"the blob {blob.name!r} of {self.name} is archived", REHYDRATE)
            md5 = bytes(blob.content_settings.content_md5 or b"").hex()
            yield Entry(check_name(name, self.name), blob.size, blob.etag, blob.name, md5)

    @contextmanager
    def open(self, entry: Entry, offset: int) -> Iterator[Content]:
        """Open a blob at an offset, in the version that was listed.

        Raises:
            FileError: the blob changed, is missing, forbidden or archived.
            BrokenContentError: the connection broke, or Blob Storage returned another error.
        """
        from azure.core import MatchConditions
        from azure.core.exceptions import AzureError, HttpResponseError

        checksum = Checksum(entry.md5) if entry.md5 else None
        if not entry.size:
            yield Content(iter(()), checksum)
            return
        blob = self._client.get_blob_client(entry.locator)
        try:
            stream = blob.download_blob(
                offset,
                entry.size - offset,
                etag=entry.version,
                match_condition=MatchConditions.IfNotModified,
                validate_content=not checksum,
            )
            yield Content(stream.chunks(), checksum)
        except HttpResponseError as error:
            raise self._file_error(entry, error) from None
        except (AzureError, ValueError) as error:  # ValueError: the MD5 of a range differs
            raise BrokenContentError(f"could not be read: {error}") from None

    def _file_error(self, entry: Entry, error: Any) -> Exception:  # noqa: ANN401  of the SDK
        code = error_code(error) or str(error.status_code)
        if error.status_code == 412:
            return ChangedError(entry.name, "changed or was removed after it was listed")
        if error.status_code == 404:
            return ChangedError(entry.name, "was removed after it was listed")
        if code == ARCHIVED:
            return FileError(f"the blob {entry.locator!r} of {self.name} is archived", REHYDRATE)
        if error.status_code in FORBIDDEN:
            return FileError(
                f"{entry.name} of {self.name} cannot be accessed: {code}", f"{ROLE}, {KEYS}"
            )
        return BrokenContentError(f"could not be read: {code}")

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Convert the errors of the SDK into errors with a fix."""
        from azure.core.exceptions import (
            AzureError,
            ClientAuthenticationError,
            HttpResponseError,
            ServiceRequestError,
        )

        try:
            yield
        except ClientAuthenticationError as error:
            raise EverstepError(
                f"there are no valid credentials for {self.name}: {first_line(error)}",
                f"Log in with `az login`, {KEYS}",
            ) from None
        except HttpResponseError as error:
            raise listing_error(self.name, error_code(error), error.status_code or 0) from None
        except ServiceRequestError as error:
            raise EverstepError(
                f"the storage account {self._account!r} does not respond: {first_line(error)}",
                "Check its name (`az storage account list` lists yours), the network and --endpoint.",
            ) from None
        except AzureError as error:
            raise EverstepError(
                f"{self.name} cannot be listed: {first_line(error)}", "Try again later."
            ) from None


def new_client(account: str, container: str, endpoint: str) -> Any:  # noqa: ANN401  of the SDK
    """Return the client of a container, which retries; this sends no request.

    Args:
        account: name of the storage account.
        container: name of the container.
        endpoint: address of a server, without the account; empty for Azure's.

    Raises:
        EverstepError: the package is not installed, or a connection string is for another account.
    """
    try:
        from azure.storage.blob import ContainerClient
    except ModuleNotFoundError:
        raise AZURE_BLOB.missing_error(
            "reading from Azure Blob Storage needs azure-storage-blob"
        ) from None
    settings: dict[str, Any] = {
        "connection_timeout": TIMEOUT_SECONDS,
        "read_timeout": TIMEOUT_SECONDS,
        "retry_total": ATTEMPTS,
        "initial_backoff": 1,
        "max_single_get_size": CHUNK_BYTES,
        "max_chunk_get_size": CHUNK_BYTES,
    }
    connection = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    if connection and not endpoint:
        _check_account(connection, account)
        return ContainerClient.from_connection_string(connection, container, **settings)
    address = f"{endpoint.rstrip('/')}/{account}" if endpoint else account_address(account)
    return ContainerClient(address, container, credential=_credential(account), **settings)


def listing_error(name: str, code: str, status: int) -> EverstepError:
    """Return the error for a container that Blob Storage does not list."""
    account, container = name.removeprefix("az://").split("/")[:2]
    if code == "ContainerNotFound":
        return EverstepError(
            f"the container {container!r} of the account {account!r} does not exist",
            f"Check its name: az storage container list --account-name {account}.",
        )
    if status in FORBIDDEN:
        return EverstepError(
            f"the container {container!r} of the account {account!r} cannot be accessed: {code}",
            f"{ROLE}, {KEYS} A firewall of the account may refuse this machine too.",
        )
    return EverstepError(f"{name} cannot be listed: {code or status}", "Try again later.")


def error_code(error: Any) -> str:  # noqa: ANN401  of the SDK
    """Return the code of an error as the service names it; empty without one."""
    code = getattr(error, "error_code", None) or ""
    return str(getattr(code, "value", code))  # the SDK has enumeration members only for some codes


def account_address(account: str) -> str:
    """Return the address of an account in the public cloud."""
    return f"https://{account}.blob.core.windows.net"


def _check_account(connection: str, account: str) -> None:
    """Check that a connection string is not for another account, whose blobs would be read instead.

    A string with a shared access signature has no name of the account, only its address.
    """
    settings = dict(part.partition("=")[::2] for part in connection.split(";"))
    values = {name.lower(): value for name, value in settings.items()}
    host = urlsplit(values.get("blobendpoint", "")).hostname or ""
    named_by_host = host.partition(".")[0] if ".blob." in host else ""
    named = values.get("accountname") or named_by_host
    if named and named != account:
        raise EverstepError(
            f"AZURE_STORAGE_CONNECTION_STRING is for the storage account {named!r}, not for {account!r}",
            f"Set the connection string of {account}, or unset the variable.",
        )


def _credential(account: str) -> Any:  # noqa: ANN401  a string or an object of azure-identity
    """Return the credential of the environment for an account; otherwise the credential of `az login` or of a pod."""
    if sas := os.environ.get("AZURE_STORAGE_SAS_TOKEN"):
        return sas
    if key := os.environ.get("AZURE_STORAGE_KEY"):
        return {"account_name": account, "account_key": key}
    try:
        from azure.identity import DefaultAzureCredential
    except ModuleNotFoundError:
        raise AZURE_BLOB.missing_error(
            "reading from Azure Blob Storage needs azure-identity"
        ) from None
    return DefaultAzureCredential()


def first_line(error: Exception) -> str:
    """Return the first line of an error of the SDK; the other lines are details of the request."""
    return str(error).partition("\n")[0]
