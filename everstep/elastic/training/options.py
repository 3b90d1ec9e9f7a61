"""The options of a run, and the callbacks of programs that need more than the loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Protocol

from everstep.elastic.data_order.sampler import Ids
from everstep.errors import EverstepError
from everstep.spelling import unknown_name

CHOICES = {
    "mode": ("live", "exact"),
    "nonfinite_loss": ("stop", "skip"),
    "compress": ("none", "bf16"),
    "overlap": ("auto", "on", "off"),
}
MINIMUM = {
    "global_batch": 1,
    "epochs": 1,
    "max_steps": 0,
    "shard_size": 1,
    "max_microbatch": 1,
    "checkpoint_seconds": 0,
    "checkpoint_steps": 1,
    "keep_checkpoints": 1,
    "storage_timeout_seconds": 1,
    "seed": 0,
    "accept_older_checkpoint": 0,
    "max_grad_norm": 0,
}
MAXIMUM = {
    "storage_timeout_seconds": 600,  # a group that waits longer for its storage is stuck
    "seed": 2**63 - 1,  # a signed 64-bit integer
}
POSITIVE = ("max_grad_norm",)  # options that must exceed their minimum
OPTIONAL = ("max_microbatch", "max_grad_norm")  # options that may be None
NUMBERS = ("max_grad_norm", "checkpoint_seconds", "storage_timeout_seconds")
"""Options with a minimum whose value may have a fraction; the others are integers."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run; equal on all workers.

    Attributes:
        global_batch: samples in one step, over all workers.
        epochs: passes over the data set.
        seed: seed of the sample order, of random layers and of augmentation.
        max_steps: steps after which the run ends; 0 to end only after its epochs.
        mode: `live`, or `exact` for results that do not depend on the group's history.
        shard_size: samples that `exact` computes at a time; its results depend on it.
        max_microbatch: maximum number of samples computed at a time; None for all; halved after out-of-memory errors.
        max_grad_norm: norm to which gradients are clipped, above 0, or None.
        nonfinite_loss: action after a non-finite loss or gradient: `stop` the run, or `skip` the update. With `stop`,
            `live` checks gradients only if there is a scaler, or no loss is passed to `backward`.
        compress: `bf16` sends gradients in half the bytes; for `live`.
        overlap: whether gradients are summed during the backward pass; `auto`: unless all workers are on the CPUs of
            one machine.
        checkpoint_seconds: maximum seconds between checkpoints.
        checkpoint_steps: maximum steps between checkpoints.
        keep_checkpoints: number of checkpoints to keep.
        storage_timeout_seconds: seconds without a response after which the checkpoints' storage counts as hung.
        accept_data: digest of changed data with which the run may continue, from the error message.
        accept_older_checkpoint: step of a missing committed checkpoint without which the run may continue; 0 for none.
    """

    global_batch: int
    epochs: int
    seed: int = 0
    max_steps: int = 0
    mode: str = "live"
    shard_size: int = 32
    max_microbatch: int | None = None
    max_grad_norm: float | None = None
    nonfinite_loss: str = "stop"
    compress: str = "none"
    overlap: str = "auto"
    checkpoint_seconds: float = 60.0
    checkpoint_steps: int = 1_000_000_000
    keep_checkpoints: int = 3
    storage_timeout_seconds: float = 300.0
    accept_data: str = ""
    accept_older_checkpoint: int = 0

    def __post_init__(self) -> None:
        if errors := [*self._violations(), *self._contradictions()]:
            raise EverstepError("; ".join(errors), "Change these arguments of Run.")

    @property
    def exact(self) -> bool:
        """True if the mode is `exact`."""
        return self.mode == "exact"

    @property
    def exact_shard_size(self) -> int:
        """Number of samples in one shard of mode `exact`, which are computed together."""
        return min(self.shard_size, self.max_microbatch or self.shard_size)

    def _violations(self) -> list[str]:
        violations = []
        for name, minimum in MINIMUM.items():
            value = getattr(self, name)
            if value is None and name in OPTIONAL:
                continue
            is_number = isinstance(value, Real if name in NUMBERS else Integral)
            if not is_number or isinstance(value, bool):
                kind = "a number" if name in NUMBERS else "an integer"
                violations.append(f"{name} must be {kind}, got {value!r}")
            elif name in POSITIVE and not value > minimum:  # NaN is not
                violations.append(f"{name} must be above {minimum}, got {value}")
            elif not value >= minimum:
                violations.append(f"{name} must be {minimum} or more, got {value}")
        for name, maximum in MAXIMUM.items():
            if isinstance(getattr(self, name), Real) and getattr(self, name) > maximum:
                violations.append(f"{name} must be {maximum} or less, got {getattr(self, name)}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                violations.append(
                    f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}"
                )
        return violations

    def _contradictions(self) -> list[str]:
        contradictions = []
        if self.exact and self.compress != "none":
            contradictions.append(
                "compress cannot be combined with mode 'exact', whose sums must be lossless"
            )
        if self.exact and self.overlap == "on":
            contradictions.append("overlap 'on' is for mode 'live', not for 'exact'")
        return contradictions


def options_from(arguments: Mapping[str, Any]) -> RunOptions:
    """Return the options from keyword arguments.

    Raises:
        EverstepError: an option is unknown or missing, a value is not valid, or two options contradict each other.
    """
    option_names = [field.name for field in fields(RunOptions)]
    for name in arguments:
        if name not in option_names:
            raise unknown_name("option of Run", name, option_names)
    if missing := [name for name in ("global_batch", "epochs") if name not in arguments]:
        raise EverstepError(f"Run needs {' and '.join(missing)}", "Pass them as keyword arguments.")
    return RunOptions(**arguments)


class CompletedRun(Protocol):
    """A run whose last checkpoint is committed, as a hook may use it: `Run` is one."""

    @property
    def step(self) -> int:
        """Completed steps."""

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers that the program keeps with the state."""

    def note(self, kind: str, **fields: object) -> None:
        """Append a line to this worker's journal in the run's folder."""

    def sha256(self) -> str:
        """Return the SHA-256 digest of the model's parameters and buffers and the optimizer's tensors."""


def note_finish(run: CompletedRun) -> None:
    """Record the end of a run in its journal, where reports look for it."""
    run.note("finish", step=run.step)


@dataclass(frozen=True)
class RunHooks:
    """Callbacks for programs that keep more than checkpoints in the run's folder.

    Attributes:
        open: called on one worker before it looks for a checkpoint, and before it completes the run. Returns the
            metrics of a run that is complete already, otherwise None.
        completed: called on one worker after the last checkpoint is committed, before any worker ends. By default it
            records the end of the run.
        load: function that returns the samples with these IDs in an epoch, as `microbatches` yields them.
        prefetch: called before each step with the (epoch, IDs) pairs of this worker's share of it and of the next step.
    """

    open: Callable[[], Mapping[str, float] | None] = lambda: None
    completed: Callable[[CompletedRun], None] = note_finish
    load: Callable[[Ids, int], Any] | None = None
    prefetch: Callable[[list[tuple[int, Ids]]], None] | None = None
