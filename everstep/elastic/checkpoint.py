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
import errno
import json
import logging
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from everstep.errors import EverstepError

log = logging.getLogger(__name__)

FORMAT = 1
STATE_FILE, MANIFEST_FILE = "state.safetensors", "manifest.json"
Tensors = dict[str, torch.Tensor]


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
        read = json.loads((path / MANIFEST_FILE).read_text())
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
        FencedError: another generation has taken over; nothing is left behind.
        OSError: the disk is full or gone; nothing is left behind, older checkpoints stand.
    """
    final = folder / f"step-{manifest.step:08d}"
    aside = folder / f".{final.name}-{os.getpid()}-{threading.get_ident()}"
    try:
        aside.mkdir(parents=True)
        save_file(state, aside / STATE_FILE)
        size, checksum = _checksum(aside / STATE_FILE)
        _sync(aside / STATE_FILE)
        described = {**vars(manifest), "bytes": size, "checksum": checksum}
        sealed = {"format": FORMAT, "seal": _seal(described), **described}
        (aside / MANIFEST_FILE).write_text(json.dumps(sealed, indent=1))
        _sync(aside / MANIFEST_FILE)
        _sync(aside)
        if not commit(manifest):
            raise FencedError(f"generation {manifest.generation} is not the current one any more")
        _put_in_place(aside, final)
        _sync(folder)
    except Exception as error:
        shutil.rmtree(aside, ignore_errors=True)
        if "No space left" in str(error) or "os error 28" in str(
            error
        ):  # safetensors' own error type
            raise OSError(errno.ENOSPC, "no space left for a checkpoint", str(folder)) from error
        raise
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


class Writer:
    """Writes checkpoints in the background, one at a time, from snapshots that no step can change.

    Args:
        folder: of the run's checkpoints.
        commit: asked just before a checkpoint takes its place; false forbids it.
        on_written: called from the writing thread with (manifest, seconds, bytes).
        on_failed: called from the writing thread with (step, reason); training goes on.
    """

    def __init__(
        self,
        folder: Path,
        *,
        commit: Callable[[Manifest], bool],
        on_written: Callable[[Manifest, float, int], None],
        on_failed: Callable[[int, str], None],
        keep: int = 3,
    ) -> None:
        self._folder, self._commit, self._keep = folder, commit, keep
        self._on_written, self._on_failed = on_written, on_failed
        self._buffers: Tensors = {}
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether an earlier checkpoint is still being written."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, state: Mapping[str, torch.Tensor], manifest: Manifest) -> None:
        """Copy the state into host memory and write it in the background; waits for an earlier write."""
        self.wait()
        self._snapshot(state)
        self._thread = threading.Thread(
            target=self._write, args=(dict(self._buffers), manifest), name="everstep-checkpoint"
        )
        self._thread.start()

    def wait(self) -> None:
        """Until nothing is being written; any thread may wait."""
        if thread := self._thread:
            thread.join()

    def _snapshot(self, state: Mapping[str, torch.Tensor]) -> None:
        for name, tensor in state.items():
            kept = self._buffers.get(name)
            if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
                # contiguous: safetensors stores no strides
                self._buffers[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            self._buffers[name].copy_(tensor.detach())
        for name in self._buffers.keys() - state.keys():
            del self._buffers[name]

    def _write(self, state: Tensors, manifest: Manifest) -> None:
        began = time.monotonic()
        try:
            path = write(self._folder, state, manifest, commit=self._commit, keep=self._keep)
            size = (path / STATE_FILE).stat().st_size
        except Exception as error:  # a checkpoint that fails must not end the training
            log.error("checkpoint of step %d FAILED: %s; older ones stand", manifest.step, error)
            self._on_failed(manifest.step, str(error))
        else:
            self._on_written(manifest, time.monotonic() - began, size)


def _newest_first(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from sorted((p for p in folder.iterdir() if p.name.startswith("step-")), reverse=True)


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
