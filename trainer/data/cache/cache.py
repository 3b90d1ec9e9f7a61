"""The cache of a node, as a worker uses it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from everstep.elastic.data_order.sampler import Ids
from everstep.staging.sources.objects import open_objects
from trainer.data.cache.arguments import FillerArguments
from trainer.data.cache.folder import CacheFolder, open_cache_folder
from trainer.data.cache.plan import CacheLimits, sort_by_need
from trainer.data.dataset import SPLITS

PROGRAM = (sys.executable, "-m", "trainer.data.cache.filler")
MAX_LINE_SHARDS = 256  # shards in a line: writes of up to PIPE_BUF bytes to a pipe are atomic


class Cache:
    """Shards of an object store in a folder of this node, which a process fills.

    Args:
        folder: the data set in the cache.
        store: address of the shards.
        limits: size limits of the cache.
        program: command line of the process.
    """

    def __init__(
        self,
        folder: CacheFolder,
        store: str,
        limits: CacheLimits,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.folder = folder.folder
        self._train_index = folder.index(SPLITS[0])
        arguments = FillerArguments(folder=str(folder.folder), store=store, limits=limits)
        self._filler = subprocess.Popen(
            [*program, arguments.to_argument()],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            bufsize=0,
        )

    @property
    def process_id(self) -> int:
        """ID of the process that fills the cache."""
        return self._filler.pid

    def prefetch(self, next_ids: Sequence[Ids]) -> None:
        """Send the process the shards of the samples that this worker needs next.

        Args:
            next_ids: samples of the training split for each of the next batches, in order.
        """
        if self._filler.stdin is None or self._filler.poll() is not None:
            return
        shards = (int(shard) for ids in next_ids for shard in self._train_index["shard"][ids])
        line = " ".join(map(str, sort_by_need(shards)[:MAX_LINE_SHARDS])) + "\n"
        os.set_blocking(self._filler.stdin.fileno(), False)
        with contextlib.suppress(OSError):  # only a hint: the process may be busy, or have ended
            self._filler.stdin.write(line.encode())

    def close(self) -> None:
        """Stop the process."""
        if self._filler.stdin is not None:
            self._filler.stdin.close()
        self._filler.wait()


def open_cache(store: str, root: Path, limits: CacheLimits) -> Cache:
    """Open the cache of the shards at an address, and begin to fill it.

    Args:
        store: address of the shards, such as s3://bucket/imagenet-shards.
        root: folder of the cache.
        limits: size limits of the cache.

    Raises:
        EverstepError: the store has no shards there or denies access, or the folder cannot be written.
    """
    return Cache(open_cache_folder(root, open_objects(store)), store, limits)
