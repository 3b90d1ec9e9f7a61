"""The public interface of elastic training: `Run` makes a plain training loop elastic."""

import json
import logging
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from everstep.elastic.accounting import metrics
from everstep.elastic.accounting.journal import Journal
from everstep.elastic.accounting.time_account import Activity, TimeAccount
from everstep.elastic.checkpoint.restore import SHARDS
from everstep.elastic.checkpoint.sharded_store import Sharding
from everstep.elastic.data_order.sampler import Ids, SampleOrder
from everstep.elastic.recovery.live_worker import LiveGroup
from everstep.elastic.recovery.sharded_worker import ShardedGroup
from everstep.elastic.recovery.worker import Group
from everstep.elastic.training import program
from everstep.elastic.training.batch import Batch
from everstep.elastic.training.checkpoints import Checkpoints
from everstep.elastic.training.evaluation import EpochEnd
from everstep.elastic.training.interrupt import make_interruptible
from everstep.elastic.training.microbatches import Microbatch, MicrobatchLimit
from everstep.elastic.training.options import RunHooks, RunOptions, options_from
from everstep.elastic.training.resume import DATA, DATA_NAMES
from everstep.elastic.training.run_storage import RunStorage, storage_at
from everstep.elastic.training.samples import SampleLoader, size_of
from everstep.elastic.training.session import Session
from everstep.elastic.training.sharded_model import check_sharding, sharding_of
from everstep.elastic.training.steps import SCALARS, ExactSteps, LiveSteps
from everstep.elastic.training.training_state import RunState, Stateful
from everstep.elastic.training.worker import Worker, announce_errors, connect, worker_name
from everstep.elastic.transport.exact_reducer import ExactReducer
from everstep.elastic.transport.group import PeerLostError, RankAssignment
from everstep.elastic.transport.local_tensors import is_sharded
from everstep.elastic.transport.reducer import GradientReducer
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

WARM_UP_SAMPLES = 8
FINISH_SECONDS = 5.0  # time to finish a micro-batch after the group is lost, to keep its gradients
RESERVED_NAMES = (
    "model", "momentum", "optimizer", "hyperparameters", "exact", "scheduler", "scaler",
)  # fmt: skip
Callback = TypeVar("Callback", bound=Callable[..., object])


