"""Measure a cold start: reading shards in an object store through a node's cache, compared with a folder.

    python3 -m benchmarks.data_cache            # a table; needs `make build/servers/minio`
    python3 -m benchmarks.data_cache --json     # the same as JSON

In every round, each mode reads the same batches of one epoch with the same readers. The modes take turns, so that other
load on the machine affects all of them:

    folder   shards in a folder
    cold     shards in MinIO, an empty cache: images come from the server until their shards are there
    warm     the same cache once it is complete

The first batch is timed from opening the data, including the start of the processes; images per second are
measured over the epoch after it. Both are also given as ratios to the folder of the same round. Server and readers
share this machine, and its network is the loopback, so a request to a store in a cloud takes longer.
"""

import argparse
import contextlib
import json
import os
import select
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.data import make_images
from benchmarks.progress import track
from everstep.progress import Silent
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.servers import client_of
from trainer import data
from trainer.data.convert import convert
from trainer.data.dataset import Dataset
from trainer.data.loader import Loader
from trainer.data.shard import Resizing

SIZE, BATCH, SEED = 224, 32, 7
BUCKET, PREFIX = "photographs", "shards"
FILL_SECONDS = 600.0
MODES = ("folder", "cold", "warm")


@dataclass(frozen=True)
class Result:
    """The result of one mode in one round.

    Attributes:
        first_batch_seconds: time from opening the data to the first batch.
        images_per_second: rate in the remaining epoch.
    """

    first_batch_seconds: float
    images_per_second: float


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_images(folder / "photographs", options.images)
        convert(folder / "photographs", folder / "shards", Resizing(), 1, Silent())
        with shard_store(folder) as address:
            rounds = [
                one_round(folder, address, options.readers)
                for _ in track(range(options.rounds), "rounds", options.rounds)
            ]
    print(json.dumps(summary(rounds), indent=1) if options.json else table(summary(rounds)))


@contextlib.contextmanager
def shard_store(folder: Path) -> Iterator[str]:
    """Run MinIO with the shards; yield the address of the prefix."""
    (folder / "minio").mkdir()
    with servers.minio(folder / "minio") as address:
        client = client_of(address)
        client.create_bucket(Bucket=BUCKET)
        for path in (folder / "shards").iterdir():
            client.upload_file(str(path), BUCKET, f"{PREFIX}/{path.name}")
        os.environ |= {
            "AWS_ENDPOINT_URL_S3": address,
            "AWS_ACCESS_KEY_ID": servers.KEY_ID,
            "AWS_SECRET_ACCESS_KEY": servers.SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        yield f"s3://{BUCKET}/{PREFIX}"


def one_round(folder: Path, store: str, readers: int) -> dict[str, Result]:
    """Measure each mode once; the warm cache was filled by the cold start before it."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return {
        mode: measure(folder / ("shards" if mode == "folder" else "cache"), mode, store, readers)
        for mode in MODES
    }


def measure(folder: Path, mode: str, store: str, readers: int) -> Result:
    """Read one epoch."""
    started_at = time.perf_counter()
    cache = None if mode == "folder" else data.open_cache(store, folder, data.CacheLimits())
    data_folder = cache.folder if cache else folder
    parts = [
        data.load("imagefolder", data_folder, part, SIZE, store=store if cache else "")
        for part in ("train", "test")
    ]
    train, _ = data.read_ahead(parts[0], parts[1], readers, BATCH)
    batches = np.array_split(
        np.random.default_rng(SEED).permutation(len(train)), len(train) // BATCH
    )
    try:
        read(train, batches[:2], 1)
        first_seconds = time.perf_counter() - started_at
        read(train, batches[1:], len(batches) - 1)
        later_seconds = time.perf_counter() - started_at - first_seconds
    finally:
        if isinstance(train, Loader):
            train.close()
        if cache:
            wait_until_filled(cache)
            cache.close()
    return Result(first_seconds, sum(map(len, batches[1:])) / later_seconds)


def wait_until_filled(cache: data.Cache) -> None:
    """Wait until the process that fills the cache has ended."""
    handle = os.pidfd_open(cache.process_id)
    readable, _, _ = select.select([handle], [], [], FILL_SECONDS)
    os.close(handle)
    if not readable:
        raise TimeoutError(f"the cache is not complete after {FILL_SECONDS} s")


def read(train: Dataset, batches: list[np.ndarray], count: int) -> None:
    """Read `count` batches; before each, prefetch it and the next batch."""
    for number in range(count):
        upcoming = [data.BatchRequest(ids=ids, seed=SEED) for ids in batches[number : number + 2]]
        train.prefetch(upcoming)
        train.train_batch(batches[number], SEED, 0)


def summary(rounds: list[dict[str, Result]]) -> dict[str, dict[str, float]]:
    """Return the medians of each mode, and of its ratios to the folder of the same round."""
    return {
        mode: {
            "first_batch_seconds": median([result[mode].first_batch_seconds for result in rounds]),
            "first_batch_ratio": median(
                [
                    result[mode].first_batch_seconds / result["folder"].first_batch_seconds
                    for result in rounds
                ]
            ),
            "images_per_second": median([result[mode].images_per_second for result in rounds]),
            "images_per_second_ratio": median(
                [
                    result[mode].images_per_second / result["folder"].images_per_second
                    for result in rounds
                ]
            ),
        }
        for mode in MODES
    }


def median(values: list[float]) -> float:
    """Return the median with three decimal places."""
    return round(statistics.median(values), 3)


def table(results: dict[str, dict[str, float]]) -> str:
    """Return the medians as a table."""
    names = list(results["folder"])
    rows = [" " * 8 + "".join(f"{name:>26}" for name in names)]
    rows += [
        f"{mode:8}" + "".join(f"{figures[name]:26.3f}" for name in names)
        for mode, figures in results.items()
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
