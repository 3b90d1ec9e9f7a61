"""The training program: `python3 -m trainer.train`, one process for each worker.

Read `train` from top to bottom: join the group, restore, then steps until the end, each over one
global batch that the workers share. Whatever happens to the group, this process only ever does one
of three things: it takes the next step, it stops after a step that all agree on, or it ends and is
started again.
"""

import json
import logging
import math
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from everstep.elastic import checkpoint
from everstep.elastic.checkpoint import Found, Manifest, Skipped, Writer
from everstep.elastic.exchange import StepExchange
from everstep.elastic.group import PeerLostError, Seat, agree, join
from everstep.elastic.journal import Journal
from everstep.elastic.sampler import Ids, Plan, share
from everstep.elastic.worker import FAILED, RESTART, Group, attach
from everstep.errors import EverstepError
from trainer import data, models
from trainer.evaluate import Score, evaluate
from trainer.schedule import Schedule
from trainer.settings import RESULT_FILE, Settings, any_result, parse, result

log = logging.getLogger(__name__)


@dataclass
class Trainer:
    """Everything one worker holds while it trains."""

    settings: Settings
    group: Group
    seat: Seat
    journal: Journal
    train_set: data.Dataset
    test_set: data.Dataset
    plan: Plan
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    precision: models.Precision
    prepare: data.Prepare
    exchange: StepExchange
    writer: Writer
    step: int = 0  # completed steps
    evaluated: int = 0  # completed epochs that have been evaluated
    accuracy: float = 0.0
    saved_at: float = 0.0

    @property
    def leads(self) -> bool:
        """Whether this worker writes for all."""
        return self.seat.rank == 0

    @property
    def total_steps(self) -> int:
        """Steps of the run."""
        return min(self.plan.total_steps, self.settings.max_steps or self.plan.total_steps)


def main() -> None:
    """Train; exits 0 when the run is complete, RESTART to be started again, FAILED for good."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    group: Group | None = None
    try:
        settings = parse(sys.argv[1:])
        models.check_name(settings.model)
        group = attach()
        train(settings, group)
    except EverstepError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        if group:
            group.failed(str(error))
        _exit(FAILED)
    except PeerLostError as error:
        log.warning("the group is broken, start again: %s", str(error).partition("\n")[0])
        if group:
            group.settle()
        _exit(RESTART)


def train(settings: Settings, group: Group) -> None:
    """One worker's life in one generation."""
    seat = join(group.generation)
    if _open_run(settings, seat) == "finished":
        return
    trainer = _assemble(settings, group, seat)
    restore(trainer)
    while trainer.step < trainer.total_steps or trainer.evaluated < trainer.settings.epochs:
        if trainer.plan.ends_epoch(trainer.step) or trainer.step >= trainer.total_steps:
            if evaluate_epoch(trainer) is None:
                regroup(trainer)
            if trainer.step >= trainer.total_steps:
                break
        if train_step(trainer):
            regroup(trainer)
        if trainer.leads:
            save_now_and_then(trainer)
    finish(trainer)


def train_step(trainer: Trainer) -> bool:
    """One optimizer step over this step's global batch; whether all workers are to stop after it."""
    began = time.monotonic()
    ids = trainer.plan.batch(trainer.step)
    mine = ids[share(len(ids), trainer.seat.rank, trainer.seat.world_size)]
    for parameters in trainer.optimizer.param_groups:
        parameters["lr"] = trainer.schedule.rate(trainer.step)
    trainer.exchange.clear()
    loss = _forward_backward(trainer, mine, len(ids)) if len(mine) else 0.0
    weight = len(mine) / len(ids)
    total, votes = trainer.exchange.sum(weight, [loss, float(trainer.group.regroup_wanted)])
    if votes > 0:
        # At once: a peer that is through with this step sooner ends, which must not end this worker before it
        # has saved the step.
        trainer.group.settle()
    if not math.isfinite(total):
        raise EverstepError(
            f"the loss of step {trainer.step + 1} is {total}: training has diverged",
            "Lower --learning-rate or raise --warmup-fraction; the checkpoints before this step are good.",
        )
    trainer.optimizer.step()
    trainer.step += 1
    trainer.group.progressed()
    if trainer.leads:
        _note_step(trainer, total, time.monotonic() - began, len(ids))
    return votes > 0


