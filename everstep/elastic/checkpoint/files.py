"""Checkpoint files that are complete or absent.

A checkpoint is a folder `step-XXXXXXXX` with `state.safetensors` and `manifest.json`. The files are written
to a staging folder and synced, the manifest last. Then the checkpoint is committed, and the folder is renamed.
A reader trusts only a folder whose state file has the size and checksum in its manifest. A commit is one
transaction of etcd: it succeeds only while the writer's generation is current, so a worker that was frozen and
thawed cannot commit. The next generation reads the newest commit, so that no worker continues from an older
state (`restore`). If a writer died between the commit and the rename, the restoring worker renames
the folder (`place_committed`).

A model in shards has a state file for each shard; `sharded_store` has their format.

Why safetensors and not torch.save: half the time, no code in the file, and readable without torch.
"""

import contextlib
import errno
import json
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import safe_open

from everstep.elastic.checkpoint.disk import DISK, Disk
from everstep.elastic.checkpoint.state_format import EncodedState, Tensors

FORMAT = 1
PLACE_ATTEMPTS = 5  # attempts to rename a folder while other processes do the same
SYNC_BYTES = 256 << 20
"""Maximum number of bytes between two syncs of a state file.

A sync shows no progress until it ends. With more bytes, storage that is only slow would count as hung: this many need
a minute at 4 MiB/s.
"""
STATE_FILE, MANIFEST_FILE = "state.safetensors", "manifest.json"
_STEP = re.compile(r"step-(\d+)(-|$)")


class FencedError(Exception):
    """A commit was refused, or etcd did not respond to it."""


@dataclass(frozen=True)
class ShardFile:
    """The file of one shard of a state.

    Attributes:
        bytes: size of the file.
        checksum: CRC-32 of the file.
        extra: small values of the worker with this shard, as in a manifest.
    """

    bytes: int
    checksum: int
    extra: Mapping[str, Any]


@dataclass(frozen=True)
class Manifest:
    """Description of a checkpoint.

    Attributes:
        step: completed steps.
        generation: the writer's generation.
        fingerprint: settings that must be equal to continue from it: model, data set, seed, ...
        extra: small values of the training loop.
        checksum: CRC-32 of the state file; 0 if the state is in shards.
        bytes: size of the state file, or of all files of a state in shards.
        snapshot: name of the snapshot, equal for all of its shards; empty if the state is not in shards.
        shards: files of the shards, in order; none if the state is not in shards.
    """

    step: int
    generation: int
    fingerprint: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    checksum: int = 0
    bytes: int = 0
    snapshot: str = ""
    shards: tuple[ShardFile, ...] = ()


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        path: its folder.
        manifest: its manifest.
        state_file: name of the file with this worker's tensors.
    """

    path: Path
    manifest: Manifest
    state_file: str = STATE_FILE

    @property
    def location(self) -> str:
        """Its path, for messages."""
        return str(self.path)

    def load(self) -> Tensors:
        """Return its tensors, on the CPU."""
        with safe_open(str(self.path / self.state_file), framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping


def check(path: Path, disk: Disk = DISK) -> Checkpoint:
    """Verify every byte of a checkpoint, and return it.

    Raises:
        ValueError: the checkpoint is torn, damaged, misnamed or of another format; the message has the details.
    """
    manifest = read_manifest(path, disk)
    if not manifest.shards:
        check_file(path / STATE_FILE, "state", manifest, disk)
    for number, shard in enumerate(manifest.shards):
        count = len(manifest.shards)
        check_file(path / shard_file(number, count), shard_label(number, count), shard, disk)
    if path.name.startswith("step-") and path.name != folder_name(manifest.step):
        raise ValueError(f"its folder is not named after its step, {manifest.step}")
    return Checkpoint(path, manifest)


def check_file(path: Path, label: str, expected: Manifest | ShardFile, disk: Disk) -> None:
    """Verify every byte of a state file.

    Raises:
        ValueError: the file is missing or damaged; the message calls it `label`.
    """
    try:
        size, checksum = _checksum(path, disk)
    except OSError as error:
        raise ValueError(f"its {label} cannot be read: {error}") from error
    if size != expected.bytes:
        raise ValueError(f"its {label} has {size} bytes instead of {expected.bytes}")
    if checksum != expected.checksum:
        raise ValueError(f"its {label} is damaged: the checksum differs")


def shard_file(number: int, count: int) -> str:
    """Return the name of a shard's file."""
    return f"state-{number}-of-{count}.safetensors"


def shard_label(number: int, count: int) -> str:
    """Return the words for a shard in messages."""
    return f"shard {number} of {count}"


