"""Resized photographs in a few large files: the format, and its reader.

    manifest.json        description of the folder: sizes of the shards, checksums of the indexes; written last
    train-index.npy      one record per sample: its position, label and checksum
    train-00000.jpegs    JPEGs, one after the other

With one file per image, each image costs an open and a metadata request, which are slow on a shared file
system. Here an image is a slice of mapped memory, and one index lists a million images. tar and
TFRecord have no random access.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from everstep.errors import EverstepError
from trainer.data.dataset import Labels
from trainer.data.folder import describe
from trainer.data.jpeg import Encoded
from trainer.data.manifest import damage_error
from trainer.data.shard_files import MappedFiles, ShardFiles, Slice

FORMAT, KIND = 1, "shards"
SHARD_SUFFIX = ".jpegs"
RECORD = np.dtype(
    [("shard", "<u4"), ("label", "<u4"), ("offset", "<u8"), ("bytes", "<u4"), ("crc32", "<u4")]
)
Index = npt.NDArray[np.void]  # records of RECORD, shape (samples,)


class ShardSource:
    """Images of one split.

    Args:
        folder: folder of the shards, for messages.
        names: names of the shards, by number.
        index: the samples.
        classes: names of the classes, by label.
        files: source of the bytes.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        index: Index,
        classes: Sequence[str],
        files: ShardFiles,
    ) -> None:
        self._folder, self._names, self._index, self._files = folder, names, index, files
        self.classes = classes
        self.labels: Labels = index["label"].astype(np.int64)
        self.identity = describe(len(index), len(classes), digest_of(index, classes))

    def read(self, sample: int) -> Encoded:
        """Return the bytes of one image."""
        return self._files.read(self._slice(sample))

    def prefetch(self, samples: Sequence[int]) -> None:
        """Prepare to read these images next, in order."""
        self._files.prefetch([self._slice(sample) for sample in samples])

    def name(self, sample: int) -> str:
        """Return the number of an image in its split, and its file."""
        return f"image {sample} in {self._folder / self._names[int(self._index[sample]['shard'])]}"

    def _slice(self, sample: int) -> Slice:
        record = self._index[sample]
        fields = (record[name] for name in ("shard", "offset", "bytes", "crc32"))
        return Slice(*map(int, fields))


def open_shards(
    folder: Path, manifest: Mapping[str, Any], split: str, cached_files: ShardFiles | None = None
) -> ShardSource:
    """Open the images of one split of a folder of shards.

    Args:
        folder: the folder.
        manifest: its manifest.
        split: `train` or `test`.
        cached_files: source of the bytes if the folder need not have all shards.

    Raises:
        EverstepError: the shards have another format, or are damaged.
    """
    check_format(manifest, str(folder))
    entry = manifest["parts"][split]
    if cached_files is None:
        _check_sizes(folder, entry)
    index = read_index(folder, entry["index"], entry["index_sha256"])
    files = cached_files or MappedFiles(folder, entry["files"])
    return ShardSource(folder, entry["files"], index, manifest["classes"], files)


def check_format(manifest: Mapping[str, Any], location: str) -> None:
    """Check that shards have the format that this program reads.

    Raises:
        EverstepError: they have another format.
    """
    if manifest.get("format") != FORMAT:
        raise EverstepError(
            f"the shards in {location} have format {manifest.get('format')}, and this program reads {FORMAT}",
            "Make them again with this version of `python3 -m trainer.prepare`.",
        )


def _check_sizes(folder: Path, entry: Mapping[str, Any]) -> None:
    for name, size in zip(entry["files"], entry["bytes"], strict=True):
        actual_size = (folder / name).stat().st_size if (folder / name).exists() else -1
        if actual_size != size:
            raise damage_error(folder, f"{name} has {max(0, actual_size)} bytes instead of {size}")


def read_index(folder: Path, name: str, sha256: str) -> Index:
    """Return the index of a split.

    Raises:
        EverstepError: the index cannot be read, or its checksum differs from the manifest's.
    """
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise damage_error(folder, f"{name} cannot be read: {error}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise damage_error(folder, f"the checksum of {name} differs")
    index: Index = np.load(folder / name)
    return index


def digest_of(index: Index, classes: Sequence[str]) -> str:
    """Return a digest of the classes, and of images and labels in order; independent of the division into shards."""
    digest = hashlib.sha256("\0".join(classes).encode(errors="surrogateescape"))
    for field in ("label", "bytes", "crc32"):
        digest.update(np.ascontiguousarray(index[field]).tobytes())
    return digest.hexdigest()
