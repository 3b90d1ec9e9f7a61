"""Checkpoints in the background: a snapshot into host memory, then the disk, neither of which training waits for.

Parameters and momentum do not change between one optimizer step and the next. So a snapshot is copied
while the next forward pass already runs, and training waits, if at all, before it changes them
(`taken`). The copy goes to memory that has been there since before the first step: fresh memory costs
a page fault every 4 KiB, several times the copy. Two snapshots are kept, so that one can be taken
while the other is on its way to a slow disk; of those that wait for the disk only the newest is of
use, and it replaces the one before it.

Why not a copy on write, by forking: a process with a GPU or with other threads cannot be forked.
"""

import contextlib
import logging
import mmap
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from everstep.elastic import checkpoint
from everstep.elastic.checkpoint import STATE_FILE, WORDS, Manifest, Tensors

log = logging.getLogger(__name__)

_ALIGNMENT = 64  # bytes: a cache line


class Snapshot:
    """Host memory for one whole state, and the copy of it.

    Each tensor keeps the layout of its original, channels-last for instance, so that taking the
    snapshot is a plain copy of memory.
    """

    def __init__(self, state: Mapping[str, torch.Tensor]) -> None:
        self._shape = _shape(state)
        sizes = [
            -(-t.numel() * t.element_size() // _ALIGNMENT) * _ALIGNMENT for t in state.values()
        ]
        on_gpu = any(tensor.is_cuda for tensor in state.values())
        memory = _pinned(sum(sizes)) if on_gpu else _touched(sum(sizes))
        self.tensors: Tensors = {}
        for (name, tensor), part in zip(state.items(), torch.split(memory, sizes), strict=True):
            # what a copy of it would have: a dense tensor's own strides, else contiguous ones
            strides = torch.empty_like(tensor, device="meta").stride()
            whole = part[: tensor.numel() * tensor.element_size()].view(tensor.dtype)
            self.tensors[name] = whole.as_strided(tensor.shape, strides)

    def fits(self, state: Mapping[str, torch.Tensor]) -> bool:
        """Whether it was made for a state of these names, types and shapes."""
        return self._shape == _shape(state)

    @torch.no_grad()
    def take(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy these tensors of a state that it fits."""
        for name, tensor in state.items():
            _copy(self.tensors[name], tensor)
        if any(tensor.is_cuda for tensor in state.values()):
            torch.cuda.current_stream().synchronize()


class Writer:
    """Writes checkpoints in the background, one at a time, from snapshots that no step can change.

    Args:
        folder: of the run's checkpoints.
        commit: asked just before a checkpoint takes its place; false forbids it.
        on_written: called from the writing thread with (manifest, seconds, bytes).
        on_failed: called from the writing thread with (step, reason); training goes on.
        keep: how many checkpoints stay.
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
        self._changed = threading.Condition()
        self._spare: list[Snapshot] = []
        self._waiting: tuple[Snapshot, Manifest] | None = None
        self._writing = False
        self._preparing: threading.Thread | None = None
        self._copying: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether an earlier checkpoint is still on its way."""
        copying = self._copying
        return self._writing or (copying is not None and copying.is_alive())

    def prepare(self, state: Mapping[str, torch.Tensor]) -> None:
        """Set memory for two snapshots aside, in the background; without it the first ones take longer."""
        if self._preparing is None:
            like = dict(state)
            self._preparing = threading.Thread(
                target=lambda: self._spare.extend((Snapshot(like), Snapshot(like))),
                name="everstep-snapshots",
                daemon=True,
            )
            self._preparing.start()

    def start(
        self,
        state: Mapping[str, torch.Tensor],
        manifest: Manifest,
        *,
        steady: Collection[str] = (),
    ) -> None:
        """Copy the state into host memory; it is written as soon as an earlier one is.

        Args:
            state: tensors by name.
            manifest: what it is of.
            steady: names of tensors that will not change before `taken` has returned; they are
                copied after this call. A GPU copies all of them at once: it takes a few milliseconds.
        """
        self.taken()
        snapshot = self._free(state)
        later = {n: t for n, t in state.items() if n in steady and not t.is_cuda}
        snapshot.take({n: t for n, t in state.items() if n not in later})
        with self._changed:  # so that no other thread waits for one that has not begun
            self._copying = threading.Thread(
                target=self._complete, args=(snapshot, later, manifest), name="everstep-snapshot"
            )
            self._copying.start()

    def taken(self) -> None:
        """Until the snapshot is complete: to be called before anything that was steady changes."""
        with self._changed:
            copying = self._copying
        if copying:
            copying.join()

    def wait(self) -> None:
        """Until nothing is being written; any thread may wait."""
        self.taken()
        with self._changed:
            self._changed.wait_for(lambda: not self._writing)

    def _complete(self, snapshot: Snapshot, later: Tensors, manifest: Manifest) -> None:
        """The copying thread."""
        snapshot.take(later)
        with self._changed:
            self._waiting = (snapshot, manifest)
            if not self._writing:
                self._writing = True
                threading.Thread(target=self._work, name="everstep-checkpoint").start()

    def _free(self, state: Mapping[str, torch.Tensor]) -> Snapshot:
        """A snapshot that nobody writes: a spare one, or the one that waits, which is out of date now."""
        if self._preparing is not None:
            self._preparing.join()
        found = None
        with self._changed:
            if self._waiting:
                found, _ = self._waiting
                self._waiting = None
            elif self._spare:
                found = self._spare.pop()
        return found if found and found.fits(state) else Snapshot(state)

    def _work(self) -> None:
        """The writing thread: until nothing waits."""
        while True:
            with self._changed:
                if self._waiting is None:
                    self._writing = False
                    self._changed.notify_all()
                    return
                snapshot, manifest = self._waiting
                self._waiting = None
            self._write(snapshot.tensors, manifest)
            with self._changed:
                self._spare.append(snapshot)

    def _write(self, state: Tensors, manifest: Manifest) -> None:
        began = time.monotonic()
        try:
            path = checkpoint.write(
                self._folder, state, manifest, commit=self._commit, keep=self._keep
            )
            size = (path / STATE_FILE).stat().st_size
        except Exception as error:  # a checkpoint that fails must not end the training
            log.error("checkpoint of step %d FAILED: %s; older ones stand", manifest.step, error)
            self._on_failed(manifest.step, str(error))
        else:
            self._on_written(manifest, time.monotonic() - began, size)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """By numpy where both lie alike: torch would wake all processors for every tensor, and wait for each."""
    if source.is_cuda or source.stride() != target.stride():
        target.copy_(source, non_blocking=True)
    else:
        np.copyto(_memory(target), _memory(source))


def _memory(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """What a dense tensor holds, in the order in which it lies."""
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return flat.view(WORDS[tensor.element_size()]).numpy()


def _shape(state: Mapping[str, torch.Tensor]) -> list[tuple[str, torch.Size, torch.dtype]]:
    return [(name, tensor.shape, tensor.dtype) for name, tensor in state.items()]


def _touched(size: int) -> torch.Tensor:
    """So many bytes that are really there, in large pages where the kernel has them; shape (size,)."""
    memory = mmap.mmap(-1, max(size, 1))
    with contextlib.suppress(OSError):  # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)[:size].zero_()


def _pinned(size: int) -> torch.Tensor:
    """Memory that a GPU copies into by itself; shape (size,)."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)
