"""Preparation of a data set, once for all workers.

    python3 -m trainer.prepare --dataset fashion-mnist --output DIR
    python3 -m trainer.prepare --dataset imagefolder --source PHOTOS --output DIR   # makes shards
    python3 -m trainer.prepare --dataset imagefolder --output DIR                   # checks existing data
    python3 -m trainer.prepare --dataset imagefolder --stage s3://BUCKET/PREFIX --source DIR --output DIR

Fashion-MNIST comes from the Debian package dataset-fashion-mnist as gzipped IDX files and becomes
uint8 arrays that workers map into memory. A folder of photographs is converted to shards
(see `trainer.data.shards`); workers can also read the folder directly, and then every image is checked
here. The manifest is written last. Complete output is not written again.
"""

import argparse
import gzip
import hashlib
import json
import os
import shutil
import socket
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from everstep.errors import EverstepError
from everstep.progress import Lines
from trainer.data import IMAGE_FOLDER, check_name
from trainer.data.check import check
from trainer.data.convert import convert
from trainer.data.manifest import MANIFEST_FILE
from trainer.data.shard import Resizing, sync
from trainer.stage import stage

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
IDX_FILES = {
    "train-images.npy": "train-images-idx3-ubyte.gz",
    "train-labels.npy": "train-labels-idx1-ubyte.gz",
    "test-images.npy": "t10k-images-idx3-ubyte.gz",
    "test-labels.npy": "t10k-labels-idx1-ubyte.gz",
}
_IDX_UBYTE = 8  # element type in the header of an IDX file


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0, 1 after an error message on standard error, or 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="trainer.prepare", description="Prepare a data set for training."
    )
    parser.add_argument("--dataset", required=True, help="fashion-mnist or imagefolder")
    parser.add_argument("--source", type=Path, help="folder of the original files")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder to write to, or to check"
    )
    parser.add_argument(
        "--stage",
        metavar="LOCATION",
        help="data set to copy to --source first, such as s3://BUCKET/PREFIX",
    )
    conversion = parser.add_argument_group("photographs")
    add, defaults = conversion.add_argument, Resizing()
    add(
        "--short-side",
        type=int,
        default=defaults.short_side,
        help="short side in pixels (%(default)s)",
    )
    add(
        "--quality",
        type=int,
        default=defaults.quality,
        help="quality of the JPEGs, 1-100 (%(default)s)",
    )
    add("--skip-bad", action="store_true", help="skip files that are not valid JPEGs")
    add(
        "--processes",
        type=int,
        default=_cpus(),
        help="number of conversion processes (%(default)s)",
    )
    options = parser.parse_args(arguments)
    try:
        check_name(options.dataset)
        _check_stage(options)
        if options.dataset == IMAGE_FOLDER:
            print(prepare_photographs(options))
        else:
            prepare_fashion_mnist(options.source or DEBIAN_FOLDER, options.output)
    except KeyboardInterrupt:
        print("\nstopped; finished work is kept: run it again to continue", file=sys.stderr)
        return 130
    except EverstepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        path, reason = error.filename or options.output, error.strerror or error
        print(f"error: {path} cannot be read or written: {reason}", file=sys.stderr)
        return 1
    return 0


def _check_stage(options: argparse.Namespace) -> None:
    """Check that a data set can be staged.

    Raises:
        EverstepError: the data set is not a folder of photographs, or there is no folder to copy it to.
    """
    if options.stage and options.dataset != IMAGE_FOLDER:
        raise EverstepError(
            f"--stage is for --dataset {IMAGE_FOLDER}, not for {options.dataset}", "Omit --stage."
        )
    if options.stage and options.source in (None, options.output):
        raise EverstepError(
            f"--stage {options.stage} needs a folder to copy it to",
            "Name a folder other than --output with --source.",
        )


