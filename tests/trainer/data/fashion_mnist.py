"""Random images in the format of Fashion-MNIST: gzipped IDX files, as in the Debian package."""

import gzip
import struct
from pathlib import Path

import numpy as np


def write_source(folder: Path, train: int, test: int) -> Path:
    """Write images of 28x28 pixels, `train` for training and `test` for evaluation, with labels; return the folder."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        pixels = rng.integers(0, 255, (count, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(pixels))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(labels))
    return folder


def idx(array: np.ndarray) -> bytes:
    """Return an array of bytes as a gzipped IDX file."""
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes())
