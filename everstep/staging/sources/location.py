"""Locations of data as users write them: s3://, az://, a folder, or a tar archive."""

from pathlib import Path

from everstep.errors import EverstepError
from everstep.files import expand_user
from everstep.staging.content import Source
from everstep.staging.sources.folder import FolderSource
from everstep.staging.sources.tar import SUFFIX, TarSource

FORMS = "s3://BUCKET/PREFIX, az://ACCOUNT/CONTAINER/PREFIX, a folder, or a .tar archive"
S3, BLOB = "s3", "az"


def open_source(location: str, endpoint: str = "", connections: int = 16) -> Source:
    """Return the source at a location.

    Args:
        location: one of FORMS.
        endpoint: address of an S3-compatible server or of Blob Storage; empty for the cloud's.
        connections: maximum number of connections to S3.

    Raises:
        EverstepError: the location is not valid, a local one does not exist, a package is not installed, or a
            connection string is for another account.
    """
    scheme, separator, remainder = location.partition("://")
    if separator:
        return _store(location, scheme, remainder.rstrip("/"), endpoint, connections)
    if endpoint:
        raise EverstepError(
            f"--endpoint is {endpoint!r}, but the source {location!r} is on this machine",
            "Omit --endpoint.",
        )
    path = expand_user(location)
    if path.is_dir():
        return FolderSource(path.absolute())
    if not path.exists():
        raise EverstepError(f"the source {location!r} does not exist", f"Use {FORMS}.")
    if not path.name.endswith(SUFFIX) and not _may_be_compressed(path):
        raise EverstepError(f"the source {location!r} is not a tar archive", f"Use {FORMS}.")
    return TarSource(path.absolute())


def _store(location: str, scheme: str, path: str, endpoint: str, connections: int) -> Source:
    bucket_or_account, *segments = path.split("/", 2)
    if scheme == S3 and bucket_or_account:
        from everstep.staging.sources.s3 import S3Source

        return S3Source(bucket_or_account, "/".join(segments), endpoint, connections)
    if scheme == BLOB and bucket_or_account and segments and segments[0]:
        from everstep.staging.sources.blob import BlobSource

        return BlobSource(bucket_or_account, segments[0], "/".join(segments[1:]), endpoint)
    raise EverstepError(f"the source {location!r} is not supported", f"Use {FORMS}.")


def _may_be_compressed(path: Path) -> bool:
    """Return True if a file may be a compressed archive, for which `TarSource` has its own error."""
    return path.suffix == ".tgz" or ".tar." in path.name