def prepare_fashion_mnist(source: Path, output: Path) -> None:
    """Write arrays and a manifest to `output` unless they exist.

    Raises:
        EverstepError: a file of `source` is missing or invalid, or `output` contains other data.
    """
    if _is_prepared(output):
        print(f"{output} is prepared already")
        return
    _check_replaceable(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    # Processes of two pods may have the same number.
    temporary = output.parent / f".{output.name}-{socket.gethostname()}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        files = {
            name: _convert(source / idx_path, temporary / name)
            for name, idx_path in IDX_FILES.items()
        }
        images = np.load(temporary / "train-images.npy") / np.float32(255)
        manifest = {
            "dataset": "fashion-mnist",
            "classes": 10,
            "mean": [round(float(images.mean()), 4)],
            "deviation": [round(float(images.std()), 4)],
            "files": files,
        }
        (temporary / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1))
        sync(temporary / MANIFEST_FILE)
        _put_in_place(temporary, output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    print(f"prepared {files['train-images.npy']['shape'][0]} training images in {output}")


def prepare_photographs(options: argparse.Namespace) -> str:
    """Make shards, or check existing data; return a description of the data.

    Raises:
        EverstepError: an option or a file is invalid.
    """
    for name, low, high in (("short_side", 8, 8192), ("quality", 1, 100), ("processes", 1, 1024)):
        if not low <= (value := getattr(options, name)) <= high:
            raise EverstepError(
                f"--{name.replace('_', '-')} is {value}", f"Choose a value from {low} to {high}."
            )
    if options.source is None or options.source == options.output:
        return check(options.output, Lines())
    if options.stage:
        stage(options.stage, options.source, Lines())
    resizing = Resizing(
        short_side=options.short_side, quality=options.quality, skip_bad=options.skip_bad
    )
    return convert(options.source, options.output, resizing, options.processes, Lines())


def _is_prepared(output: Path) -> bool:
    """Return True if every file exists with the size in the manifest."""
    try:
        manifest = json.loads((output / MANIFEST_FILE).read_text())
        return all((output / n).stat().st_size == f["bytes"] for n, f in manifest["files"].items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _check_replaceable(output: Path) -> None:
    """Check that a folder contains nothing but incomplete prepared data, which may be replaced.

    Raises:
        EverstepError: it contains other data.
    """
    own_names = {*IDX_FILES, MANIFEST_FILE}
    if output.exists() and (
        not output.is_dir() or any(path.name not in own_names for path in output.iterdir())
    ):
        raise EverstepError(
            f"{output} contains other data", "Choose another --output, or remove it."
        )


def _convert(idx_path: Path, target: Path) -> dict[str, Any]:
    array = read_idx(idx_path)
    if array.ndim > 1:
        array = array[..., None]  # (n, height, width) to (n, height, width, channels)
    np.save(target, array)
    sync(target)
    data = target.read_bytes()
    return {
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "shape": list(array.shape),
    }


def read_idx(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return the array in a gzipped IDX file.

    Raises:
        EverstepError: the file is missing or invalid.
    """
    try:
        data = gzip.decompress(path.read_bytes())
        _, kind, dimensions = struct.unpack(">HBB", data[:4])
        shape = struct.unpack(f">{dimensions}I", data[4 : 4 + 4 * dimensions])
        if kind != _IDX_UBYTE:
            raise ValueError(f"element type {kind} instead of {_IDX_UBYTE}")
        return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except FileNotFoundError as error:
        raise EverstepError(
            f"{path} does not exist",
            "Install the Debian package dataset-fashion-mnist (the trainer image has it), or pass --source "
            f"with a folder that contains {', '.join(IDX_FILES.values())}.",
        ) from error
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as error:
        raise EverstepError(
            f"{path} is not a gzipped IDX file: {error}", "Download it again."
        ) from error


def _put_in_place(temporary: Path, output: Path) -> None:
    """Rename a folder to its final name; keep the result of a process that finished first."""
    if output.exists() and not _is_prepared(output):
        shutil.rmtree(output)
    try:
        temporary.rename(output)
    except OSError:
        if not _is_prepared(output):
            raise


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    sys.exit(main())
