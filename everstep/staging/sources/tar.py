"""A tar archive as a source; archives inside it, as in ImageNet's archive, are unpacked into folders with their names.

Members are read at their offsets, in parallel, without unpacking the preceding members. Therefore a compressed
archive is refused: each start would decompress it again from its beginning.
"""

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from everstep.errors import EverstepError
from everstep.staging.content import ChangedError, Content
from everstep.staging.copying import CHUNK_BYTES
from everstep.staging.entry import Entry, check_name, is_own_file
from everstep.staging.sources.folder import check_unchanged, version_of

SUFFIX = ".tar"
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7z": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""First bytes of compressed files."""

KINDS = {
    tarfile.SYMTYPE: "symbolic link",
    tarfile.LNKTYPE: "hard link",
    tarfile.CHRTYPE: "character device",
    tarfile.BLKTYPE: "block device",
    tarfile.FIFOTYPE: "pipe",
}
"""Members that are refused: they could write or read outside the destination."""


class TarSource:
    """The regular files of an archive and of the archives in it."""

    def __init__(self, archive: Path) -> None:
        self._path = archive
        self.name = str(archive)

    def entries(self) -> Iterator[Entry]:
        """Yield all files.

        Raises:
            EverstepError: the archive is damaged, compressed, or has a member that must not be unpacked.
        """
        with self._path.open("rb") as file:
            self._check_uncompressed(file)
            version = version_of(os.fstat(file.fileno()))
            try:
                yield from self._members(file, "", os.fstat(file.fileno()).st_size, version)
            except tarfile.TarError as error:
                raise EverstepError(
                    f"{self.name} is not a complete tar archive: {error}", "Fetch it again."
                ) from None

    def _check_uncompressed(self, file: IO[bytes]) -> None:
        start = file.read(4)
        file.seek(0)
        for magic, program in COMPRESSED.items():
            if start.startswith(magic):
                raise EverstepError(
                    f"{self.name} is compressed with {program}",
                    f"Decompress it first ({program} -d), so that a restarted run can continue within it.",
                )

    def _members(self, file: IO[bytes], folder: str, end: int, version: str) -> Iterator[Entry]:
        """Yield the files of the archive at the file's position, which ends at `end`."""
        archive = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115  closing it would close nothing
        while (member := archive.next()) is not None:
            vars(archive)["members"] = []  # tarfile would keep every header in memory
            self._check_member(member, end)
            if member.isdir():
                continue
            name = folder + check_name(member.name.removeprefix("./"), self.name)
            if is_own_file(name):
                continue
            if name.endswith(SUFFIX) and not folder:
                file.seek(member.offset_data)
                inner_end = member.offset_data + member.size
                yield from self._members(file, name.removesuffix(SUFFIX) + "/", inner_end, version)
            else:
                locator = str(member.offset_data)
                yield Entry(name, member.size, f"{version}-{locator}", locator)
        self._check_end(file, archive.offset, end)

    def _check_end(self, file: IO[bytes], offset: int, end: int) -> None:
        """Check that the archive ends with a block of zeros: tarfile also stops at an invalid header."""
        file.seek(offset)
        if offset >= end or file.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise EverstepError(
                f"{self.name} is damaged or incomplete at byte {offset:,}", "Fetch it again."
            )

    def _check_member(self, member: tarfile.TarInfo, end: int) -> None:
        if not (member.isreg() or member.isdir()) or member.issparse():
            kind = KINDS.get(member.type, "special file")
            raise EverstepError(
                f"the member {member.name!r} of {self.name} is a {kind}",
                "Only regular files are unpacked. Pack the archive again without it.",
            )
        if member.offset_data + member.size > end:
            raise EverstepError(
                f"{self.name} ends within {member.name!r}", "It is incomplete: fetch it again."
            )

    @contextmanager
    def open(self, entry: Entry, offset: int) -> Iterator[Content]:
        """Open a member at an offset.

        Raises:
            FileError: the archive changed.
        """
        version = entry.version.removesuffix(f"-{entry.locator}")
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            raise ChangedError(self.name, "was removed while it was copied") from None
        with file, check_unchanged(file, self.name) as status:
            if version_of(status) != version:
                raise ChangedError(self.name, "changed after it was listed")
            file.seek(int(entry.locator) + offset)
            yield Content(_chunks(file, entry.size - offset))


def _chunks(file: IO[bytes], remaining_bytes: int) -> Iterator[bytes]:
    while remaining_bytes and (chunk := file.read(min(remaining_bytes, CHUNK_BYTES))):
        remaining_bytes -= len(chunk)
        yield chunk
