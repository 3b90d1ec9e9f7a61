"""The bytes of images: from the shards in a node's cache, or from the object store until they are there."""

import logging
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from everstep.errors import EverstepError
from everstep.staging.sources.objects import Objects, open_objects, read_with_retries
from trainer.data.cache.folder import MAX_DAMAGED_DOWNLOADS
from trainer.data.jpeg import Encoded
from trainer.data.shard_files import MappedFiles, Slice

log = logging.getLogger(__name__)

CONNECTIONS = 8  # requests of one process at a time


class CachedFiles:
    """The shards of a split, which another process downloads to a folder.

    Args:
        folder: folder of the data set in the cache.
        names: names of the shards, by number.
        store: address of the shards.
        connect: function that returns the objects at an address.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        store: str,
        connect: Callable[[str], Objects] = open_objects,
    ) -> None:
        self._names, self._store, self._connect = names, store, connect
        self._mapped_files = MappedFiles(folder, names)
        self._lock = threading.Lock()
        self._objects: Objects | None = None  # a client is not needed if the cache is complete
        self._pool: ThreadPoolExecutor | None = None
        self._downloads: dict[Slice, Future[Encoded]] = {}

    def read(self, image: Slice) -> Encoded:
        """Return the bytes of an image.

        Raises:
            EverstepError: the store has damaged bytes or none, denies access, or does not respond.
        """
        if (download := self._downloads.pop(image, None)) is not None:
            return download.result()
        if (data := self._read_cached(image)) is not None:
            return data
        return self._fetch(image)

    def prefetch(self, images: Sequence[Slice]) -> None:
        """Request the images that are not in the cache, several at a time."""
        for image in images:
            if image not in self._downloads and self._read_cached(image) is None:
                self._pool = self._pool or ThreadPoolExecutor(CONNECTIONS, "everstep-images")
                self._downloads[image] = self._pool.submit(self._fetch, image)

    def _read_cached(self, image: Slice) -> Encoded | None:
        """Return the bytes, or None if the cache does not have them; remove a damaged shard, to download it again."""
        try:
            return self._mapped_files.read(image)
        except FileNotFoundError:
            return None
        except ValueError as error:
            name = self._names[image.shard]
            log.warning("the cached shard %s is damaged and is removed: %s", name, error)
            self._mapped_files.discard(image.shard)
            return None

    def _fetch(self, image: Slice) -> Encoded:
        """Return the bytes from the store."""
        objects, name = self._connect_once(), self._names[image.shard]
        for _ in range(MAX_DAMAGED_DOWNLOADS):
            content = read_with_retries(
                lambda: objects.read(name, image.offset, image.bytes), objects.name
            )
            if zlib.crc32(content) == image.crc32:
                return np.frombuffer(content, np.uint8)
        raise EverstepError(
            f"the image at byte {image.offset} of {objects.name}/{name} is damaged: its checksum differs",
            "Copy the shards again to their own prefix, and do not replace objects during a training run.",
        )

    def _connect_once(self) -> Objects:
        with self._lock:
            self._objects = self._objects or self._connect(self._store)
            return self._objects
