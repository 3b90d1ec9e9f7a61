"""The files of shards in a folder, mapped into memory."""

import mmap
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from trainer.data.jpeg import Encoded


class Slice(NamedTuple):
    """One image in a shard.

    Attributes:
        shard: number of the shard in its split.
        offset: position of its first byte in the shard.
        bytes: its size.
        crc32: its checksum.
    """

    shard: int
    offset: int
    bytes: int
    crc32: int


class ShardFiles(Protocol):
    """The shards of one split."""

    def read(self, image: Slice) -> Encoded:
        """Return the bytes of an image.

        Raises:
            OSError: the bytes cannot be read.
            ValueError: the bytes have changed.
            EverstepError: the object store has damaged bytes or none, denies access, or does not respond.
        """

    def prefetch(self, images: Sequence[Slice]) -> None:
        """Prepare to read these images next, in order."""


class MappedFiles:
    """Shards in a folder.

    Args:
        folder: folder of the shards.
        names: names of the shards, by number.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._names = folder, names
        self._maps: dict[int, mmap.mmap] = {}

    def read(self, image: Slice) -> Encoded:
        """Return the mapped bytes of an image."""
        shard_map = self._map(image.shard)
        data = np.frombuffer(shard_map, np.uint8, count=image.bytes, offset=image.offset)
        if zlib.crc32(data.data) != image.crc32:
            raise ValueError("its checksum differs")
        return data

    def prefetch(self, images: Sequence[Slice]) -> None:
        """Do nothing: the kernel reads ahead."""

    def discard(self, shard: int) -> None:
        """Remove a damaged file."""
        self._maps.pop(shard, None)
        (self._folder / self._names[shard]).unlink(missing_ok=True)

    def _map(self, shard: int) -> mmap.mmap:
        if shard not in self._maps:
            with (self._folder / self._names[shard]).open("rb") as file:
                self._maps[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[shard]
