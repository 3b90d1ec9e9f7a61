"""Checkpoints in the background: a snapshot is copied into host memory, then written to the store.

Parameters and momentum do not change between one optimizer step and the next. So a snapshot is copied
while the next forward pass already runs. If training waits for the copy, it waits just before the optimizer's
step (`wait_snapshot`). The copy uses memory that was allocated before the first step: new memory
costs a page fault every 4 KiB, which together take several times as long as the copy. There are two
snapshots, so that one can be taken while the other is written to a slow disk. A newer snapshot replaces
a snapshot that still waits for the disk.

Why not copy-on-write by forking: a process with a GPU or with other threads cannot be forked safely.
"""

import atexit
import contextlib
import logging
import mmap
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.checkpoint.state_format import INTEGER_TYPES, Tensors
from everstep.elastic.checkpoint.store import CheckpointStore

log = logging.getLogger(__name__)

STUCK_SECONDS = 60.0
"""Age of an unfinished checkpoint at which it is reported; it is reported again when the age has doubled."""

_ALIGNMENT = 64  # bytes: a cache line
_writers: "weakref.WeakSet[Writer]" = weakref.WeakSet()


class HostSnapshot:
    """Host memory for a copy of one whole state.

    Each tensor keeps the layout of its original, channels-last for instance, so that taking the
    snapshot is a plain memory copy.
    """

    def __init__(self, state: Mapping[str, torch.Tensor]) -> None:
        self._layout = _layout(state)
        sizes = [
            -(-t.numel() * t.element_size() // _ALIGNMENT) * _ALIGNMENT for t in state.values()
        ]
        on_gpu = any(tensor.is_cuda for tensor in state.values())
        memory = _pinned_memory(sum(sizes)) if on_gpu else _touched_memory(sum(sizes))
        self.tensors: Tensors = {}
        for (name, tensor), part in zip(state.items(), torch.split(memory, sizes), strict=True):
            # The strides of a copy: the same for a dense tensor, otherwise contiguous.
            strides = torch.empty_like(tensor, device="meta").stride()
            own_bytes = part[: tensor.numel() * tensor.element_size()].view(tensor.dtype)
            self.tensors[name] = own_bytes.as_strided(tensor.shape, strides)

    def fits(self, state: Mapping[str, torch.Tensor]) -> bool:
        """Return True if the memory was allocated for a state of these names, types and shapes."""
        return self._layout == _layout(state)

    @torch.no_grad()
    def take(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy these tensors of a matching state."""
        for name, tensor in state.items():
            _copy(self.tensors[name], tensor)
        if any(tensor.is_cuda for tensor in state.values()):
            torch.cuda.current_stream().synchronize()


class Writer:
    """Writer of checkpoints in the background, one at a time, from snapshots that no step can change.

    Args:
        store: store of the run's checkpoints.
        commit: called just before a checkpoint becomes visible; if it returns False, it stays invisible.
        on_written: called from the writing thread with (manifest, seconds, bytes).
        on_failed: called with (step, reason) when a checkpoint fails or takes very long; training continues.
        keep: number of checkpoints to keep.
        timeout_seconds: time without a response of the store after which a write counts as hung.

    Attributes:
        failure: error of the last finished write; None if it succeeded.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        commit: Callable[[Manifest], bool],
        on_written: Callable[[Manifest, float, int], None],
        on_failed: Callable[[int, str], None],
        keep: int = 3,
        timeout_seconds: float = 300.0,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._store, self._commit, self._keep = store, commit, keep
        self._on_written, self._on_failed = on_written, on_failed
        self._changed = threading.Condition()
        self._spare_snapshots: list[HostSnapshot] = []
        self._waiting_snapshot: tuple[HostSnapshot, Manifest] | None = None
        self._writing = False
        self._current_write: tuple[int, float] | None = None  # its step and start
        self._report_after = STUCK_SECONDS
        self.failure: Exception | None = None
        self._committing, self._committed_at = False, 0.0
        self._prepare_thread: threading.Thread | None = None
        self._copy_thread: threading.Thread | None = None
        _writers.add(self)

    def is_hung(self, earliest: float = 0.0) -> bool:
        """Return True if the store has not responded to a write for `timeout_seconds`.

        A call to a hung mount cannot be interrupted: the writing thread stays in it. The wait for the
        commit does not count, because it depends on etcd.

        Args:
            earliest: monotonic time in seconds; the time before it does not count.
        """
        current_write = self._current_write
        if current_write is None or self._committing:
            return False
        _, started_at = current_write
        responded_at = max(started_at, self._store.responded_at, self._committed_at, earliest)
        return time.monotonic() - responded_at >= self._timeout_seconds

    @property
    def busy(self) -> bool:
        """True if an earlier checkpoint is still being copied or written."""
        copy_thread = self._copy_thread
        return self._writing or (copy_thread is not None and copy_thread.is_alive())

    def prepare(self, state: Mapping[str, torch.Tensor]) -> None:
        """Allocate memory for two snapshots in the background; otherwise the first snapshots take longer."""
        if self._prepare_thread is None:
            layout = dict(state)
            self._prepare_thread = threading.Thread(
                target=lambda: self._spare_snapshots.extend(
                    (HostSnapshot(layout), HostSnapshot(layout))
                ),
                name="everstep-snapshots",
                daemon=True,
            )
            self._prepare_thread.start()

    def start(
        self,
        state: Mapping[str, torch.Tensor],
        manifest: Manifest,
        *,
        unchanging_names: Collection[str] = (),
    ) -> None:
        """Copy the state into host memory; it is written once the earlier checkpoint is complete.

        Args:
            state: tensors by name.
            manifest: manifest of the checkpoint.
            unchanging_names: names of tensors that will not change before `wait_snapshot` has returned. Those on the
                CPU are copied after this call. Tensors on a GPU are copied in this call, in a few milliseconds.
        """
        self.wait_snapshot()
        snapshot = self._reusable_snapshot(state)
        deferred_tensors = {
            n: t for n, t in state.items() if n in unchanging_names and not t.is_cuda
        }
        snapshot.take({n: t for n, t in state.items() if n not in deferred_tensors})
        # Under the lock, so that no other thread joins a thread that has not started.
        with self._changed:
            self._copy_thread = threading.Thread(
                target=self._complete,
                args=(snapshot, deferred_tensors, manifest),
                name="everstep-snapshot",
                daemon=True,
            )
            self._copy_thread.start()

    def wait_snapshot(self) -> None:
        """Wait until the snapshot is complete; call it before any tensor of `unchanging_names` changes."""
        with self._changed:
            copy_thread = self._copy_thread
        if copy_thread:
            copy_thread.join()

    def wait(self) -> bool:
        """Wait until no write is in progress; return False if one hangs. Any thread may wait."""
        self.wait_snapshot()
        started_at = time.monotonic()
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: not self._writing, self._poll_seconds):
                    return True
            self.report_if_stuck()
            if self.is_hung(started_at):
                return False

    @property
    def _poll_seconds(self) -> float:
        return min(STUCK_SECONDS, self._timeout_seconds) / 4

    def report_if_stuck(self) -> None:
        """Report a checkpoint whose write takes too long; training continues without newer ones."""
        current_write = self._current_write
        if current_write is None:
            return
        step, started_at = current_write
        seconds = time.monotonic() - started_at
        if seconds >= self._report_after:
            self._report_after *= 2
            reason = (
                f"it is unfinished after {seconds:.0f} s: the store or etcd hangs or is too slow"
            )
            log.error("checkpoint of step %d is STUCK: %s", step, reason)
            self._on_failed(step, reason)

    def _complete(
        self, snapshot: HostSnapshot, deferred_tensors: Tensors, manifest: Manifest
    ) -> None:
        """Complete a snapshot, in the copying thread."""
        snapshot.take(deferred_tensors)
        with self._changed:
            self._waiting_snapshot = (snapshot, manifest)
            if not self._writing:
                self._writing = True
                # A daemon thread, so that the process can end although its disk hangs.
                threading.Thread(target=self._work, name="everstep-checkpoint", daemon=True).start()

    def _reusable_snapshot(self, state: Mapping[str, torch.Tensor]) -> HostSnapshot:
        """Return a snapshot that is not being written: the waiting one, now out of date, a spare one, or a new one."""
        if self._prepare_thread is not None:
            self._prepare_thread.join()
        snapshot = None
        with self._changed:
            if self._waiting_snapshot:
                snapshot, _ = self._waiting_snapshot
                self._waiting_snapshot = None
            elif self._spare_snapshots:
                snapshot = self._spare_snapshots.pop()
        return snapshot if snapshot and snapshot.fits(state) else HostSnapshot(state)

    def _work(self) -> None:
        """Write waiting snapshots, in the writing thread, until there are none."""
        while True:
            with self._changed:
                if self._waiting_snapshot is None:
                    self._writing = False
                    self._changed.notify_all()
                    return
                snapshot, manifest = self._waiting_snapshot
                self._waiting_snapshot = None
            self._write(snapshot.tensors, manifest)
            with self._changed:
                self._spare_snapshots.append(snapshot)

    def _write(self, state: Tensors, manifest: Manifest) -> None:
        started_at = time.monotonic()
        self._current_write, self._report_after = (manifest.step, started_at), STUCK_SECONDS
        try:
            size = self._store.write(state, manifest, commit=self._timed_commit, keep=self._keep)
        except Exception as error:  # a checkpoint that fails must not end the training
            self.failure = error
            log.error(
                "checkpoint of step %d FAILED: %s; older ones remain valid", manifest.step, error
            )
            _report(manifest.step, self._on_failed, manifest.step, str(error))
        else:
            self.failure = None
            seconds = time.monotonic() - started_at
            _report(manifest.step, self._on_written, manifest, seconds, size)
        finally:
            self._current_write = None

    def _timed_commit(self, manifest: Manifest) -> bool:
        self._committing = True
        try:
            return self._commit(manifest)
        finally:
            self._committed_at, self._committing = time.monotonic(), False


def _report(step: int, callback: Callable[..., object], *arguments: object) -> None:
    """Call a callback in the writing thread, which must survive the callback's errors to write later checkpoints."""
    try:
        callback(*arguments)
    except Exception as error:
        log.error("checkpoint of step %d: its callback failed: %s", step, error)


@atexit.register
def _finish_writes() -> None:
    """Complete the checkpoints in progress before the process ends, unless their store hangs."""
    for writer in list(_writers):
        writer.wait()


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy with numpy if the layouts are equal: torch would use all CPUs for every tensor."""
    if source.is_cuda or source.stride() != target.stride():
        target.copy_(source, non_blocking=True)
    else:
        np.copyto(_memory(target), _memory(source))


def _memory(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a dense tensor's values in memory order."""
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return flat.view(INTEGER_TYPES[tensor.element_size()]).numpy()


def _layout(state: Mapping[str, torch.Tensor]) -> list[tuple[str, torch.Size, torch.dtype]]:
    return [(name, tensor.shape, tensor.dtype) for name, tensor in state.items()]


def _touched_memory(size: int) -> torch.Tensor:
    """Return memory whose pages are already allocated, in huge pages if available; shape (size,)."""
    memory = mmap.mmap(-1, max(size, 1))
    with contextlib.suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)[:size].zero_()


def _pinned_memory(size: int) -> torch.Tensor:
    """Return page-locked memory that a GPU can write to directly; shape (size,)."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)
