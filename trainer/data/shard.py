"""One shard: resized photographs, written one after the other by one process."""

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.data import jpeg
from trainer.data.folder import ImageFile
from trainer.data.shards import RECORD, Index


@dataclass(frozen=True, kw_only=True)
class Resizing:
    """Conversion of each photograph.

    Attributes:
        short_side: pixels; smaller photographs are not changed.
        quality: JPEG quality, 1 to 100.
        skip_bad: whether to skip invalid JPEG files instead of failing.
    """

    short_side: int = 256
    quality: int = 90
    skip_bad: bool = False


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """Task to make one shard.

    Attributes:
        source: folder of the split.
        files: files of the shard, in order.
        target: file to write; the index is written next to it.
        resizing: conversion of each photograph.
    """

    source: Path
    files: Sequence[ImageFile]
    target: Path
    resizing: Resizing

    @property
    def index(self) -> Path:
        """Path of the shard's index; the shard is complete once it exists."""
        return self.target.with_suffix(".npy")


@dataclass(frozen=True, kw_only=True)
class ShardResult:
    """Result of one shard: the invalid files with their reasons."""

    task: ShardTask
    invalid_files: Sequence[str] = ()


def convert_shard(task: ShardTask) -> ShardResult:
    """Make one shard unless it exists."""
    bad_list = task.target.with_suffix(".bad")
    if task.index.exists():
        return ShardResult(
            task=task, invalid_files=_read_list(bad_list) if bad_list.exists() else ()
        )
    invalid_files: list[str] = []
    records: list[tuple[int, int, int, int, int]] = []
    temporary = task.target.with_suffix(".tmp")
    with temporary.open("wb") as shard:
        for file in task.files:
            try:
                data = resize(np.fromfile(task.source / file.path, np.uint8), task.resizing)
            except (OSError, ValueError) as error:
                invalid_files.append(f"{task.source / file.path}: {error}")
                continue
            records.append((0, file.label, shard.tell(), len(data), zlib.crc32(data)))
            shard.write(data)
    sync(temporary)
    if invalid_files and not task.resizing.skip_bad:
        temporary.unlink()  # a retry has other files or skips some, so it cannot use this shard
        return ShardResult(task=task, invalid_files=invalid_files)
    bad_list.write_bytes(
        "".join(f"{file}\0" for file in invalid_files).encode(errors="surrogateescape")
    )
    temporary.rename(task.target)
    save(task.index, np.array(records, RECORD))
    return ShardResult(task=task, invalid_files=invalid_files)


def _read_list(path: Path) -> list[str]:
    """Return the entries, each ended by a zero byte: names of files may contain newlines."""
    return path.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]


def resize(data: jpeg.Encoded, resizing: Resizing) -> bytes:
    """Return a JPEG with at most `resizing.short_side` pixels on its short side.

    Raises:
        ValueError: the bytes are not a valid JPEG, or the smaller image cannot be encoded.
    """
    width, height = jpeg.frame_size(data)
    short_side = min(width, height)
    # Small photographs are decoded too: only decoding detects damaged content. Large ones are decoded at no less than
    # twice the target size, because INTER_AREA below is a better filter than the decoder's own.
    pixels = jpeg.decode(data, jpeg.reduction_for(short_side, short_side, 2 * resizing.short_side))
    if short_side <= resizing.short_side:
        return data.tobytes()
    cv2 = jpeg.opencv()
    factor = resizing.short_side / short_side
    size = (round(width * factor), round(height * factor))
    is_encoded, encoded = cv2.imencode(
        ".jpg",
        cv2.resize(pixels, size, interpolation=cv2.INTER_AREA),
        [cv2.IMWRITE_JPEG_QUALITY, resizing.quality],
    )
    if not is_encoded:
        raise ValueError(f"OpenCV cannot encode it with {size[0]} x {size[1]} pixels")
    return bytes(encoded)


def save(path: Path, index: Index) -> None:
    """Write an index atomically: write a temporary file, sync it, rename it."""
    temporary = path.with_suffix(".saving")
    with temporary.open("wb") as file:
        np.save(file, index)
    sync(temporary)
    temporary.rename(path)


def sync(path: Path) -> None:
    """Flush a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
