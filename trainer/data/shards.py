"""Resized photographs in a few large files: the format, and its reader.

    manifest.json        what the folder holds, each file's size and checksum; written last
    train-index.npy      one record a sample: where it lies, its label, its checksum
    train-00000.jpegs    JPEGs, one after the other

A file a picture costs an open and a metadata request each, of which a shared file system grants few;
here a picture is a slice of mapped memory, and a set of a million is listed by reading one index. Why
not tar or TFRecord: neither can be read at a place without having been read up to there.
"""

import hashlib
import mmap
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from everstep.errors import EverstepError
from trainer.data.dataset import Labels
from trainer.data.folder import describe
from trainer.data.jpeg import Encoded
from trainer.data.manifest import damaged

FORMAT, KIND = 1, "shards"
RECORD = np.dtype(
    [("shard", "<u4"), ("label", "<u4"), ("offset", "<u8"), ("bytes", "<u4"), ("crc32", "<u4")]
)
Index = npt.NDArray[np.void]  # of RECORD, shape (samples,)


class ShardSource:
    """Pictures of one part."""

    def __init__(
        self, folder: Path, files: Sequence[str], index: Index, classes: Sequence[str]
    ) -> None:
        self._folder, self._files, self._index = folder, files, index
        self._mapped: dict[int, mmap.mmap] = {}
        self.classes = classes
        self.labels: Labels = index["label"].astype(np.int64)
        self.identity = describe(len(index), len(classes), digest_of(index, classes))

    def read(self, sample: int) -> Encoded:
        """The bytes of one picture, mapped."""
        record = self._index[sample]
        shard, offset, size = int(record["shard"]), int(record["offset"]), int(record["bytes"])
        data = np.frombuffer(self._map(shard), np.uint8, count=size, offset=offset)
        if zlib.crc32(data.data) != record["crc32"]:
            raise ValueError("its checksum differs")
        return data

    def name(self, sample: int) -> str:
        """Which picture of which file."""
        return (
            f"picture {sample} in {self._folder / self._files[int(self._index[sample]['shard'])]}"
        )

    def _map(self, shard: int) -> mmap.mmap:
        if shard not in self._mapped:
            with (self._folder / self._files[shard]).open("rb") as file:
                self._mapped[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._mapped[shard]


def open_shards(folder: Path, manifest: Mapping[str, Any], part: str) -> ShardSource:
    """The pictures of one part of a folder of shards.

    Raises:
        EverstepError: the shards are of another format, or damaged.
    """
    if manifest.get("format") != FORMAT:
        raise EverstepError(
            f"the shards in {folder} have format {manifest.get('format')}, and this program reads {FORMAT}",
            "Make them anew with this version of `python3 -m trainer.prepare`.",
        )
    said = manifest["parts"][part]
    for name, size in zip(said["files"], said["bytes"], strict=True):
        found = (folder / name).stat().st_size if (folder / name).exists() else -1
        if found != size:
            raise damaged(folder, f"{name} has {max(0, found)} bytes instead of {size}")
    index = read_index(folder, said["index"], said["index_sha256"])
    return ShardSource(folder, said["files"], index, manifest["classes"])


def read_index(folder: Path, name: str, sha256: str) -> Index:
    """Where the samples of a part lie.

    Raises:
        EverstepError: it is not the one that the manifest names.
    """
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise damaged(folder, f"{name} cannot be read: {error}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise damaged(folder, f"the checksum of {name} differs")
    index: Index = np.load(folder / name)
    return index


def digest_of(index: Index, classes: Sequence[str]) -> str:
    """Of the pictures and their labels in their order; not of how they are spread over files."""
    whole = hashlib.sha256("\0".join(classes).encode())
    for field in ("label", "bytes", "crc32"):
        whole.update(np.ascontiguousarray(index[field]).tobytes())
    return whole.hexdigest()
