"""Process that downloads shards to the cache of a node: `python3 -m trainer.data.cache.filler ARGUMENTS`.

Each worker process of a node starts one. The first to get the lock of the cache downloads; the others
wait, and continue if it ends. It ends with its worker, because its input is then closed; an incomplete
shard is downloaded again later. An error ends the downloads but not the training: readers then read their
images from the store themselves, and report its errors.
"""

import logging
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from everstep.errors import EverstepError
from everstep.staging.sources.objects import Objects, open_objects
from trainer.data.cache.arguments import FillerArguments
from trainer.data.cache.folder import MAX_DAMAGED_DOWNLOADS, CacheFolder, DamagedShardError
from trainer.data.cache.plan import CacheLimits, plan
from trainer.data.manifest import read_manifest

log = logging.getLogger("trainer.data.cache")

NICE = 10  # decoding and training have priority


class NeededShards:
    """The shards that the worker needs next, as it last sent them."""

    def __init__(self) -> None:
        self._shards: Sequence[int] = ()

    @property
    def shards(self) -> Sequence[int]:
        """Numbers of the shards, in order."""
        return self._shards

    def follow(self) -> None:
        """Read lines until the worker ends, then end this process immediately."""
        for line in sys.stdin:
            self._shards = [int(number) for number in line.split()]
        os._exit(0)


def main() -> None:
    """Download all shards that fit, then end this process; after a failure, wait for the end of the worker."""
    for signal_number in (signal.SIGTERM, signal.SIGINT):  # the worker may still finish a step
        signal.signal(signal_number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)  # it logs where credentials come from
    os.nice(NICE)
    arguments, needs = FillerArguments.from_argument(sys.argv[1]), NeededShards()
    reader_thread = threading.Thread(target=needs.follow, daemon=True)
    reader_thread.start()
    folder = Path(arguments.folder)
    cache = CacheFolder(folder, read_manifest(folder) or {})
    with cache.lock():
        cache.remove_partial()
        if not fill(cache, open_objects(arguments.store), needs, arguments.limits):
            reader_thread.join()  # keeps the lock: another process of the node would fail in the same way
    os._exit(0)


def fill(cache: CacheFolder, objects: Objects, needs: NeededShards, limits: CacheLimits) -> bool:
    """Download all shards that fit; return False after a failure.

    Args:
        cache: folder of the data set.
        objects: store of the shards.
        needs: shards that the worker needs next.
        limits: size limits of the cache.
    """
    damaged_downloads: Counter[int] = Counter()
    try:
        while True:
            state = cache.state(limits)
            next_steps = plan(state, needs.shards)
            if not next_steps.downloads:
                _log_end(cache, len(state.complete_shards), state.limit)
                return True
            cache.evict(next_steps.evictions)
            shard = next_steps.downloads[0]
            try:
                cache.download(shard, objects)
            except DamagedShardError:
                damaged_downloads[shard] += 1
                if damaged_downloads[shard] >= MAX_DAMAGED_DOWNLOADS:
                    raise
    except DamagedShardError as error:
        _log_failure(error)
    except OSError as error:
        _log_failure(error.strerror or error)
    except EverstepError as error:
        _log_failure(error.problem)
    return False


def _log_failure(reason: object) -> None:
    log.warning("shards are no longer cached; images are read from the store: %s", reason)


def _log_end(cache: CacheFolder, shard_count: int, limit: int | None) -> None:
    if shard_count == len(cache.files):
        log.info("the cache %s is complete: %d shards", cache.folder, shard_count)
        return
    log.info(
        "the cache %s has %d of %d shards, all that fit into %s bytes",
        cache.folder,
        shard_count,
        len(cache.files),
        limit,
    )


if __name__ == "__main__":
    main()
