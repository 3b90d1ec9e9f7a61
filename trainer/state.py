"""Everything one worker holds while it trains, and how it is saved, restored and given to others."""

import functools
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from everstep.elastic import checkpoint
from everstep.elastic.accounting import Accounting, Name
from everstep.elastic.checkpoint import Found, Manifest, Skipped
from everstep.elastic.copying import MOST_KEPT
from everstep.elastic.exact import ExactExchange
from everstep.elastic.exchange import StepExchange
from everstep.elastic.group import Seat
from everstep.elastic.journal import Journal
from everstep.elastic.ledger import LIMBS, Account
from everstep.elastic.leftover import Span
from everstep.elastic.metrics import Reading
from everstep.elastic.recovery import Standing
from everstep.elastic.sampler import Plan
from everstep.elastic.worker import Group
from everstep.elastic.writer import Writer
from trainer import data, models, program
from trainer.data.device import Prepare
from trainer.in_flight import InFlight
from trainer.resume import check_shapes, choose
from trainer.run_folder import LEDGER_FILE, note_samples, open_run
from trainer.schedule import Schedule
from trainer.settings import Settings, result

log = logging.getLogger(__name__)

MOMENTUM = 0.9
UNITS = "exact.ranges"  # the one tensor of the state that only `exact` has
SCALARS = (
    4 + LIMBS
)  # what rides on a step's exchange: see `trainer.step.exchange`; one more if exact
PROMOTED_SAVES_AFTER = 1.0  # seconds: a new rank 0 does not know how old the last checkpoint is


