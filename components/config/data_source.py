"""Data source of a stack: an S3 bucket, a Blob Storage container, or an archive on the volume.

`everstep data stage` accepts more forms, and its paths are not relative to the shared volume.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator

from components.config.faults import refusal

STORE_FORMS = "write s3://BUCKET/PREFIX or az://ACCOUNT/CONTAINER/PREFIX"
FORMS = f"{STORE_FORMS}, or the path of a .tar archive on the volume, such as uploads/photos.tar"
STORE_PATTERNS = {
    "s3": re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?P<rest>/.*)?"),
    "az": re.compile(
        r"az://(?P<account>[a-z0-9]{3,24})"
        r"/(?=[^/]{3,63}(?:/|$))(?P<bucket>[a-z0-9]+(?:-[a-z0-9]+)*)(?P<rest>/.*)?"
    ),
}
ARCHIVE = ".tar"


@dataclass(frozen=True)
class DataSource:
    """A source, in parts.

    Attributes:
        kind: `s3`, `az`, or `tar` for an archive on the volume.
        bucket: S3 bucket or Blob Storage container; empty for an archive.
        account: storage account; empty for kinds other than `az`.
        path: prefix in the bucket or container without leading or trailing slashes, or path of the archive.
    """

    kind: Literal["s3", "az", "tar"]
    bucket: str
    account: str
    path: str


def parse(text: str) -> DataSource:
    """Return the parts of a source.

    Raises:
        ValueError: `text` has none of the forms; the message contains the rule.
    """
    if "://" not in text:
        return DataSource("tar", "", "", _archive(text))
    kind = "s3" if text.startswith("s3://") else "az"
    match = STORE_PATTERNS[kind].fullmatch(text)
    if match is None:
        raise ValueError("is not a data source")
    account = match["account"] if kind == "az" else ""
    return DataSource(
        "s3" if kind == "s3" else "az", match["bucket"], account, (match["rest"] or "").strip("/")
    )


def _archive(text: str) -> str:
    """Return the path of an archive.

    Raises:
        ValueError: `text` is not a path on the volume, or not the path of an uncompressed archive.
    """
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("is not a path within the volume")
    if path.suffix != ARCHIVE:
        raise ValueError("is neither a bucket nor an uncompressed archive")
    return str(path)


def _is_source(text: str) -> str:
    return _parsed(text, FORMS)


SourceLocation = Annotated[str, AfterValidator(_is_source)]


def _is_store(text: str) -> str:
    if "://" not in text:
        raise refusal("is not the address of an object store", STORE_FORMS)
    return _parsed(text, STORE_FORMS)


StoreAddress = Annotated[str, AfterValidator(_is_store)]


def _parsed(text: str, forms: str) -> str:
    """Return the text if it is a valid source; otherwise raise a refusal that lists the valid forms."""
    try:
        parse(text)
    except ValueError as error:
        raise refusal(str(error), forms) from None
    return text
