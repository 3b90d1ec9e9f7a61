"""Checkpoints that are whole or not there.

A checkpoint is a folder `step-XXXXXXXX` with `state.safetensors` and `manifest.json`. It is written
aside, synced, its manifest last, committed, and renamed; a reader trusts only a folder whose manifest
is there and whose file has the checksum that the manifest names. The newest good one wins. To commit
is one transaction of etcd's: it holds only while the writer's generation is the current one, so a
worker that was frozen and thawed commits nothing; and what it holds is for the next generation to
read, so that nobody goes on from less. A writer that died between the two has committed: whoever
restores puts the folder in place for it (`complete`).

Why safetensors and not torch.save: half the time, no code in the file, and readable without torch.
"""

import contextlib
import itertools
import json
import logging
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from safetensors import safe_open

from everstep.errors import EverstepError

log = logging.getLogger(__name__)

FORMAT = 1
STATE_FILE, MANIFEST_FILE = "state.safetensors", "manifest.json"
Tensors = dict[str, torch.Tensor]
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""By size in bytes: types that numpy has too, unlike bfloat16."""


class FencedError(Exception):
    """A commit was refused: another generation has taken over."""


class OtherRunError(EverstepError):
    """The folder holds good checkpoints, of a run with other settings; `found` is the newest."""

    def __init__(self, found: "Found", what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.found = found


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is of.

    Attributes:
        step: completed steps.
        generation: who wrote it.
        fingerprint: what must be equal for a run to go on from it: model, data set, seed, ...
        extra: small numbers and words of the training loop's own.
        checksum: CRC-32 of the state file.
        bytes: size of the state file.
    """

    step: int
    generation: int
    fingerprint: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    checksum: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Found:
    """A checkpoint that can be trusted."""

    path: Path
    manifest: Manifest

    def load(self) -> Tensors:
        """Its tensors, on the CPU."""
        with safe_open(str(self.path / STATE_FILE), framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping


@dataclass(frozen=True)
class Skipped:
    """A folder that could not be trusted, and why."""

    path: Path
    reason: str


def newest(
    folder: Path, fingerprint: Mapping[str, Any], on_skip: Callable[[Skipped], None] | None = None
) -> Found | None:
    """The newest good checkpoint of this run, or None where there is none.

    Raises:
        OtherRunError: there are good ones, but of a run with other settings.
    """
    others: list[Found] = []
    for path in _newest_first(folder):
        try:
            found = check(path)
        except ValueError as error:
            log.warning("checkpoint %s is skipped: %s", path, error)
            if on_skip:
                on_skip(Skipped(path, str(error)))
            continue
        if found.manifest.fingerprint == dict(fingerprint):
            return found
        others.append(found)
    if others:
        raise _other_run(others[0], fingerprint)
    return None


def check(path: Path) -> Found:
    """A checkpoint whose every byte is as it was written.

    Raises:
        ValueError: it is torn, foreign or damaged; says how.
    """
    try:
        text = (path / MANIFEST_FILE).read_text(encoding="utf-8")
        read = json.loads(text)
        if json.dumps(read, indent=1) != text:
            raise ValueError("its manifest is damaged: it is not as it was written")
        if read.pop("format", None) != FORMAT:
            raise ValueError("its manifest is of another format")
        if read.pop("seal", None) != _seal(read):
            raise ValueError("its manifest is damaged: the checksum differs")
        manifest = Manifest(**read)
    except FileNotFoundError as error:
        raise ValueError("it has no manifest") from error
    except (TypeError, AttributeError, OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"its manifest cannot be read: {error}") from error
    try:
        size, checksum = _checksum(path / STATE_FILE)
    except OSError as error:
        raise ValueError(f"its state cannot be read: {error}") from error
    if size != manifest.bytes:
        raise ValueError(f"its state has {size} bytes instead of {manifest.bytes}")
    if checksum != manifest.checksum:
        raise ValueError("its state is damaged: the checksum differs")
    return Found(path, manifest)


def write(
    folder: Path,
    state: Tensors,
    manifest: Manifest,
    *,
    commit: Callable[[Manifest], bool],
    keep: int = 3,
) -> Path:
    """Write one checkpoint durably and remove those older than the `keep` newest.

    Raises:
        FencedError: another generation has taken over. What was written aside stays until a later
            checkpoint: a "no" may have been an answer that was lost, after the commit.
        OSError: the disk is full or gone; older checkpoints stand.
    """
    final = folder / f"step-{manifest.step:08d}"
    aside = folder / f".{final.name}-{secrets.token_hex(4)}"
    try:
        _write_aside(aside, state, manifest)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise OSError(error.errno, error.strerror, str(folder)) from error
    if not commit(manifest):
        raise FencedError(
            f"generation {manifest.generation} may not commit it: another is current, or etcd does not answer"
        )
    _put_in_place(aside, final)
    _sync(folder)
    _retire(folder, manifest.step, keep)
    return final


def complete(folder: Path, generation: int, step: int) -> None:
    """Put the committed checkpoint of this generation and step in place, if its writer died before it could."""
    if (folder / f"step-{step:08d}").exists():
        return
    for aside in folder.glob(f".step-{step:08d}-*"):
        with contextlib.suppress(ValueError, OSError):
            if check(aside).manifest.generation == generation:
                _put_in_place(aside, folder / f"step-{step:08d}")
                _sync(folder)
                return


def _newest_first(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from sorted((p for p in folder.iterdir() if p.name.startswith("step-")), reverse=True)


def _write_aside(aside: Path, state: Tensors, manifest: Manifest) -> None:
    """All of a checkpoint durably, its manifest last."""
    aside.mkdir(parents=True)
    size, checksum = _write_state(aside / STATE_FILE, state)
    described = {**vars(manifest), "bytes": size, "checksum": checksum}
    sealed = {"format": FORMAT, "seal": _seal(described), **described}
    with (aside / MANIFEST_FILE).open("w", encoding="utf-8") as file:
        json.dump(sealed, file, indent=1)
        _sync_file(file)
    _sync(aside)


def _write_state(path: Path, state: Tensors) -> tuple[int, int]:
    """Write a safetensors file durably; its size and CRC-32.

    Why not safetensors' own `save_file`: it copies every tensor once more, does both this and the
    writing without letting another thread of Python run, so that a training step would stand still
    for as long as the disk takes, and its checksum would have to be read back.
    """
    ordered = sorted(state.items(), key=lambda item: -item[1].element_size())  # so all are aligned
    header, offset = {}, 0
    for name, tensor in ordered:
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    size = checksum = 0
    with path.open("wb") as file:
        parts: Iterable[bytes | memoryview] = (_bytes(tensor) for _, tensor in ordered)
        for part in itertools.chain((len(words).to_bytes(8, "little"), words), parts):
            file.write(part)
            size, checksum = size + len(part), zlib.crc32(part, checksum)
        _sync_file(file)
    return size, checksum


def _bytes(tensor: torch.Tensor) -> memoryview:
    """A tensor's values in the order of its dimensions, whatever its layout."""
    # numpy and not torch: torch would start processor threads of its own for this one
    whole = tensor.detach().view(WORDS[tensor.element_size()]).numpy()
    return np.ascontiguousarray(whole).data.cast("B") if whole.size else memoryview(b"")


def _put_in_place(aside: Path, final: Path) -> None:
    """Rename; an earlier folder of the same step is damaged or equal, and makes room."""
    if final.exists():
        shutil.rmtree(final)
    aside.rename(final)


def _retire(folder: Path, step: int, keep: int) -> None:
    """Remove all but the newest `keep`, and what killed writers left; never anything newer than `step`."""
    mine = f"step-{step:08d}"
    old = [path for path in _newest_first(folder) if path.name <= mine][keep:]
    left = [path for path in folder.glob(".step-*") if path.name[1:14] < mine]
    for path in (*old, *left):
        shutil.rmtree(path, ignore_errors=True)


def _checksum(path: Path) -> tuple[int, int]:
    """Size and CRC-32: finds every torn or flipped byte at 2 GB/s; nobody forges these files."""
    size = checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            size, checksum = size + len(block), zlib.crc32(block, checksum)
    return size, checksum


def _seal(described: Mapping[str, Any]) -> int:
    """CRC-32 of a manifest's content: a flipped bit in its step would repeat or skip samples."""
    return zlib.crc32(json.dumps(described, sort_keys=True).encode())


def _sync_file(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _other_run(found: Found, fingerprint: Mapping[str, Any]) -> OtherRunError:
    theirs = found.manifest.fingerprint
    names = sorted(set(theirs) | set(fingerprint))
    differs = [
        f"{name} is {theirs.get(name)!r} there and {fingerprint.get(name)!r} here"
        for name in names
        if theirs.get(name) != fingerprint.get(name)
    ]
    return OtherRunError(
        found,
        f"{found.path} is a checkpoint of another run: {'; '.join(differs)}",
        "Give this run another name (job.name), go back to the settings of the one that is there, or pass "
        "--fresh=WORD with a word of your own: the old run is then moved aside and training starts anew.",
    )