@dataclass
class Trainer:
    """One worker. In `live` mode it is the `State` that the group copies from the most advanced worker."""

    settings: Settings
    group: Group
    journal: Journal
    device: torch.device
    train_set: data.Dataset
    test_set: data.Dataset
    plan: Plan
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    precision: models.Precision
    prepare: Prepare
    exchange: StepExchange | ExactExchange
    writer: Writer
    seat: Seat
    accounting: Accounting
    step: int = 0  # completed steps
    evaluated: int = 0  # completed epochs that have been evaluated
    accuracy: float = 0.0
    account: Account = field(default_factory=Account)  # of the samples that made this state
    in_flight: InFlight = field(default_factory=InFlight)
    skipped: int = 0  # steps in a row whose update was left out here: no part of the state
    saved_at: float = 0.0
    saved_step: int = 0
    last_step: dict[str, Any] = field(default_factory=dict)  # the journal's line of the last step
    _parts: list[torch.Tensor] = field(default_factory=list)
    _numbers: torch.Tensor = field(init=False)
    _signed: torch.Tensor = field(init=False)
    _seated: bool = False

    def __post_init__(self) -> None:
        """Room for the loop's own numbers where the group can copy them: on the model's device."""
        self._numbers = torch.zeros(2, dtype=torch.float64, device=self.device)
        self._signed = torch.zeros(2, dtype=torch.int64, device=self.device)

    @property
    def leads(self) -> bool:
        """Whether this worker writes for all."""
        return self.seat.rank == 0

    @property
    def total_steps(self) -> int:
        """Steps of the run."""
        return min(self.plan.total_steps, self.settings.max_steps or self.plan.total_steps)

    @property
    def overlaps(self) -> bool:
        """Whether gradients travel while the backward pass runs; the same on all workers of a group.

        Among workers that share one machine's processors it gains nothing: what the exchange takes is
        what the backward pass then lacks.
        """
        if self.settings.overlap != "auto":
            return self.settings.overlap == "on"
        return self.device.type != "cpu" or self.seat.neighbours < self.seat.world_size

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be this run's."""
        return {**self.settings.fingerprint, "data": self.train_set.identity}

    def take(self, seat: Seat) -> None:
        """Sit down in a generation: processors by the neighbours, a line in the journal."""
        promoted = self._seated and seat.rank == 0 and self.seat.rank != 0
        self.seat = seat
        if self.device.type == "cpu":
            mine = len(os.sched_getaffinity(0)) // seat.neighbours
            if self.settings.mode == "exact":
                mine = 1  # how many threads share a sum decides its last bits
            torch.set_num_threads(max(1, mine))
        if not self._seated:
            self._note_start()
            self.accounting.tell(self.note_seconds)
        self.note_seconds()
        self.journal.note(
            "generation",
            generation=self.group.generation,
            world_size=seat.world_size,
            rank=seat.rank,
            step=self.step,
        )
        if promoted and self.last_step:  # the one before may have died before it could write it
            self.journal.note("step", **self.last_step, again=True)
        if self.leads:
            self.writer.prepare(self.tensors())
        if promoted or not self._seated:
            age = self.settings.checkpoint_seconds - PROMOTED_SAVES_AFTER if promoted else 0
            self.saved_at, self.saved_step = time.monotonic() - age, self.step
        self._seated = True

    def note_seconds(self) -> None:
        """Write down where this process's seconds went, from its start on."""
        self.journal.note("seconds", step=self.step, **self.accounting.spent())

    def reading(self) -> Reading:
        """What this worker shows to Prometheus; may be asked from another thread."""
        return Reading(
            labels={"job": self.settings.job, "worker": worker_name()},
            seconds=self.accounting.settled(),
            step=self.step,
            samples=self.account.samples,
            generation=self.group.generation,
            members=self.seat.world_size,
            last_recovery=self.accounting.last_recovery,
        )

    # --- the group's copying: see everstep.elastic.live_worker.State ---

    def identity(self) -> str:
        """Program, settings and data that decide every step, and the parts' names and shapes."""
        shapes = {name: list(tensor.shape) for name, tensor in self.tensors().items()}
        told = self.settings
        decides = [program.version(), self.fingerprint, told.max_steps, told.overlap, shapes]
        return json.dumps(decides, sort_keys=True)

    def parts(self) -> Sequence[torch.Tensor]:
        """Parameters, batch statistics, momentum, and the numbers of the loop's own; to be changed."""
        self.writer.taken()
        if not self._parts:
            self._parts = [*self.tensors().values(), self._numbers, self._signed]
        self._numbers.copy_(torch.tensor([self.evaluated, self.accuracy], dtype=torch.float64))
        self._signed.copy_(torch.tensor(self.account.to_signed()))
        return self._parts

    def restore(self, committed: Standing) -> int:
        """Take up the newest good checkpoint, or begin; the completed steps. For one worker of the group."""
        self.in_flight = InFlight()
        if not open_run(self.settings, len(self.train_set)):
            found = result(self.settings) or {}
            self.step, self.evaluated = self.total_steps, self.settings.epochs
            self.accuracy = float(found.get("accuracy", math.nan))
            return self.step
        if newest := self.newest(committed):
            self.load(newest)
        else:
            self._begin_anew()
        note_samples(self.settings, self.step, len(self.train_set))
        return self.step

    def adopt(self, step: int, kept: tuple[Span, ...], *, keeps: bool) -> None:
        """The parts are those after `step` steps, and of the next one these units are computed."""
        self.in_flight = replace(self.in_flight if keeps else InFlight(), group=kept)
        evaluated, self.accuracy = self._numbers.tolist()
        self.step, self.evaluated = step, round(evaluated)
        self.account = Account.from_signed(*self._signed.tolist())

    def kept(self) -> tuple[Span, ...]:
        """The units that this worker has computed of the step in flight."""
        if len(self.in_flight.mine) > MOST_KEPT:
            self.in_flight = InFlight()
        return self.in_flight.mine

    def roll_back(self) -> bool:
        """Undo what a step in flight has touched of the state; whether work on it is kept."""
        if not self.exchange.roll_back():
            self.in_flight = InFlight()
        return bool(self.in_flight.mine)

    def flush(self) -> None:
        """Return once nothing is being written; asked from another thread than the training's."""
        self.writer.wait()

    def sha256(self) -> str:
        """Of parameters, statistics and momentum."""
        whole = hashlib.sha256()
        for name, tensor in sorted(self.tensors().items()):
            whole.update(name.encode())
            whole.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return whole.hexdigest()

    # --- checkpoints ---

    def newest(self, committed: Standing) -> Found | None:
        """The newest good checkpoint of this run; one that was committed is put in place first."""
        folder = self.settings.run / "checkpoints"
        checkpoint.complete(folder, committed.lineage, committed.step)
        return choose(folder, self.fingerprint, self.settings.accept_data, self._note_skip)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters, batch statistics and momentum, by name; the very tensors that training uses."""
        state = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            state[f"momentum.{name}"] = self.optimizer.state[parameter]["momentum_buffer"]
        if isinstance(self.exchange, ExactExchange):
            state[UNITS] = self.exchange.ranges
        return state

    def save(self) -> None:
        """Start a checkpoint of this very step."""
        self.accounting.begin(Name.CHECKPOINT)
        self.saved_at, self.saved_step = time.monotonic(), self.step
        manifest = Manifest(
            step=self.step,
            generation=self.group.generation,
            fingerprint=self.fingerprint,
            extra={
                "evaluated": self.evaluated,
                "accuracy": self.accuracy,
                "samples": self.account.samples,
                "digest": f"{self.account.digest:016x}",
            },
        )
        state = self.tensors()
        # Statistics change with the next forward pass, units with its sum, everything else only where `taken` is asked.
        moving = {f"model.{name}" for name, _ in self.model.named_buffers()} | {UNITS}
        self.writer.start(state, manifest, steady=state.keys() - moving)

    def finish_snapshot(self) -> None:
        """Wait, where that is needed, until a snapshot is complete: the state changes after this."""
        self.accounting.begin(Name.CHECKPOINT)
        self.writer.taken()
        self.accounting.begin(Name.COMPUTE)

    def save_now_and_then(self) -> None:
        """A checkpoint where the last is old enough and written."""
        due = (
            time.monotonic() - self.saved_at >= self.settings.checkpoint_seconds
            or self.step - self.saved_step >= self.settings.checkpoint_steps
        )
        if due and not self.writer.busy:
            self.save()

    @torch.no_grad()
    def load(self, found: Found) -> None:
        """Take up a checkpoint."""
        self.writer.taken()
        state = found.load()
        check_shapes(found.path, state, self.tensors())
        for name, tensor in self.tensors().items():
            if name in state:
                tensor.copy_(state[name])
            else:  # momentum, where the checkpoint is of step 0
                tensor.zero_()
        self.step = found.manifest.step
        self.evaluated = int(found.manifest.extra["evaluated"])
        self.accuracy = float(found.manifest.extra["accuracy"])
        said = found.manifest.extra
        self.account = Account(int(said["samples"]), int(said["digest"], 16))
        self.journal.note("restore", step=self.step, path=str(found.path))

    @torch.no_grad()
    def _begin_anew(self) -> None:
        """A fresh state: this worker's own may be one that died half-copied."""
        self.writer.taken()
        torch.manual_seed(self.settings.seed)
        fresh = models.build(self.settings.model, self.train_set.classes).state_dict()
        for name, tensor in self.model.state_dict().items():
            tensor.copy_(fresh[name])
        for parameter in self.model.parameters():
            self.optimizer.state[parameter]["momentum_buffer"].zero_()
        if isinstance(self.exchange, ExactExchange):
            self.exchange.forget()
        self.step = self.evaluated = 0
        self.accuracy, self.account = 0.0, Account()

    def _note_skip(self, skipped: Skipped) -> None:
        self.journal.note("skip_checkpoint", path=str(skipped.path), reason=skipped.reason)

    def _note_start(self) -> None:
        self.journal.note(
            "start",
            worker=worker_name(),
            node=os.environ.get("NODE_NAME", os.uname().nodename),
            job=self.settings.job,
            model=self.settings.model,
            dataset=self.settings.dataset,
            world_size=self.seat.world_size,
            rank=self.seat.rank,
            generation=self.group.generation,
            total_steps=self.total_steps,
            epochs=self.settings.epochs,
            global_batch=self.settings.global_batch,
            dataset_size=len(self.train_set),
            mode=self.settings.mode,
            checkpoint_seconds=self.settings.checkpoint_seconds,
        )