class Run:
    """A training run whose workers may join and leave; iterate over it to train.

    Args:
        model: model on its device, with the same architecture on all workers.
        optimizer: optimizer of the model's parameters; its `step` must not need a closure.
        dataset: map-style data set, with a length and indices.
        dataset_size: number of samples, for a program that loads them by index itself; in place of `dataset`.
        checkpoint: folder of the run, shared by all workers, or `s3://BUCKET/PREFIX`; None to keep the state
            in memory only.
        collate_fn: function that makes a batch from a list of samples; torch's own if None.
        scheduler: learning-rate scheduler, which takes a step after each applied step.
        scaler: gradient scaler; the run unscales, steps and updates. A disabled scaler is ignored.
        states: other objects whose state belongs to the run, by name: averaged weights, metrics.
        fingerprint: settings that must be equal to continue from a checkpoint, as JSON; None for the run's own.
        identity: text that must be equal on all workers; None for the versions of script, library and torch.
        labels: fields for the first line of the journal, such as the model's name.
        hooks: callbacks for programs that write other files than checkpoints to the run's folder.
        group: group and time account of a process that is connected to its agent already.
        warm_up: whether a first batch is computed and discarded before this worker joins the others.
        **options: fields of `RunOptions`; global_batch and epochs are required.

    Raises:
        EverstepError: an argument is not valid, a package for the storage is missing, or another launcher started
            several workers.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        dataset: Any = None,  # noqa: ANN401 - any map-style data set
        dataset_size: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        scheduler: Any = None,  # noqa: ANN401 - torch's schedulers share no public base class
        scaler: torch.amp.GradScaler | None = None,
        states: Mapping[str, Stateful] | None = None,
        fingerprint: Mapping[str, Any] | None = None,
        identity: str | None = None,
        labels: Mapping[str, Any] | None = None,
        hooks: RunHooks | None = None,
        group: tuple[Group, TimeAccount] | None = None,
        warm_up: bool = True,
        **options: Any,  # noqa: ANN401 - checked by RunOptions
    ) -> None:
        run_options = options_from(options)
        hooks = hooks or RunHooks()
        scaler = scaler if scaler and scaler.is_enabled() else None
        unsupported = {
            "mode='exact'": run_options.exact,
            "scaler": scaler is not None,
        }
        # It counts each parameter once, but a program that makes its own shards may have some on all workers.
        unsupported_by_hand = {"max_grad_norm": run_options.max_grad_norm is not None}
        check_sharding(model, group[0] if group else None, unsupported, unsupported_by_hand)
        size = size_of(dataset, dataset_size)
        device = _device_of(model)
        states = _all_states(states or {}, scheduler, scaler, run_options)
        sharding = sharding_of(group[0] if group else None)
        timeout_seconds = run_options.storage_timeout_seconds
        folder, storage = storage_at(checkpoint, sharding, timeout_seconds)
        worker = _worker(group, device, folder)
        run_fingerprint = {
            DATA: f"{size} samples",
            **_as_json(fingerprint or _fingerprint(run_options, model, optimizer)),
            **({SHARDS: sharding.count} if sharding else {}),
        }
        self.model, self.optimizer = model, optimizer
        self._device, self._collate = device, collate_fn
        self._session = self._new_session(
            _Setup(run_options, size, folder, storage, worker, run_fingerprint, hooks, sharding),
            states,
            identity or program.script_version(),
            hooks.load or SampleLoader(dataset, collate_fn, device),
            labels or {},
            scaler,
            scheduler,
        )
        self._epoch_end = EpochEnd(self._session)
        self._callbacks: list[Callable[[int], object]] = []
        # Without a group, a worker with a part of the model cannot compute.
        has_whole_model = not isinstance(worker.group, ShardedGroup)
        self._warms_up = warm_up and isinstance(worker.group, LiveGroup) and has_whole_model
        self._iterating = False
        self._interrupts: list[RemovableHandle] = []

    def _new_session(
        self,
        setup: "_Setup",
        states: dict[str, Stateful],
        identity: str,
        load: Callable[[Ids, int], Any],
        labels: Mapping[str, Any],
        scaler: torch.amp.GradScaler | None,
        scheduler: Any,  # noqa: ANN401 - torch's schedulers share no public base class
    ) -> Session:
        options, worker, hooks = setup.options, setup.worker, setup.hooks
        order = SampleOrder(setup.size, options.global_batch, options.epochs, options.seed)
        reducer = _reducer(options, self.model)
        with announce_errors(worker.group):
            state = setup.run_state(self.model, self.optimizer, states, reducer, identity, order)
        # A bound that one shard's worker has found must not apply to that worker only.
        limit_folder = None if setup.sharding else setup.folder
        limit = MicrobatchLimit(options.max_microbatch, limit_folder, worker.device)
        return Session(
            options=options,
            state=state,
            steps=ExactSteps(options, state, worker, reducer)
            if isinstance(reducer, ExactReducer)
            else LiveSteps(options, state, worker, reducer, limit, scaled=scaler is not None),
            worker=worker,
            order=order,
            limit=limit,
            hooks=hooks,
            complete_run=lambda: hooks.completed(self),
            load=load,
            job={"job": setup.storage.name if setup.storage else "", **labels},
            scaler=scaler,
            scheduler=scheduler,
        )

    # --- values for the loop ---

    @property
    def step(self) -> int:
        """Completed steps."""
        return self._session.state.step

    @property
    def total_steps(self) -> int:
        """Steps of the whole run; the completed ones if it was stopped."""
        return self._session.total_steps

    @property
    def planned_steps(self) -> int:
        """Steps of all epochs, even if the run ends earlier: for a schedule."""
        return self._session.order.total_steps

    @property
    def epoch(self) -> int:
        """Epoch of the next step, from 0."""
        return self._session.order.epoch_of(self.step)

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers that belong to the state: write them only in callbacks, with equal values on all workers."""
        return self._session.state.metrics

    @property
    def leads(self) -> bool:
        """True if this worker is currently rank 0, and may write for all."""
        return self._session.worker.leads

    @property
    def world_size(self) -> int:
        """Current number of workers in the group."""
        return self._session.worker.assignment.world_size

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self._device

    # --- callbacks ---

    def each_epoch(self, callback: Callback) -> Callback:
        """Call a function with the number of completed epochs after each epoch, on all workers.

        The function is called again if the group changes in the meantime. `sum`, `share` and `evaluate` may be called
        only in such a function. This method can be used as a decorator.
        """
        self._callbacks.append(callback)
        return callback

    def after_step(self, callback: Callback) -> Callback:
        """Call a function after each applied step, before its checkpoint; can be used as a decorator."""
        self._session.step_callbacks.append(callback)
        return callback

    def sum(self, *values: float) -> list[float]:
        """Return the sums of these numbers over all workers; only in a callback of `each_epoch`."""
        return self._epoch_end.sum(*values)

    def share(self, samples: int) -> Ids:
        """Return this worker's share of the indices below `samples`; only in a callback of `each_epoch`."""
        return self._epoch_end.share(np.arange(samples))

    def evaluate(
        self,
        dataset: Any,  # noqa: ANN401 - any map-style data set, or its size
        score: Callable[..., Mapping[str, torch.Tensor]],
        prefetch: Callable[[Ids, Ids], None] | None = None,
    ) -> dict[str, float]:
        """Return the exact means of scores over a data set; only in a callback of `each_epoch`.

        Args:
            dataset: map-style, or a number of samples whose indices are passed to `score`.
            score: called with the parts of a collated batch; returns tensors of one value per sample.
            prefetch: called with the indices of this worker's next samples and of the samples after them.
        """
        is_size = isinstance(dataset, int)
        size = size_of(None, dataset) if is_size else size_of(dataset, None)
        load = SampleLoader(None if is_size else dataset, self._collate, self._device)
        return self._epoch_end.evaluate(size, load, score, prefetch)

    def stop(self) -> None:
        """End the run early on all workers, with a last checkpoint; one worker that calls it is enough.

        In a callback of `each_epoch`, the run ends after the callbacks; elsewhere, after the next step whose
        `Batch.step` is called. The end belongs to the state: a later start with this checkpoint trains no more.
        """
        self._session.worker.requests_stop = True

    def note(self, kind: str, **fields: object) -> None:
        """Append a line to this worker's journal in the run's folder."""
        self._session.worker.journal.note(kind, **fields)

    def sha256(self) -> str:
        """Return the SHA-256 digest of the model's parameters and buffers and the optimizer's tensors."""
        return self._session.state.sha256()

    # --- the loop ---

    def __iter__(self) -> Iterator[Batch]:
        """Yield this worker's share of each step until the run is complete.

        Under an agent, the first batch is a warm-up, whose result is discarded, unless `warm_up` is False or the model
        is sharded.
        """
        if self._iterating:
            raise EverstepError("the run is iterated twice", "Iterate once: `for batch in run:`.")
        self._iterating = True
        session = self._session
        metrics.serve_if_configured(session.reading)
        is_complete = False
        try:
            with announce_errors(session.worker.group):
                yield from self._batches()
            is_complete = True
        finally:  # a `break` ends this generator, too
            if not session.has_open_batch:  # unlike after `next(iter(run))`
                self._remove_hooks()
            session.worker.group.report_loop_end(is_complete=is_complete)

    def _batches(self) -> Iterator[Batch]:
        session = self._session
        if self._warms_up:
            with session.worker.accounting.attribute_all_to(Activity.START_UP):
                yield (warm_up := self._warm_up_batch())
                warm_up.close()
        if not any(map(is_sharded, session.state.model.parameters())):  # FSDP cannot be interrupted
            self._interrupts = make_interruptible(session.state.model, self._check)
        while (batch := self._next_batch()) is not None:
            session.has_open_batch = True
            yield batch
            batch.close()
            if not self._ends_epoch():  # the callbacks may change what a checkpoint contains
                session.save_if_due()

    def _next_batch(self) -> Batch | None:
        """Return the next batch, in this group or a later one; None if the run is complete."""
        session = self._session
        while True:
            try:
                if not session.attached:
                    session.join()
                if (has_ended_epoch := self._ends_epoch()) and not self._end_epoch():
                    continue
                if self.step >= self.total_steps:
                    self._complete()
                    return None
                if has_ended_epoch:
                    session.save_if_due()
                return Batch(session, *session.plan())
            except PeerLostError as error:
                session.lose_group(str(error))

    def _ends_epoch(self) -> bool:
        """Return True if callbacks are due: after each epoch, and after the last step."""
        session = self._session
        evaluated_epochs = session.state.evaluated_epochs
        if session.order.ends_epoch(self.step):
            return evaluated_epochs < self._epochs()
        return self.step >= self.total_steps and evaluated_epochs < session.options.epochs

    def _epochs(self) -> int:
        """Return the completed epochs; the first one counts as completed if the run ends in it."""
        return max(1, self.step // self._session.order.steps_per_epoch)

    def _end_epoch(self) -> bool:
        """Call the callbacks; return False if the workers agreed to regroup."""
        epochs = self._epochs()
        if self._callbacks and not self._epoch_end.run(self._callbacks, epochs):
            return False
        # Not `epochs`: a run that ends in its first epoch may continue, and completes that epoch later.
        self._session.state.evaluated_epochs = self.step // self._session.order.steps_per_epoch
        self._session.worker.group.handle_epoch_end()
        return True

    def _complete(self) -> None:
        self._session.complete()
        group = self._session.worker.group
        if isinstance(group, ShardedGroup):
            group.wait_for_all()

    def _remove_hooks(self) -> None:
        """Remove all hooks from the model, which the program may train, save or export now."""
        for handle in self._interrupts:
            handle.remove()
        self._session.state.reducer.close()

    def _warm_up_batch(self) -> Batch:
        """Return a batch of a few samples: operations that are slow the first time must not delay others."""
        session = self._session
        ids = session.order.batch(0)[
            : min(WARM_UP_SAMPLES, session.limit.samples or WARM_UP_SAMPLES)
        ]
        session.state.reducer.clear()
        return Batch(session, ids, [Microbatch(((0, len(ids)),), ids, last=True)], is_warm_up=True)

    def _check(self) -> None:
        if self._session.interruptible:
            self._session.worker.group.check(FINISH_SECONDS)


@dataclass(frozen=True)
class _Setup:
    """Checked arguments of a run, from which its state and its session are made.

    Attributes:
        options: checked options.
        size: number of samples in the data set.
        folder: folder of the run and its journals; None if it has none.
        storage: storage of the checkpoints; None to keep the state in memory only.
        worker: this process as a worker.
        fingerprint: settings that must be equal to continue from a checkpoint.
        hooks: callbacks of the program.
        sharding: this worker's shard of the model; None if it has the whole model.
    """

    options: RunOptions
    size: int
    folder: Path | None
    storage: RunStorage | None
    worker: Worker
    fingerprint: Mapping[str, Any]
    hooks: RunHooks
    sharding: Sharding | None = None

    def run_state(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        states: dict[str, Stateful],
        reducer: GradientReducer | ExactReducer,
        identity: str,
        order: SampleOrder,
    ) -> RunState:
        """Return the state of the run, with its checkpoints."""
        options, worker, fingerprint = self.options, self.worker, self.fingerprint
        steps_of_run = min(order.total_steps, options.max_steps or order.total_steps)
        return RunState(
            model,
            optimizer,
            states,
            reducer,
            checkpoints=Checkpoints(
                *(self.storage, options, fingerprint, worker.group, worker.journal),
                leads=not self.sharding or self.sharding.leads,
            ),
            journal=worker.journal,
            hooks=self.hooks,
            identity={
                "program": identity,
                **{_setting(name): str(value) for name, value in fingerprint.items()},
                "overlap": str(options.overlap),
            },
            order=order,
            totals=(steps_of_run, options.epochs),
        )


def _setting(name: str) -> str:
    return name if name in DATA_NAMES else f"setting {name}"


def _worker(
    group: tuple[Group, TimeAccount] | None, device: torch.device, folder: Path | None
) -> Worker:
    """Return this process as a worker, connected to its agent if it has one."""
    accounting = group[1] if group else TimeAccount.of_process()
    worker_group = group[0] if group else connect(device, accounting)
    path = folder / "journal" / f"{worker_name()}.jsonl" if folder else Path(os.devnull)
    return Worker(worker_group, accounting, Journal(path), device, RankAssignment.single())


def _device_of(model: nn.Module) -> torch.device:
    trained_parameters = [p for p in model.parameters() if p.requires_grad]
    if not trained_parameters:
        raise EverstepError("no parameter of the model needs gradients", "Pass the model to train.")
    if any(map(is_lazy, model.parameters())):
        raise EverstepError(
            "the model has lazy layers without a shape",
            "Compute the model's output for some samples, then create the optimizer and Run.",
        )
    if len({parameter.device for parameter in trained_parameters}) > 1:
        raise EverstepError("the model is on several devices", "Move the model to one device.")
    if any(parameter.is_complex() for parameter in trained_parameters):
        raise EverstepError(
            "the model has complex parameters, whose gradients cannot be summed",
            "Store them as real numbers, with torch.view_as_real, and use torch.view_as_complex in the forward pass.",
        )
    for name, value in model.state_dict().items():
        if name.endswith(nn.modules.module._EXTRA_STATE_KEY_SUFFIX):
            raise EverstepError(
                f"{name} is a {type(value).__name__} from get_extra_state, which a joiner would not receive",
                "Register it as a buffer, or pass an object with its state in states.",
            )
    return trained_parameters[0].device


def _all_states(
    states: Mapping[str, Stateful],
    scheduler: Stateful | None,
    scaler: torch.amp.GradScaler | None,
    options: RunOptions,
) -> dict[str, Stateful]:
    """Return everything whose state belongs to the run, besides model and optimizer."""
    for name, state in states.items():
        if name in RESERVED_NAMES or "." in name:
            raise EverstepError(
                f"a state cannot be named {name!r}",
                f"Choose a name in states without a dot, and none of {', '.join(RESERVED_NAMES)}.",
            )
        if not (hasattr(state, "state_dict") and hasattr(state, "load_state_dict")):
            raise EverstepError(
                f"the state {name!r} is a {type(state).__name__}, without state_dict or load_state_dict",
                "Pass objects with both methods.",
            )
    all_states = dict(states)
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise EverstepError(
            "the scheduler is a ReduceLROnPlateau, which needs a metric and takes no step after each update",
            "Pass it in states, and call its step at the end of the callback of each_epoch that evaluates.",
        )
    if scheduler is not None:
        all_states["scheduler"] = scheduler
    if scaler is not None:
        if options.exact:
            raise EverstepError(
                "a gradient scaler cannot be combined with mode 'exact', which rounds gradients itself",
                "Train in bfloat16 or float32.",
            )
        scaler.scale(torch.zeros((), device=scaler._device))  # creates its state on every worker
        all_states["scaler"] = scaler
    return all_states


def _fingerprint(
    options: RunOptions, model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    fingerprint = {
        "model": type(getattr(model, "_orig_mod", model)).__name__,  # compiled or not
        "optimizer": type(optimizer).__name__,
        "global_batch": options.global_batch,
        "seed": options.seed,
    }
    if options.exact:
        fingerprint |= {"mode": options.mode, "shard_size": options.exact_shard_size}
    return fingerprint


def _as_json(fingerprint: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the settings as a checkpoint holds them, in JSON: a list in place of a tuple, texts as keys.

    Raises:
        EverstepError: JSON has no such value.
    """
    settings = dict[str, Any]()
    for name, value in fingerprint.items():
        try:
            settings.update(json.loads(json.dumps({name: value}, allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise EverstepError(
                f"{name!r} of fingerprint is {reprlib.repr(value)}, which a checkpoint cannot hold: {error}",
                "Pass texts, finite numbers, and lists and dicts of these: int(...) of a number of numpy, "
                "str(...) of a path or of another object.",
            ) from error
    return settings


def _reducer(options: RunOptions, model: nn.Module) -> GradientReducer | ExactReducer:
    if options.exact:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        shards = -(-options.global_batch // options.exact_shard_size)
        return ExactReducer(model, scalars=SCALARS, shards=shards)
    return GradientReducer(model, scalars=SCALARS, compress=options.compress == "bf16")
