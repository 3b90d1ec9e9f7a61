"""Locations of data as users write them: s3://, az://, a folder, or a tar archive."""

from pathlib import Path

from everstep.errors import EverstepError
from everstep.staging.content import Source
from everstep.staging.sources.folder import FolderSource
from everstep.staging.sources.tar import SUFFIX, TarSource

FORMS = "s3://BUCKET/PREFIX, az://ACCOUNT/CONTAINER/PREFIX, a folder, or a .tar archive"
S3, BLOB = "s3", "az"


def open_source(location: str, endpoint: str = "", connections: int = 16) -> Source:
    """Return the source at a location.

    Args:
        location: one of FORMS.
        endpoint: address of a server with the protocol of S3 or Blob Storage; empty for the cloud's.
        connections: maximum number of connections.

    Raises:
        EverstepError: the location is not valid, or there is nothing.
    """
    scheme, separator, remainder = location.partition("://")
    if separator:
        return _store(location, scheme, remainder.rstrip("/"), endpoint, connections)
    if endpoint:
        raise EverstepError(
            f"--endpoint is {endpoint!r}, and the source {location!r} is on this machine",
            "Leave --endpoint out.",
        )
    path = Path(location).expanduser()
    if path.is_dir():
        return FolderSource(path.absolute())
    if not path.exists():
        raise EverstepError(f"the source {location!r} does not exist", f"Use {FORMS}.")
    if not path.name.endswith(SUFFIX) and not _compressed(path):
        raise EverstepError(f"the source {location!r} is not a tar archive", f"Use {FORMS}.")
    return TarSource(path.absolute())


def _store(location: str, scheme: str, path: str, endpoint: str, connections: int) -> Source:
    first, *segments = path.split("/", 2)
    if scheme == S3 and first:
        from everstep.staging.sources.s3 import S3Source

        return S3Source(first, "/".join(segments), endpoint, connections)
    if scheme == BLOB and first and segments and segments[0]:
        from everstep.staging.sources.blob import BlobSource

        return BlobSource(first, segments[0], "/".join(segments[1:]), endpoint)
    raise EverstepError(f"the source {location!r} is not supported", f"Use {FORMS}.")


def _compressed(path: Path) -> bool:
    """Return whether it may be a compressed archive, which is a separate error."""
    return path.suffix == ".tgz" or ".tar." in path.name
