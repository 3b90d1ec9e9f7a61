"""The state of a run on one worker, which the next step depends on; groups copy it and save it."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import nn

from everstep.elastic.accounting.journal import Journal
from everstep.elastic.checkpoint.bucket import BucketError
from everstep.elastic.checkpoint.store import StoredCheckpoint
from everstep.elastic.data_order.leftover import Span
from everstep.elastic.data_order.sample_ledger import SampleLedger
from everstep.elastic.data_order.sampler import SampleOrder
from everstep.elastic.recovery.checksums import checksums
from everstep.elastic.recovery.copying import MAX_COMPUTED_SPANS
from everstep.elastic.recovery.restore_watch import watch_storage
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.recovery.worker_process import end_process
from everstep.elastic.training.checkpoints import Checkpoints
from everstep.elastic.training.encoding import Tensors, decode, encode
from everstep.elastic.training.in_flight import InFlight
from everstep.elastic.training.optimizer_state import OptimizerState
from everstep.elastic.training.options import RunHooks
from everstep.elastic.training.resume import MODEL_PREFIX, check_shapes, check_unchanged_shapes
from everstep.elastic.transport.exact_reducer import ExactReducer
from everstep.elastic.transport.group import COLLECTIVE_SECONDS
from everstep.elastic.transport.local_tensors import local_tensor
from everstep.elastic.transport.reducer import GradientReducer
from everstep.elastic.transport.stalls import Stall
from everstep.errors import EverstepError

RANGES = "exact.ranges"  # the one tensor that only mode `exact` has
COMPILED = "_orig_mod."  # prefix of the tensor names of a compiled module
MIN_TEXT_BYTES = 1 << 14
BYTES_PER_VALUE = 64  # JSON size of a value of the optimizer state, with its name
RESERVED_KEYS = ("evaluated", "is_stopped", "skipped_steps", "samples", "digest", "state")
"""Keys of a manifest's `extra` that are not metrics."""


class Stateful(Protocol):
    """An object whose state belongs to the run: a scheduler, a gradient scaler, averaged weights."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state; its tensors have the same names, shapes and types at all times."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Restore a state."""