def read_manifest(path: Path, disk: Disk) -> Manifest:
    """Return the manifest of a checkpoint's folder.

    Raises:
        ValueError: there is no manifest, or it is damaged or of another format.
    """
    try:
        return parse_manifest(b"".join(disk.read(path / MANIFEST_FILE)))
    except FileNotFoundError as error:
        raise ValueError("it has no manifest") from error
    except OSError as error:
        raise ValueError(f"its manifest cannot be read: {error}") from error


def parse_manifest(content: bytes) -> Manifest:
    """Return the manifest in the content of a file.

    Raises:
        ValueError: the content is damaged, or has another format.
    """
    try:
        return _decode_manifest(content)
    except (TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"its manifest cannot be read: {error}") from error


def _decode_manifest(content: bytes) -> Manifest:
    text = content.decode()
    fields = json.loads(text)
    if json.dumps(fields, indent=1) != text:
        raise ValueError("its manifest is damaged: its text was changed")
    if fields.pop("format", None) != FORMAT:
        raise ValueError("its manifest has another format")
    if fields.pop("seal", None) != _seal(fields):
        raise ValueError("its manifest is damaged: the checksum differs")
    shards = tuple(ShardFile(**shard) for shard in fields.pop("shards", ()))
    return Manifest(**fields, shards=shards)


def folder_name(step: int) -> str:
    """Return the name of a checkpoint's folder."""
    return f"step-{step:08d}"


def step_of(name: str) -> int:
    """Return the step in a checkpoint's name; -1 if there is none."""
    match = _STEP.match(name)
    return int(match[1]) if match else -1


def newest_first(names: Iterable[str]) -> list[str]:
    """Return the names of checkpoints by step, the newest first; as text, 99,999,999 would come before 100,000,000."""
    return sorted(names, key=lambda name: (step_of(name), name), reverse=True)


def write(
    folder: Path,
    state: Tensors,
    manifest: Manifest,
    *,
    commit: Callable[[Manifest], bool],
    keep: int = 3,
    disk: Disk = DISK,
) -> Path:
    """Write one checkpoint durably, remove all but the `keep` newest, and return its path.

    Raises:
        FencedError: `commit` has refused it. The staging folder stays until a later
            checkpoint, because the response to a successful commit may have been lost.
        OSError: the disk is full or gone; older checkpoints remain.
        EverstepError: a tensor has a type that cannot be saved.
    """
    staging = new_staging_folder(folder, manifest.step)
    try:
        _write_staging(staging, state, manifest, disk)
    except Exception as error:
        disk.remove(staging)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(folder)) from error
        raise
    return publish(Checkpoint(staging, manifest), commit=commit, keep=keep, disk=disk)


def publish(
    staged_checkpoint: Checkpoint,
    *,
    commit: Callable[[Manifest], bool],
    keep: int,
    disk: Disk,
) -> Path:
    """Commit a durable checkpoint, rename it, remove all but the `keep` newest, and return its path.

    Raises:
        FencedError: `commit` has refused it; its folder stays.
        OSError: the disk is gone.
    """
    manifest = staged_checkpoint.manifest
    if not commit(manifest):
        raise fenced_error(manifest)
    final = put_in_place(staged_checkpoint, disk)
    _retire(final.parent, manifest.step, keep, disk)
    return final


def fenced_error(manifest: Manifest) -> FencedError:
    """Return the error for a refused commit."""
    return FencedError(
        f"its commit by generation {manifest.generation} was refused: another generation is current, a later "
        "step is committed, or etcd did not respond; the next checkpoint is committed as usual"
    )


def new_staging_folder(folder: Path, step: int) -> Path:
    """Return a path that no other writer uses; `place_committed` finds it by its step."""
    return folder / f".{folder_name(step)}-{secrets.token_hex(4)}"


def place_committed(folder: Path, generation: int, step: int, disk: Disk = DISK) -> None:
    """Rename the committed checkpoint of this generation and step if its writer died before the rename.

    A folder of that step is replaced if it is damaged or of an earlier generation.
    """
    prefix = f".{folder_name(step)}-"
    staged_folders = [folder / name for name in disk.names(folder) if name.startswith(prefix)]
    if not staged_folders or _is_valid(folder / folder_name(step), generation, disk):
        return
    for staging in staged_folders:
        with contextlib.suppress(ValueError, OSError):
            staged_checkpoint = check(staging, disk)
            if staged_checkpoint.manifest.generation == generation:
                put_in_place(staged_checkpoint, disk)
                return


