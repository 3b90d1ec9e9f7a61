"""A file of a source, a file at the destination, and the rules for names that are safe to write."""

from typing import NamedTuple

from everstep.errors import EverstepError

MANIFEST = "everstep.sha256"
"""File at the top of the destination with the SHA-256 of each file; `sha256sum --check` reads it."""

STATE_FOLDER = ".everstep-staging"
"""Folder at the top of a destination with the state of its staging runs, if it cannot be next to the destination."""

MAX_COMPONENT_BYTES = 255
"""NAME_MAX of Linux file systems: bytes in one component of a path."""


class Entry(NamedTuple):
    """A file of a source.

    Attributes:
        name: path below the destination, with slashes.
        size: size in bytes.
        version: text that differs when the content may differ: an ETag, or the time of the last write.
        locator: the source's own address of the content.
        md5: MD5 of the content in hexadecimal, if the listing has one; otherwise empty.
    """

    name: str
    size: int
    version: str
    locator: str = ""
    md5: str = ""


class Record(NamedTuple):
    """A file that is complete at the destination.

    Attributes:
        name: path below the destination, with slashes.
        size: size in bytes.
        version: version of the source's file that was copied.
        sha256: SHA-256 of its content in hexadecimal.
    """

    name: str
    size: int
    version: str
    sha256: str


def sort_key(name: str) -> str:
    """Return the key by which listings are sorted: files of a folder are next to each other."""
    return name.replace("/", "\0")


def name_problem(name: str) -> str:
    """Return the reason why a name must not be written below a destination; empty if it may be."""
    components = name.split("/")
    if name.startswith("/"):
        return "is an absolute path"
    if ".." in components:
        return "contains '..'"
    if "" in components or "." in components:
        return "has an empty component or '.'"
    if "\0" in name:
        return "contains a NUL character"
    longest = max(components, key=len)
    if len(longest) * 4 > MAX_COMPONENT_BYTES and len(_encoded(longest)) > MAX_COMPONENT_BYTES:
        return f"has a component of more than {MAX_COMPONENT_BYTES} bytes"
    return ""


def is_own_file(name: str) -> bool:
    """Return True for a file that a staging run writes to its destination in addition to the data."""
    return name == MANIFEST or name.startswith(f"{STATE_FOLDER}/")


def check_name(name: str, source: str) -> str:
    """Return a name that is safe to write.

    Raises:
        EverstepError: the name is not safe.
    """
    if problem := name_problem(name):
        raise EverstepError(
            f"the file {name!r} of {source} {problem}",
            "Such a file is not copied. Remove or rename it in the source.",
        )
    return name


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