class RunState:
    """The `TrainingState` of a run.

    Args:
        model: model on its device.
        optimizer: optimizer of its parameters.
        states: other objects whose state belongs to the run, by name.
        reducer: reducer with the gradients of the step in flight.
        checkpoints: checkpoints of the run.
        journal: journal of this worker.
        hooks: callbacks of the program.
        identity: everything that must be equal on all workers, by name, except the tensors.
        order: order of the samples.
        totals: number of steps and of epochs of the run.

    Raises:
        EverstepError: the `state_dict` of the model returns copies, or the optimizer or another state is invalid.

    Attributes:
        step: completed steps.
        evaluated_epochs: number of completed epochs whose callbacks have run.
        is_stopped: whether the program has ended the run with the last step, before all epochs are trained.
        skipped_steps: number of consecutive steps, up to the last one, whose update was skipped.
        metrics: numbers that the program keeps with the state.
        ledger: ledger of the samples that the state was trained on.
        in_flight: units of the next step that are computed.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        states: Mapping[str, Stateful],
        reducer: GradientReducer | ExactReducer,
        *,
        checkpoints: Checkpoints,
        journal: Journal,
        hooks: RunHooks,
        identity: Mapping[str, str],
        order: SampleOrder,
        totals: tuple[int, int],
    ) -> None:
        self.model, self.optimizer, self.reducer = model, optimizer, reducer
        _check_state_dict(model)
        self._parameters = {plain_name(name): p for name, p in model.named_parameters()}
        names = {parameter: name for name, parameter in self._parameters.items()}
        self.optimizer_state = OptimizerState(optimizer, names)
        self._states, self.checkpoints, self._journal = dict(states), checkpoints, journal
        self._hooks, self._identity = hooks, identity
        self._order, self._totals = order, totals
        self.device = next(model.parameters()).device
        self.step = self.evaluated_epochs = self.skipped_steps = 0
        self.is_stopped = False
        self.metrics: dict[str, float] = {}
        self.ledger = SampleLedger()
        self.in_flight = InFlight()
        text_bytes = len(self._text({})) + BYTES_PER_VALUE * self.optimizer_state.value_count
        self._text_bytes = max(MIN_TEXT_BYTES, 4 * text_bytes)
        tensors = self.all_tensors()
        checkpoints.check_types(tensors)
        self._shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self._shared: Tensors = {}
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._text_buffer = torch.empty(0)
        self._initial_sums: tuple[int, ...] = ()
        self._restored_generation = 0

    def begin(self) -> None:
        """Record that the state is now the program's initial state; call it before the first group."""
        self._initial_sums = checksums(self.shared_tensors())

    # --- copying by the group: see everstep.elastic.recovery.worker.TrainingState ---

    def identity(self) -> dict[str, str]:
        """Return texts that must be equal on all workers, by name."""
        steps, epochs = self._totals
        return {
            **self._identity,
            "number of steps": str(steps),
            "number of epochs": str(epochs),
            "tensors": _describe(self.all_tensors()),
            "bytes of scalar state": str(self._text_bytes),
        }

    def shared_tensors(self) -> Sequence[torch.Tensor]:
        """Return every tensor of the state, and the non-tensor state in one more tensor; all are writable."""
        self.checkpoints.wait_snapshot()
        self._shared = self.all_tensors()
        check_unchanged_shapes(self._shared, self._shapes)
        self._copies = [(t, _sendable(t, self.device)) for t in self._shared.values()]
        self._text_buffer = self._pack(self._text({}))
        return [*(sendable for _, sendable in self._copies), self._text_buffer]

    @torch.no_grad()
    def adopt(self, step: int, computed_units: tuple[Span, ...], *, keeps_units: bool) -> None:
        """Record that the tensors have the values after `step` steps, with these units of the next step computed."""
        self.in_flight = replace(
            self.in_flight if keeps_units else InFlight(),
            group_spans=computed_units,
            spans_to_recompute=(),
        )
        if not keeps_units:
            for tensor, sendable in self._copies:
                if sendable is not tensor:
                    tensor.copy_(sendable)
            # The tensors that were received: a second call of a state_dict that returns copies has the old values.
            self._load_text(_unpack(self._text_buffer), self._shared)
        self.step = step
        self._shared, self._copies = {}, []

    def computed_units(self) -> tuple[Span, ...]:
        """Return this worker's units of the step in flight; discard them if they have too many spans for a report."""
        if len(self.in_flight.own_spans) > MAX_COMPUTED_SPANS:
            self.in_flight = InFlight()
        return self.in_flight.own_spans

    def roll_back(self) -> bool:
        """Undo the changes of a step in flight; return True if its gradients are kept."""
        if not self.reducer.roll_back():
            self.in_flight = InFlight()
        return bool(self.in_flight.own_spans)

    def save_detached(self) -> None:
        """Start a checkpoint outside a group: this node leaves, and no group takes its state."""
        reason = "its node leaves, and there is no group"
        self._journal.note("leave", step=self.step, reason=reason)
        self.save()

    def flush(self) -> None:
        """Return once no write is in progress; called from a separate thread."""
        self.checkpoints.wait()

    def note_stall(self, stall: Stall) -> None:
        """Record a long wait for other workers, or its end; called from a separate thread."""
        self._journal.note(
            "stall_over" if stall.is_over else "stall",
            step=self.step + 1,
            began_at=round(stall.began_at, 4),
            seconds=round(stall.seconds, 2),
            nodes=sorted(set(stall.late_nodes.values())),
            ranks=sorted(stall.late_nodes),
            lost=stall.is_lost,
        )

    def watch_reading(self, on_hung: Callable[[str], object]) -> AbstractContextManager[None]:
        """Return a context manager for `restore`: `on_hung` is called with a reason if the storage hangs."""
        checkpoints = self.checkpoints
        return watch_storage(checkpoints.responded_at, checkpoints.timeout_seconds, on_hung)

    def watch_completion(self, on_hung: Callable[[str], object]) -> AbstractContextManager[None]:
        """Return a context manager for the end of the run: `on_hung` is called with a reason if it hangs.

        The writer itself notices storage that hangs, so this limit is longer: it is for all that follows the last
        checkpoint, such as the program's own callback.
        """
        checkpoints = self.checkpoints
        seconds = checkpoints.timeout_seconds + COLLECTIVE_SECONDS
        return watch_storage(checkpoints.responded_at, seconds, on_hung, "completing the run")

    def restore(self, committed: StepProgress) -> int:
        """Load the newest valid checkpoint, or stay at the initial state; return the completed steps.

        If the run is complete already, only its metrics are loaded.
        """
        self.in_flight, self._restored_generation = InFlight(), 0
        if self._is_complete():
            return self.step
        try:
            self._restore_from_storage(committed)
        except BucketError as error:  # another node may reach the bucket
            end_process(f"the checkpoints cannot be read: {error}")
        return self.step

    def restored_generation(self) -> int:
        """Return the generation of the checkpoint that `restore` has loaded; 0 if it has loaded none."""
        return self._restored_generation

    def restore_shard(self, step: int, generation: int) -> None:
        """Load this worker's shard of a checkpoint that another worker of the node has restored."""
        self.in_flight = InFlight()
        if self._is_complete():
            return
        if not generation:
            self._check_initial()
            return
        try:
            self._load(self.checkpoints.own_shard(step, generation))
        except ValueError as error:  # it was intact a moment ago: the next attempt chooses again
            end_process(f"the shard of the checkpoint of step {step} cannot be loaded: {error}")

    def _is_complete(self) -> bool:
        """Return True if the run is complete already; then load its metrics."""
        if (result := self._hooks.open()) is None:
            return False
        self.step, self.evaluated_epochs = self._totals
        self.metrics.update(result)
        return True

    def _restore_from_storage(self, committed: StepProgress) -> None:
        self.checkpoints.open(self._order.samples)
        if checkpoint := self.checkpoints.newest_checkpoint(committed):
            self._load(checkpoint)
            self._restored_generation = checkpoint.manifest.generation
        else:
            self._check_initial()
        self.checkpoints.note_samples(self.step, self._order.samples)

    def _check_initial(self) -> None:
        """End this process if its state is not the initial one, which is needed without a checkpoint."""
        if checksums(self.shared_tensors()) != self._initial_sums:
            end_process(  # only a new process has it
                "there is no checkpoint, and an unfinished copy has changed the initial state"
            )

    # --- tensors and non-tensor state ---

    def tensors(self) -> Tensors:
        """Return the model's parameters and buffers, the optimizer's tensors and, in `exact`, the ranges, by name."""
        state = {
            f"{MODEL_PREFIX}{plain_name(name)}": local_tensor(tensor)
            for name, tensor in self.model.state_dict().items()
        }
        state.update(self.optimizer_state.tensors())
        if isinstance(self.reducer, ExactReducer):
            state[RANGES] = self.reducer.ranges
        return state

    def all_tensors(self) -> Tensors:
        """Return all tensors of a checkpoint by name, including tensors of the other states."""
        tensors = self.tensors()
        self._non_tensor_state(tensors)
        return tensors

    def _non_tensor_state(self, tensors: Tensors) -> dict[str, Any]:
        """Return hyperparameters and the other states as JSON; put their tensors into `tensors`."""
        return {
            "optimizer": self.optimizer_state.non_tensor_state(tensors),
            **{name: encode(s.state_dict(), name, tensors) for name, s in self._states.items()},
        }

    def metric_values(self) -> dict[str, float]:
        """Return the metrics as numbers; users also write tensors and numpy's numbers.

        Raises:
            EverstepError: a metric has a reserved name, or is not one number.
        """
        if reserved := [name for name in self.metrics if name in RESERVED_KEYS]:
            raise EverstepError(
                f"a metric cannot be named {reserved[0]!r}", "Choose another name in Run.metrics."
            )
        return {name: _number(name, value) for name, value in self.metrics.items()}

    def _extra(self, tensors: Tensors) -> dict[str, Any]:
        """Return everything in the state but its tensors, as a manifest contains it."""
        return {
            "evaluated": self.evaluated_epochs,
            **self.metric_values(),
            "is_stopped": self.is_stopped,
            "skipped_steps": self.skipped_steps,
            "samples": self.ledger.samples,
            "digest": f"{self.ledger.digest:016x}",
            "state": self._non_tensor_state(tensors),
        }

    def non_tensor_state(self) -> bytes:
        """Return everything in the state but its tensors, for `restore_non_tensor_state`."""
        return self._text({})

    def restore_non_tensor_state(self, text: bytes) -> None:
        """Undo changes of metrics and other values by callbacks that have to run again."""
        self._load_text(text, self.all_tensors())

    def _text(self, tensors: Tensors) -> bytes:
        return json.dumps(self._extra(tensors), sort_keys=True).encode()

    def _load_text(self, text: bytes, tensors: Tensors) -> None:
        self._load_extra(json.loads(text), tensors)

    def _load_extra(self, extra: Mapping[str, Any], tensors: Tensors) -> None:
        """Restore the non-tensor state, and make the optimizer and the other states use these tensors."""
        self.evaluated_epochs = int(extra["evaluated"])
        self.is_stopped = bool(extra.get("is_stopped", False))  # not in older checkpoints
        self.skipped_steps = int(extra.get("skipped_steps", 0))  # not in older checkpoints
        self.metrics = {name: float(v) for name, v in extra.items() if name not in RESERVED_KEYS}
        self.ledger = SampleLedger(int(extra["samples"]), int(extra["digest"], 16))
        non_tensor_state = extra.get("state", {})
        self.optimizer_state.load(non_tensor_state.get("optimizer"), tensors)
        for name, state in self._states.items():
            if name in non_tensor_state:
                state.load_state_dict(decode(non_tensor_state[name], tensors))

    def _pack(self, text: bytes) -> torch.Tensor:
        """Return a text as a tensor whose size is the same on all workers."""
        if len(text) + 8 > self._text_bytes:
            raise EverstepError(
                f"the non-tensor state grew to {len(text)} bytes, more than four times their size "
                "at the beginning",
                "Keep the number of values in each state_dict constant.",
            )
        frame = len(text).to_bytes(8, "little") + text
        packed = torch.frombuffer(
            bytearray(frame.ljust(self._text_bytes, b"\0")), dtype=torch.uint8
        )
        return packed.to(self.device)

    # --- checkpoints ---

    def save(self) -> None:
        """Start a checkpoint of the current step."""
        tensors = self.tensors()
        extra = self._extra(tensors)
        check_unchanged_shapes(tensors, self._shapes)
        # Buffers change with the next forward pass, ranges with its sum, the other states by the program.
        unchanging_names = {f"{MODEL_PREFIX}{name}" for name in self._parameters}
        unchanging_names |= self.optimizer_state.tensors().keys()
        self.checkpoints.save(self.step, tensors, extra, unchanging_names)

    def sha256(self) -> str:
        """Return the SHA-256 digest of `tensors()`."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors().items()):
            digest.update(name.encode())
            digest.update(_bytes(tensor))
        return digest.hexdigest()

    @torch.no_grad()
    def _load(self, checkpoint: StoredCheckpoint) -> None:
        self.checkpoints.wait_snapshot()
        state = checkpoint.load()
        tensors = self.all_tensors()
        check_shapes(checkpoint.location, state, tensors)
        for name, tensor in tensors.items():
            if name in state:
                tensor.copy_(state[name])
            elif name in self.optimizer_state.tensors():  # a checkpoint of step 0 may have none
                tensor.zero_()
        self.step = checkpoint.manifest.step
        self._load_extra(checkpoint.manifest.extra, tensors)
        # With more data than before, the run is in an earlier epoch.
        self.evaluated_epochs = min(self.evaluated_epochs, self._order.epoch_of(self.step))
        self._journal.note("restore", step=self.step, path=checkpoint.location)


def plain_name(name: str) -> str:
    """Return the name that a tensor has without `torch.compile`, which wraps a module in `_orig_mod`.

    So a run may continue with a model that is compiled differently, or not at all.
    """
    return name.replace(COMPILED, "")


def _check_state_dict(model: nn.Module) -> None:
    """Refuse a model whose `state_dict` returns copies: the values that they receive never reach the model."""
    tensors = {name: local_tensor(tensor) for name, tensor in model.state_dict().items()}
    # A layer may add constants, such as the format of quantized weights: each worker's program creates its own.
    own_names = {
        name
        for named in (model.named_parameters, model.named_buffers)
        for name, _ in named(remove_duplicate=False)
    }
    for name, tensor in model.state_dict().items():
        if name in own_names and local_tensor(tensor).data_ptr() != tensors[name].data_ptr():
            raise EverstepError(
                f"the state_dict of the model returns a copy of {name}, and a joiner would receive only the copy",
                "Remove the hook or the method that copies it, or pass an object with this state in states.",
            )


def _number(name: str, value: Any) -> float:  # noqa: ANN401 - of the user
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise EverstepError(
            f"the metric {name!r} is not a number: {error}",
            "Write one number for each name in Run.metrics.",
        ) from error


def _describe(tensors: Tensors) -> str:
    """Return a short text that depends on the names, types and shapes of tensors."""
    shapes = {name: [str(tensor.dtype), *tensor.shape] for name, tensor in tensors.items()}
    digest = hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()[:12]
    numbers = sum(tensor.numel() for tensor in tensors.values())
    return f"{len(shapes)} with {numbers} numbers and digest {digest} of names, types and shapes"


def _sendable(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the tensor, or a copy of it on the device, dense and aligned, if a group cannot send its memory."""
    tensor = tensor.detach()
    is_dense = torch.empty_like(tensor, device="meta").stride() == tensor.stride()
    is_aligned = tensor.storage_offset() * tensor.element_size() % 8 == 0
    if tensor.device == device and is_dense and is_aligned:
        return tensor
    return torch.empty_like(tensor, device=device).copy_(tensor)


def _unpack(packed: torch.Tensor) -> bytes:
    frame = packed.cpu().numpy().tobytes()
    return frame[8 : 8 + int.from_bytes(frame[:8], "little")]


def _bytes(tensor: torch.Tensor) -> bytes:
    """Return a tensor's values in row-major order."""
    # One dimension: a 1x1 convolution in channels-last layout is contiguous, but its last stride is not 1.
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()