def assemble(
    settings: Settings,
    group: Group,
    seat: Seat,
    device: torch.device,
    accounting: Accounting,
) -> Trainer:
    """Data, model and optimizer, the same on every worker."""
    journal = Journal(settings.run / "journal" / f"{worker_name()}.jsonl")
    train_set = data.load(
        settings.dataset, settings.data, "train", settings.image_size, settings.crop_padding
    )
    test_set = data.load(settings.dataset, settings.data, "test", settings.image_size)
    train_set, test_set = data.read_ahead(
        train_set, test_set, settings.loader_workers, settings.global_batch
    )
    plan = Plan(len(train_set), settings.global_batch, settings.epochs, settings.seed)
    torch.manual_seed(settings.seed)
    precision = models.precision(settings.model, device)
    model = models.build(settings.model, train_set.classes)
    model = model.to(device, memory_format=precision.memory_format)  # type: ignore[call-overload]
    return Trainer(
        settings=settings,
        group=group,
        journal=journal,
        device=device,
        train_set=train_set,
        test_set=test_set,
        plan=plan,
        model=model,
        optimizer=_optimizer(settings, model),
        schedule=Schedule(settings.learning_rate, plan.total_steps, settings.warmup_fraction),
        precision=precision,
        prepare=Prepare(train_set, device, precision.memory_format),
        exchange=_exchange(settings, model),
        writer=_writer(settings, group, journal),
        seat=seat,
        accounting=accounting,
    )