def _forward_backward(trainer: Trainer, ids: Ids, global_batch: int) -> float:
    """Add this worker's part of the step's gradients; its part of the mean loss over the global batch."""
    settings, device = trainer.settings, next(trainer.model.parameters()).device
    epoch = trainer.plan.epoch_of(trainer.step)
    images, labels = trainer.train_set.train_batch(ids, settings.seed, epoch)
    # Over a single small image batch normalisation has nothing to take a variance of.
    trainer.model.train(len(ids) > 1)
    with torch.autocast(device.type, torch.bfloat16, enabled=trainer.precision.autocast):
        outputs = trainer.model(trainer.prepare(images))
    losses = nn.functional.cross_entropy(
        outputs.float(),
        torch.from_numpy(labels).to(device),
        label_smoothing=settings.label_smoothing,
        reduction="sum",
    )
    loss = losses / global_batch
    loss.backward()  # type: ignore[no-untyped-call] # torch's own annotation is missing
    return float(loss.detach())


def evaluate_epoch(trainer: Trainer) -> Score | None:
    """Evaluate once at the end of each epoch; None where the workers agreed to stop on the way."""
    epoch = max(1, trainer.step // trainer.plan.steps_per_epoch)
    if trainer.evaluated >= epoch and trainer.step < trainer.total_steps:
        return Score(trainer.accuracy, math.nan, 0)
    score = evaluate(
        trainer.model,
        trainer.test_set,
        trainer.prepare,
        trainer.precision,
        trainer.seat,
        trainer.group,
    )
    if score:
        trainer.evaluated, trainer.accuracy = epoch, score.accuracy
        if trainer.leads:
            trainer.journal.note("evaluation", step=trainer.step, epoch=epoch, **vars(score))
            log.info("epoch %d: accuracy %.4f, loss %.4f", epoch, score.accuracy, score.loss)
    return score


def save(trainer: Trainer) -> None:
    """Start a checkpoint of this very step."""
    trainer.saved_at = time.monotonic()
    manifest = Manifest(
        step=trainer.step,
        generation=trainer.group.generation,
        fingerprint=_fingerprint(trainer),
        extra={"evaluated": trainer.evaluated, "accuracy": trainer.accuracy},
    )
    trainer.writer.start(_state(trainer), manifest)


def save_now_and_then(trainer: Trainer) -> None:
    """A checkpoint where the last is old enough and written."""
    due = time.monotonic() - trainer.saved_at >= trainer.settings.checkpoint_seconds
    if due and not trainer.writer.busy:
        save(trainer)


def regroup(trainer: Trainer) -> NoReturn:
    """Leave the group after the step that all agreed on; nothing is lost, since rank 0 saves it first."""
    trainer.group.settle()
    reason = trainer.group.regroup_reason or "another node's change"
    if trainer.leads:
        save(trainer)
        trainer.writer.wait()
    trainer.journal.note("leave", step=trainer.step, reason=reason)
    log.info("step %d is done; the group forms anew: %s", trainer.step, reason)
    _exit(RESTART)


def restore(trainer: Trainer) -> None:
    """Take up the newest good checkpoint; rank 0 chooses, so that all have the same."""
    found = None
    if trainer.leads:
        found = checkpoint.newest(
            trainer.settings.run / "checkpoints",
            _fingerprint(trainer),
            lambda s: _note_skip(trainer, s),
        )
    chosen = agree(trainer.seat, "resume", str(found.path) if found else "")
    if chosen:
        found = found or _read_chosen(Path(chosen))
        _load_state(trainer, found)
        trainer.journal.note("restore", step=trainer.step, path=chosen)
    trainer.journal.note(
        "generation",
        generation=trainer.group.generation,
        world_size=trainer.seat.world_size,
        rank=trainer.seat.rank,
        step=trainer.step,
    )
    trainer.saved_at = time.monotonic()


def finish(trainer: Trainer) -> None:
    """Write the result, once; then tell everybody."""
    if trainer.leads:
        save(trainer)
        trainer.writer.wait()
        began = json.loads((trainer.settings.run / "run.json").read_text())["began"]
        summary = {
            "job": trainer.settings.job,
            "model": trainer.settings.model,
            "dataset": trainer.settings.dataset,
            "steps": trainer.step,
            "epochs": trainer.settings.epochs,
            "accuracy": trainer.accuracy,
            "seconds": round(time.time() - began, 2),
        }
        _write_json(
            trainer.settings.run / RESULT_FILE,
            {
                **summary,
                "max_steps": trainer.settings.max_steps,
                "fingerprint": trainer.settings.fingerprint,
            },
        )
        trainer.journal.note(
            "finish", step=trainer.step, accuracy=trainer.accuracy, seconds=summary["seconds"]
        )
        trainer.group.finished(f"{trainer.step} steps, accuracy {trainer.accuracy:.4f}")
        log.info("finished: %s", json.dumps(summary))
    trainer.group.settle()
    # Until the result stands nobody ends: a job is done when all of its workers are.
    agree(trainer.seat, "finished", "yes")


def _open_run(settings: Settings, seat: Seat) -> str:
    """Rank 0 looks at the run's folder: `finished` already, or `open`, a finished other run moved aside."""
    state = "open"
    if seat.rank == 0:
        settings.run.mkdir(parents=True, exist_ok=True)
        if result(settings):
            state = "finished"
        else:
            _move_old_run_aside(settings)
            if not (settings.run / "run.json").exists():
                _write_json(
                    settings.run / "run.json",
                    {"began": time.time(), "fingerprint": settings.fingerprint},
                )
    return agree(seat, "run", state)


def _move_old_run_aside(settings: Settings) -> None:
    """A finished run with other settings, or any run under another --fresh word, makes room."""
    try:
        word = json.loads((settings.run / "run.json").read_text())["fingerprint"]["fresh"]
    except (OSError, ValueError, KeyError):
        word = settings.fresh
    if any_result(settings.run) is None and word == settings.fresh:
        return
    number = 1 + sum(1 for _ in settings.run.glob("previous-*"))
    aside = settings.run / f"previous-{number}"
    aside.mkdir()
    for entry in list(settings.run.iterdir()):
        if not entry.name.startswith("previous-") and entry.name != "journal":
            shutil.move(str(entry), aside / entry.name)
    shutil.copytree(settings.run / "journal", aside / "journal", dirs_exist_ok=True)
    for file in (settings.run / "journal").glob("*.jsonl"):
        file.unlink()
    log.warning("the earlier run in %s was moved to %s", settings.run, aside)


def _assemble(settings: Settings, group: Group, seat: Seat) -> Trainer:
    """Data, model and optimizer, the same on every worker."""
    worker = os.environ.get("POD_NAME") or f"{os.uname().nodename}-{seat.rank}"
    if seat.local_rank:
        worker = f"{worker}-{seat.local_rank}"
    journal = Journal(settings.run / "journal" / f"{worker}.jsonl")
    device = _device(seat)
    train_set = data.load(
        settings.dataset, settings.data, "train", settings.image_size, settings.crop_padding
    )
    test_set = data.load(settings.dataset, settings.data, "test", settings.image_size)
    plan = Plan(len(train_set), settings.global_batch, settings.epochs, settings.seed)
    torch.manual_seed(settings.seed)
    precision = models.precision(settings.model, device)
    model = models.build(settings.model, train_set.classes)
    model = model.to(device, memory_format=precision.memory_format)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        models.parameter_groups(model, settings.weight_decay),
        lr=settings.learning_rate,
        momentum=0.9,
        nesterov=True,
    )
    trainer = Trainer(
        settings=settings,
        group=group,
        seat=seat,
        journal=journal,
        train_set=train_set,
        test_set=test_set,
        plan=plan,
        model=model,
        optimizer=optimizer,
        schedule=Schedule(settings.learning_rate, plan.total_steps, settings.warmup_fraction),
        precision=precision,
        prepare=data.Prepare(train_set, device, precision.memory_format),
        exchange=StepExchange(model, scalars=2),
        writer=_writer(settings, group, journal),
    )
    journal.note(
        "start",
        worker=worker,
        node=os.environ.get("NODE_NAME", os.uname().nodename),
        job=settings.job,
        model=settings.model,
        dataset=settings.dataset,
        world_size=seat.world_size,
        rank=seat.rank,
        generation=group.generation,
        total_steps=trainer.total_steps,
        epochs=settings.epochs,
        global_batch=settings.global_batch,
        dataset_size=len(train_set),
    )
    return trainer


