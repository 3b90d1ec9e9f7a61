"""Conversion of a folder of photographs to shards: `python3 -m trainer.prepare --source FOLDER --output FOLDER`.

Each shard is one task for one process, made from a fixed range of the sorted files. All are written
to `.<output>.partial` next to the output, each under a name derived from its sources, so that an
interrupted conversion continues where it stopped. The folder is renamed after the manifest is written:
readers see all of it or nothing.
"""

import contextlib
import fcntl
import hashlib
import json
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from everstep.errors import EverstepError
from everstep.progress import Progress, Step
from trainer.data.dataset import SPLITS
from trainer.data.folder import (
    ImageFile,
    describe,
    digest_of,
    list_common_classes,
    list_files,
    split_folder,
)
from trainer.data.manifest import MANIFEST_FILE, read_manifest
from trainer.data.named_files import named_files
from trainer.data.shard import Resizing, ShardResult, ShardTask, convert_shard, save, sync
from trainer.data.shards import FORMAT, KIND, SHARD_SUFFIX, Index
from trainer.data.shards import digest_of as digest_of_index

SHARDS_PER_SPLIT = 16  # enough to keep many processes busy
MIN_SAMPLES, MAX_SAMPLES = 64, 8192  # in one shard: some 200 MB


@dataclass(frozen=True)
class Split:
    """One split of the data set: its classes and files."""

    name: str
    classes: Sequence[str]
    files: Sequence[ImageFile] = field(repr=False)


def convert(
    source: Path, output: Path, resizing: Resizing, processes: int, progress: Progress
) -> str:
    """Make the shards of `source` in `output` unless they exist; return a description of them.

    Raises:
        EverstepError: some files are not valid JPEGs (the message names the first of them), a split has no valid image,
            the splits have different classes, `source` cannot be read, `output` contains other data, another process
            writes it, or a conversion process was killed.
    """
    classes = list_common_classes(source)
    splits = [_list_split(source, name, classes) for name in SPLITS]
    fingerprint = _fingerprint(splits, resizing)
    if existing := _existing_output(output, fingerprint):
        return existing
    _check_can_be_renamed(output)
    partial = output.parent / f".{output.name}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    with (
        _exclusive_lock(partial),
        progress.step(f"Converting {source} to shards in {output}") as step,
    ):
        tasks = {
            split.name: list(_shard_tasks(split, source, partial, resizing)) for split in splits
        }
        invalid_files = _make_shards(
            [task for tasks_of_split in tasks.values() for task in tasks_of_split], processes, step
        )
        if invalid_files and not resizing.skip_bad:
            raise _invalid_files(invalid_files)
        manifest = _manifest(splits, tasks, fingerprint, resizing, invalid_files)
        _finish(partial, output, manifest)
    return _description(manifest, output)


