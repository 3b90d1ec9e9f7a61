"""One shard: photographs made smaller and written one after the other, by one process."""

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.data import jpeg
from trainer.data.folder import File
from trainer.data.shards import RECORD, Index


@dataclass(frozen=True, kw_only=True)
class Resizing:
    """What becomes of each photograph.

    Attributes:
        short_side: pixels; smaller photographs stay as they are.
        quality: of the JPEG, 1 to 100.
        skip_bad: leave files out that are no good JPEG, instead of failing.
    """

    short_side: int = 256
    quality: int = 90
    skip_bad: bool = False


@dataclass(frozen=True, kw_only=True)
class Work:
    """One shard to be made.

    Attributes:
        source: the part's folder.
        files: what goes in, in this order.
        target: file to write; its index stands beside it.
    """

    source: Path
    files: Sequence[File]
    target: Path
    resizing: Resizing

    @property
    def index(self) -> Path:
        """Where the shard's index goes; with it in place the shard is done."""
        return self.target.with_suffix(".npy")


@dataclass(frozen=True, kw_only=True)
class Done:
    """One shard that was made, or could not be: the bad files with their reasons."""

    work: Work
    bad: Sequence[str] = ()


def convert_shard(work: Work) -> Done:
    """Make one shard, unless it is there."""
    bad_list = work.target.with_suffix(".bad")
    if work.index.exists():
        return Done(work=work, bad=bad_list.read_text().splitlines() if bad_list.exists() else ())
    bad: list[str] = []
    records: list[tuple[int, int, int, int, int]] = []
    aside = work.target.with_suffix(".tmp")
    with aside.open("wb") as shard:
        for file in work.files:
            try:
                data = resized(np.fromfile(work.source / file.path, np.uint8), work.resizing)
            except (OSError, ValueError) as error:
                bad.append(f"{work.source / file.path}: {error}")
                continue
            records.append((0, file.label, shard.tell(), len(data), zlib.crc32(data)))
            shard.write(data)
    sync(aside)
    if bad and not work.resizing.skip_bad:
        aside.unlink()  # its files change or are skipped: it would have to be made anew anyway
        return Done(work=work, bad=bad)
    bad_list.write_text("\n".join(bad))
    aside.rename(work.target)
    save(work.index, np.array(records, RECORD))
    return Done(work=work, bad=bad)


def resized(data: jpeg.Encoded, resizing: Resizing) -> bytes:
    """A JPEG whose short side is at most so many pixels.

    Raises:
        ValueError: the bytes are no whole JPEG.
    """
    width, height = jpeg.frame_size(data)
    short = min(width, height)
    # Twice the wanted pixels are left for the filter, which is better than the decoder's.
    pixels = jpeg.decode(data, jpeg.reduction_for(short, short, 2 * resizing.short_side))
    if short <= resizing.short_side:
        return data.tobytes()
    cv2 = jpeg.opencv()
    factor = resizing.short_side / short
    size = (round(width * factor), round(height * factor))
    _, encoded = cv2.imencode(
        ".jpg",
        cv2.resize(pixels, size, interpolation=cv2.INTER_AREA),
        [cv2.IMWRITE_JPEG_QUALITY, resizing.quality],
    )
    return bytes(encoded)


def save(path: Path, index: Index) -> None:
    """Write an index aside, sync it and give it its name."""
    aside = path.with_suffix(".saving")
    with aside.open("wb") as file:
        np.save(file, index)
    sync(aside)
    aside.rename(path)


def sync(path: Path) -> None:
    """Have a file or a folder reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