def _writer(settings: Settings, group: Group, journal: Journal) -> Writer:
    return Writer(
        settings.run / "checkpoints",
        may_commit=group.may_commit,
        on_written=lambda step, seconds, size: journal.note(
            "checkpoint", step=step, seconds=round(seconds, 3), bytes=size
        ),
        on_failed=lambda step, reason: journal.note("checkpoint_failed", step=step, reason=reason),
        keep=settings.keep_checkpoints,
    )


def _device(seat: Seat) -> torch.device:
    """This worker's GPU; without one, its share of the processors that it has with its neighbours."""
    if torch.cuda.is_available():
        torch.cuda.set_device(seat.local_rank)
        return torch.device("cuda", seat.local_rank)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // seat.neighbours))
    return torch.device("cpu")


def _fingerprint(trainer: Trainer) -> dict[str, Any]:
    return {**trainer.settings.fingerprint, "data": trainer.train_set.identity}


def _state(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Parameters, batch statistics and momentum, by name."""
    state = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    for name, parameter in trainer.model.named_parameters():
        if (momentum := trainer.optimizer.state[parameter].get("momentum_buffer")) is not None:
            state[f"momentum.{name}"] = momentum
    return state


def _load_state(trainer: Trainer, found: Found) -> None:
    state = found.load()
    part = len("model.")
    trainer.model.load_state_dict({n[part:]: t for n, t in state.items() if n.startswith("model.")})
    for name, parameter in trainer.model.named_parameters():
        if (momentum := state.get(f"momentum.{name}")) is not None:
            buffer = torch.empty_like(parameter).copy_(momentum)
            trainer.optimizer.state[parameter]["momentum_buffer"] = buffer
    trainer.step = found.manifest.step
    trainer.evaluated = int(found.manifest.extra["evaluated"])
    trainer.accuracy = float(found.manifest.extra["accuracy"])


def _read_chosen(path: Path) -> Found:
    try:
        return checkpoint.check(path)
    except ValueError as error:
        raise PeerLostError(
            f"{path}, which rank 0 has chosen, cannot be read here: {error}"
        ) from error


def _note_skip(trainer: Trainer, skipped: Skipped) -> None:
    trainer.journal.note("skip_checkpoint", path=str(skipped.path), reason=skipped.reason)


def _note_step(trainer: Trainer, loss: float, seconds: float, images: int) -> None:
    trainer.journal.note(
        "step",
        step=trainer.step,
        epoch=trainer.plan.epoch_of(trainer.step - 1) + 1,
        seconds=round(seconds, 4),
        images=images,
        loss=round(loss, 5),
        learning_rate=round(trainer.schedule.rate(trainer.step - 1), 6),
        world_size=trainer.seat.world_size,
        generation=trainer.group.generation,
    )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all."""
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    with aside.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _exit(code: int) -> NoReturn:
    """End without torch's orderly shutdown, which would wait for peers that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