def _exchange(settings: Settings, model: nn.Module) -> StepExchange | ExactExchange:
    if settings.mode == "exact":
        shards = -(-settings.global_batch // settings.shard_size)
        return ExactExchange(model, scalars=SCALARS + 1, shards=shards)
    return StepExchange(model, scalars=SCALARS, compress=settings.compress == "bf16")


def _optimizer(settings: Settings, model: nn.Module) -> torch.optim.Optimizer:
    """SGD whose momentum is there from the start: a state's parts are the same before and after a step."""
    optimizer = torch.optim.SGD(
        models.parameter_groups(model, settings.weight_decay),
        lr=settings.learning_rate,
        momentum=MOMENTUM,
        nesterov=True,
    )
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _writer(settings: Settings, group: Group, journal: Journal) -> Writer:
    return Writer(
        settings.run / "checkpoints",
        commit=lambda manifest: group.commit(manifest.generation, manifest.step),
        on_written=functools.partial(_note_commit, settings, journal),
        on_failed=lambda step, reason: journal.note("checkpoint_failed", step=step, reason=reason),
        keep=settings.keep_checkpoints,
    )


def _note_commit(
    settings: Settings, journal: Journal, manifest: Manifest, seconds: float, size: int
) -> None:
    journal.note("checkpoint", step=manifest.step, seconds=round(seconds, 3), bytes=size)
    # A journal's way of writing is what a ledger needs: one write a line, torn ones passed over.
    Journal(settings.run / LEDGER_FILE).note(
        "commit",
        step=manifest.step,
        generation=manifest.generation,
        samples=manifest.extra["samples"],
        digest=manifest.extra["digest"],
    )


def choose_device(local_rank: int) -> torch.device:
    """This worker's GPU, or the CPU."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    return torch.device("cpu")


def worker_name() -> str:
    """Who writes this journal: the pod, and the worker's place in it where there are several."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    pod = os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.environ.get('GROUP_RANK', '0')}"
    return f"{pod}-{local_rank}" if local_rank else pod