def shard_samples(samples: int) -> int:
    """Return the number of images per shard, which depends on the data set only: a retry makes the same shards."""
    return min(MAX_SAMPLES, max(MIN_SAMPLES, -(-samples // SHARDS_PER_SPLIT)))


def _list_split(source: Path, name: str, classes: Sequence[str]) -> Split:
    return Split(name, classes, list(list_files(split_folder(source, name), classes)))


def _shard_tasks(
    split: Split, source: Path, partial: Path, resizing: Resizing
) -> Iterator[ShardTask]:
    shard_size = shard_samples(len(split.files))
    for number, first in enumerate(range(0, len(split.files), shard_size)):
        files = split.files[first : first + shard_size]
        key = _digest([*(asdict(file) for file in files), asdict(resizing)])
        target = partial / f"{split.name}-{number:05d}-{key[:12]}{SHARD_SUFFIX}"
        yield ShardTask(
            source=split_folder(source, split.name), files=files, target=target, resizing=resizing
        )


def _make_shards(tasks: Sequence[ShardTask], processes: int, step: Step) -> list[str]:
    """Make all shards; return the invalid files, sorted."""
    invalid_files: list[str] = []
    total, converted_files = sum(len(task.files) for task in tasks), 0
    for result in _finished_shards(tasks, min(processes, len(tasks))):
        converted_files += len(result.task.files)
        invalid_files += result.invalid_files
        step.note(
            f"{converted_files} of {total} files"
            + (f", {len(invalid_files)} of them invalid" if invalid_files else "")
        )
    return sorted(invalid_files)


def _finished_shards(tasks: Sequence[ShardTask], processes: int) -> Iterator[ShardResult]:
    """Yield each shard when it is finished, in any order."""
    if processes <= 1:
        yield from map(convert_shard, tasks)
        return
    # New processes, not forks: a fork would copy the state of other threads and their locks.
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_restore_interrupt
    ) as pool:
        try:
            for finished in as_completed([pool.submit(convert_shard, task) for task in tasks]):
                yield finished.result()
        except BrokenProcessPool as error:
            raise EverstepError(
                "a conversion process was killed, perhaps because memory ran out",
                "Run it again with fewer --processes: finished shards are kept.",
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _restore_interrupt() -> None:
    """Make Ctrl-C end a worker process silently; the main process reports it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _manifest(
    splits: Sequence[Split],
    tasks: dict[str, list[ShardTask]],
    fingerprint: str,
    resizing: Resizing,
    invalid_files: Sequence[str],
) -> dict[str, Any]:
    """Join the shards' indexes and return the manifest."""
    classes = splits[0].classes
    split_entries: dict[str, Any] = {}
    for split in splits:
        split_tasks = tasks[split.name]
        indexes = [np.load(task.index) for task in split_tasks]
        for number, index in enumerate(indexes):
            index["shard"] = number
        if not any(map(len, indexes)):
            raise EverstepError(
                f"there is no valid image in the split {split.name}",
                "Add a valid JPEG to it.",
            )
        index_of_split: Index = np.concatenate(indexes)
        name = f"{split.name}-index.npy"
        path = split_tasks[0].target.with_name(name)
        save(path, index_of_split)
        digest = digest_of_index(index_of_split, classes)
        split_entries[split.name] = {
            "samples": len(index_of_split),
            "fingerprint": describe(len(index_of_split), len(classes), digest),
            "files": [task.target.name for task in split_tasks],
            "bytes": [task.target.stat().st_size for task in split_tasks],
            "index": name,
            "index_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
    return {
        "format": FORMAT,
        "dataset": "imagefolder",
        "kind": KIND,
        "made_from": fingerprint,
        **asdict(resizing),
        "skipped": list(invalid_files),
        "classes": list(classes),
        "parts": split_entries,
    }


def _finish(partial: Path, output: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, rename the folder, and remove files that the manifest does not name."""
    kept_names = {MANIFEST_FILE}
    for split in manifest["parts"].values():
        kept_names |= {split["index"], *split["files"]}
    temporary = partial / f"{MANIFEST_FILE}.tmp"
    with temporary.open("w") as file:
        json.dump(manifest, file, indent=1)
    sync(temporary)
    temporary.rename(partial / MANIFEST_FILE)
    with contextlib.suppress(FileNotFoundError):
        output.rmdir()  # an empty folder may have been made beforehand
    partial.rename(output)
    sync(output.parent)
    # Last, so that no shard needs to be made again after an interruption before this point.
    for path in output.iterdir():
        if path.name not in kept_names:
            path.unlink()


def _check_can_be_renamed(output: Path) -> None:
    """Check that the finished folder can be renamed to `output`, before hours of work.

    Raises:
        EverstepError: `output` is the top of a mounted volume, or a link.
    """
    if output.is_symlink() or output.is_mount():
        kind = "a link" if output.is_symlink() else "the top of a mounted volume"
        raise EverstepError(
            f"{output} is {kind}, so that the finished folder cannot be renamed to it",
            f"Name a folder in it: --output {output / 'shards'}",
        )


def _existing_output(output: Path, fingerprint: str) -> str:
    """Return a description of existing output; "" if there is none."""
    manifest = read_manifest(output)
    if manifest is not None and manifest.get("made_from") == fingerprint:
        return _description(manifest, output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise EverstepError(
            f"{output} contains other data, or shards of other files or of another size",
            "Choose another --output, or remove it.",
        )
    return ""


def _description(manifest: dict[str, Any], output: Path) -> str:
    splits = manifest["parts"]
    counts = " and ".join(f"{splits[name]['samples']} {name}" for name in SPLITS)
    size = sum(sum(split["bytes"]) for split in splits.values())
    skipped = f", {len(manifest['skipped'])} invalid files skipped" if manifest["skipped"] else ""
    return f"{output} holds {counts} images in {len(manifest['classes'])} classes, {size / 1e6:.1f} MB{skipped}"


@contextlib.contextmanager
def _exclusive_lock(folder: Path) -> Iterator[None]:
    """Lock the folder against other writers; the lock ends with the process, even if it is killed."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EverstepError(
                f"another process writes to {folder}", "Wait until it has ended."
            ) from error
        yield


def _fingerprint(splits: Iterable[Split], resizing: Resizing) -> str:
    return _digest([asdict(resizing), *(digest_of(split.files) for split in splits)])


def _digest(content: list[Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _invalid_files(invalid_files: Sequence[str]) -> EverstepError:
    return EverstepError(
        f"{len(invalid_files)} file(s) are not valid JPEGs:{named_files(invalid_files)}",
        "Replace or remove them, or skip them with --skip-bad. Finished shards are kept.",
    )