def put_in_place(staged_checkpoint: Checkpoint, disk: Disk = DISK) -> Path:
    """Rename a committed checkpoint's folder durably; return its path.

    Another process may do the same at any moment: this one may have been suspended since its commit. So
    a valid folder of the same step is never removed. An invalid folder is removed only after it was
    moved away and checked again.

    Raises:
        OSError: the disk failed, or the folder was removed and not replaced.
    """
    final = staged_checkpoint.path.parent / folder_name(staged_checkpoint.manifest.step)
    replaced_folders = list[Path]()  # removed only once the new name is durable
    for _ in range(PLACE_ATTEMPTS):
        if _is_valid(final, staged_checkpoint.manifest.generation, disk):
            replaced_folders.append(staged_checkpoint.path)
            break
        if disk.exists(final):
            replaced_folders += _move_away(final, staged_checkpoint.manifest, disk)
        if _rename(staged_checkpoint.path, final, disk):
            break
    else:
        raise OSError(
            errno.ESTALE, "it was removed or replaced in the meantime", str(staged_checkpoint.path)
        )
    disk.sync_folder(final.parent)
    for path in replaced_folders:
        disk.remove(path)
    return final


def _move_away(final: Path, manifest: Manifest, disk: Disk) -> list[Path]:
    """Move an invalid folder away and return its new path; put it back if it has become valid in the meantime."""
    staging = new_staging_folder(final.parent, manifest.step)
    if not _rename(final, staging, disk):
        return []
    if _is_valid(staging, manifest.generation, disk):
        _rename(staging, final, disk)
        return []
    return [staging]


def _rename(old: Path, new: Path, disk: Disk) -> bool:
    """Rename a folder; return False if another process was faster."""
    try:
        disk.rename(old, new)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        if isinstance(error, FileNotFoundError) and disk.exists(old.parent):
            return False
        raise
    return True


def _is_valid(path: Path, generation: int, disk: Disk) -> bool:
    """Return True if a folder is a valid checkpoint of this generation or a later one."""
    with contextlib.suppress(ValueError):
        return check(path, disk).manifest.generation >= generation
    return False


def _write_staging(staging: Path, state: Tensors, manifest: Manifest, disk: Disk) -> None:
    """Write the files of a checkpoint durably, its manifest last, then the name of its folder."""
    disk.make_folder(staging)
    size, checksum = write_state(staging / STATE_FILE, state, disk)
    write_manifest(staging, manifest, size, checksum, disk)


def write_manifest(staging: Path, manifest: Manifest, size: int, checksum: int, disk: Disk) -> None:
    """Write the manifest of durable state files durably, then the names in the folder and the folder's own."""
    with disk.create(staging / MANIFEST_FILE) as file:
        file.write(manifest_content(manifest, size, checksum))
        file.sync()
    disk.sync_folder(staging)
    disk.sync_folder(staging.parent)
    disk.sync_parents(staging.parent)


def write_state(path: Path, state: Tensors, disk: Disk) -> tuple[int, int]:
    """Write a state durably; return its size and CRC-32."""
    size = checksum = unsynced_bytes = 0
    with disk.create(path) as file:
        for piece in _pieces(EncodedState(state)):
            if unsynced_bytes + len(piece) > SYNC_BYTES:
                file.sync()
                unsynced_bytes = 0
            file.write(piece)
            unsynced_bytes += len(piece)
            size, checksum = size + len(piece), zlib.crc32(piece, checksum)
        file.sync()
    return size, checksum


def _pieces(parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of these parts in pieces of at most `SYNC_BYTES`."""
    for part in parts:
        for start in range(0, len(part), SYNC_BYTES):
            yield part[start : start + SYNC_BYTES]


def _retire(folder: Path, step: int, keep: int, disk: Disk) -> None:
    """Remove all but the newest `keep` checkpoints, and the staging folders of dead writers.

    Nothing newer than `step` is removed.
    """
    names = newest_first(disk.names(folder))
    old_names = [name for name in names if 0 <= step_of(name) <= step][keep:]
    abandoned_names = [
        name for name in names if name.startswith(".") and 0 <= step_of(name[1:]) < step
    ]
    for name in (*old_names, *abandoned_names):
        disk.remove(folder / name)


def _checksum(path: Path, disk: Disk) -> tuple[int, int]:
    """Return a file's size and its CRC-32, which detects torn writes and flipped bits at 2 GB/s, but not forgery."""
    size = checksum = 0
    for block in disk.read(path):
        size, checksum = size + len(block), zlib.crc32(block, checksum)
    return size, checksum


def manifest_content(manifest: Manifest, size: int, checksum: int) -> bytes:
    """Return the content of a manifest's file, for a state of this size and CRC-32."""
    fields = {**asdict(manifest), "bytes": size, "checksum": checksum}
    if not manifest.snapshot:  # a state that is not in shards
        del fields["snapshot"], fields["shards"]
    return json.dumps({"format": FORMAT, "seal": _seal(fields), **fields}, indent=1).encode()


def _seal(fields: Mapping[str, Any]) -> int:
    """Return the CRC-32 of a manifest's fields: a flipped bit in its step would repeat or skip samples."""
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())
