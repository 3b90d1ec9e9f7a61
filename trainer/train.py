"""The training program: `python3 -m trainer.train`, one process for each worker.

Read `train_live` from top to bottom, then `steps`: join a generation, take steps until the workers
agree to regroup or a peer is lost, join the next, until the run is complete. Each step is over one
global batch that the workers share, so nothing depends on how many there are.

`--mode exact` does the same with sums that have no order (`everstep.elastic.exact`).
`train_restart` is the older way, `--mode restart`: a process is in one generation, and where that
ends it ends too and is started again, from rank 0's checkpoint.
"""

import json
import logging
import math
import os
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch

from everstep.elastic import metrics
from everstep.elastic.accounting import Accounting, Name
from everstep.elastic.group import PeerLostError, Seat, agree, join, sum_in_default_group
from everstep.elastic.live_worker import LiveGroup, UnfitError, attach_live, interruptible
from everstep.elastic.recovery import Standing
from everstep.elastic.worker import FAILED, RESTART, Group, attach
from everstep.errors import EverstepError
from trainer import data, models
from trainer.evaluate import Score, evaluate
from trainer.resume import read_chosen
from trainer.run_folder import note_samples, open_run, write_result
from trainer.settings import Settings, parse, result
from trainer.state import Trainer, assemble, choose_device
from trainer.step import exchange, forward_backward

log = logging.getLogger(__name__)

WARM_UP_IMAGES = 8
FINISH_SECONDS = 5.0  # for a part of a step whose group is no more: what is computed is kept
RESULT_AGAIN_SECONDS = 5.0
SMALL_SHARDS = (
    " Or raise --shard-size: over a few small images a normalisation divides by almost nothing."
)
SKIPPED_IN_A_ROW = (
    10  # --nonfinite-loss=skip is for a step now and then, not for a model that is lost
)


def main() -> None:
    """Train; exits 0 when the run is complete, RESTART to be started again, FAILED for good."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    group: Group | None = None
    try:
        settings = parse(sys.argv[1:])
        models.check_name(settings.model)
        device = choose_device(int(os.environ.get("LOCAL_RANK", "0")))
        accounting = Accounting()
        if settings.mode != "restart" and (live := attach_live(device, accounting)):
            group = live
            train_live(settings, live, device, accounting)
        else:
            group = attach()
            train_restart(settings, group, device, accounting)
    except UnfitError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        if isinstance(group, LiveGroup):
            group.unfit(str(error))
        _exit(FAILED)
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


def train_live(
    settings: Settings, group: LiveGroup, device: torch.device, accounting: Accounting
) -> None:
    """One worker's life through all generations of the run."""
    alone = Seat(0, 1, 0, None, 1, sum_in_default_group)
    trainer = assemble(settings, group, alone, device, accounting)
    metrics.offer(trainer.reading)
    warm_up(trainer)
    interruptible(trainer.model, lambda: group.check(FINISH_SECONDS))
    while True:
        trainer.take(group.join(trainer))
        try:
            if steps(trainer):
                return finish(trainer)
        except PeerLostError as error:
            group.lost(str(error))
            kept = trainer.in_flight.samples
            trainer.journal.note("lost", step=trainer.step, reason=group.regroup_reason, kept=kept)


def train_restart(
    settings: Settings, group: Group, device: torch.device, accounting: Accounting
) -> None:
    """One worker's life in one generation."""
    seat = join(group.generation)
    samples = len(data.load(settings.dataset, settings.data, "train", settings.image_size))
    unfinished = seat.rank != 0 or open_run(settings, samples)
    if agree(seat, "run", "open" if unfinished else "finished") == "finished":
        return
    trainer = assemble(settings, group, seat, device, accounting)
    metrics.offer(trainer.reading)
    restore(trainer)
    trainer.take(seat)
    if steps(trainer):
        finish(trainer)
    else:
        leave_to_restart(trainer)


def warm_up(trainer: Trainer) -> None:
    """Do once, before the others wait for it, what the first step would do for the first time."""
    trainer.exchange.clear()
    count = min(WARM_UP_IMAGES, len(trainer.train_set))
    ids = trainer.plan.batch(0)[:count]
    with trainer.accounting.all_as(Name.START_UP):
        forward_backward(trainer, ids, len(ids))
    trainer.exchange.roll_back()
    spare = torch.zeros(1, requires_grad=True)
    spare.grad = torch.zeros(1)
    torch.optim.SGD([spare], lr=0.1, momentum=0.9).step()  # imports a second's worth of torch


def steps(trainer: Trainer) -> bool:
    """Step after step: true when the run's last is done, false where the workers agreed to regroup."""
    while trainer.step < trainer.total_steps or trainer.evaluated < trainer.settings.epochs:
        if trainer.plan.ends_epoch(trainer.step) or trainer.step >= trainer.total_steps:
            if evaluate_epoch(trainer) is None:
                return False
            if trainer.step >= trainer.total_steps:
                break
        if train_step(trainer):
            return False
        if trainer.leads:
            trainer.save_now_and_then()
    return True


def train_step(trainer: Trainer) -> bool:
    """One optimizer step over this step's global batch; whether the workers regroup after it."""
    began = time.monotonic()
    ids = trainer.plan.batch(trainer.step)
    for parameters in trainer.optimizer.param_groups:
        parameters["lr"] = trainer.schedule.rate(trainer.step)
    sums = exchange(trainer, ids)
    trainer.accounting.begin(Name.COMPUTE)
    if not sums.sound:
        judge_unsound(trainer, sums.loss)

    def apply() -> None:
        if sums.sound:
            trainer.finish_snapshot()
            trainer.optimizer.step()
            trainer.skipped = 0
        else:
            trainer.exchange.discard()
        trainer.step += 1
        trainer.account = trainer.account.plus(sums.samples, sums.digest)
        _note_step(trainer, sums.loss, time.monotonic() - began, len(ids))
        trainer.accounting.end_step()
        if sums.votes > 0:
            before_leaving(trainer, sums.leavers)

    return trainer.group.after_sum(sums.votes, apply)


def judge_unsound(trainer: Trainer, loss: float) -> None:
    """A step whose loss or gradient is no number: the end of the run, or only of its update.

    Raises:
        EverstepError: it is to end the run, or there have been too many in a row.
    """
    trainer.skipped += 1
    trainer.journal.note("unsound_step", step=trainer.step + 1, loss=str(loss))
    if trainer.settings.nonfinite_loss == "skip" and trainer.skipped <= SKIPPED_IN_A_ROW:
        log.warning("step %d is left out of the model: its loss is %s", trainer.step + 1, loss)
        return
    raise EverstepError(
        f"the loss of step {trainer.step + 1} is {loss}, or its gradient no number: training has diverged",
        "Lower --learning-rate or raise --warmup-fraction; the checkpoints before this step are good."
        + (SMALL_SHARDS if trainer.settings.mode == "exact" else ""),
    )


def before_leaving(trainer: Trainer, leavers: int) -> None:
    """The workers regroup now: what must be done before anybody goes.

    The state lives on in those who stay. But whoever stays now may be told to go before the next
    group stands, and where nobody stays only a checkpoint is left of it. So rank 0 writes one in the
    background whenever somebody leaves; a node that departs waits for what it is writing.
    """
    if leavers and trainer.leads:
        trainer.save()
    if trainer.group.leaving:
        trainer.note_seconds()
        trainer.journal.note("leave", step=trainer.step, reason=trainer.group.regroup_reason)


def evaluate_epoch(trainer: Trainer) -> Score | None:
    """Evaluate once at the end of each epoch; None where the workers agreed to regroup on the way."""
    epoch = max(1, trainer.step // trainer.plan.steps_per_epoch)
    if trainer.evaluated >= epoch and trainer.step < trainer.total_steps:
        return Score(trainer.accuracy, math.nan, 0)
    trainer.accounting.begin(Name.EVALUATION)
    outcome = evaluate(
        trainer.model,
        trainer.test_set,
        trainer.prepare,
        trainer.precision,
        trainer.seat,
        trainer.group,
    )
    if not isinstance(outcome, Score):
        before_leaving(trainer, outcome)
        trainer.group.agreed()
        return None
    trainer.evaluated, trainer.accuracy = epoch, outcome.accuracy
    if trainer.leads:
        trainer.journal.note("evaluation", step=trainer.step, epoch=epoch, **vars(outcome))
        log.info("epoch %d: accuracy %.4f, loss %.4f", epoch, outcome.accuracy, outcome.loss)
    return outcome


def finish(trainer: Trainer) -> None:
    """Write the result, once; then tell everybody."""
    trainer.note_seconds()
    if trainer.leads:
        if result(trainer.settings) is None:
            _write_result(trainer)
        trainer.group.finished(f"{trainer.step} steps, accuracy {trainer.accuracy:.4f}")
    trainer.group.settle()
    # Until the result stands nobody ends: a job is done when all of its workers are.
    agree(trainer.seat, "finished", "yes")


def _write_result(trainer: Trainer) -> None:
    trainer.save()
    trainer.writer.wait()
    if not trainer.group.commit(trainer.group.generation, trainer.step):
        raise PeerLostError("another generation has taken over: the result is theirs to write")
    summary = _written_when_there_is_room(trainer)
    trainer.journal.note(
        "finish", step=trainer.step, accuracy=trainer.accuracy, seconds=summary["seconds"]
    )
    log.info("finished: %s", json.dumps(summary))


def _written_when_there_is_room(trainer: Trainer) -> dict[str, Any]:
    """The result, once it stands: a run whose disk is full at its last step is not lost for that."""
    digest = trainer.sha256()
    while True:
        try:
            return write_result(trainer.settings, trainer.step, trainer.accuracy, digest)
        except OSError as error:
            log.error("the run is complete, but its result cannot be written: %s; trying on", error)
            time.sleep(RESULT_AGAIN_SECONDS)


def restore(trainer: Trainer) -> None:
    """Take up the newest good checkpoint; rank 0 chooses, so that all have the same."""
    found = None
    if trainer.leads:
        found = trainer.newest(Standing())
    chosen = agree(trainer.seat, "resume", str(found.path) if found else "")
    if chosen:
        found = found or read_chosen(Path(chosen))
        if found is None:
            raise PeerLostError(f"{chosen} cannot be read here")
        trainer.load(found)
    if trainer.leads:
        note_samples(trainer.settings, trainer.step, len(trainer.train_set))


def leave_to_restart(trainer: Trainer) -> NoReturn:
    """End after the step that all agreed on; nothing is lost, since rank 0 saves it first."""
    reason = trainer.group.regroup_reason or "another node's change"
    if trainer.leads:
        trainer.save()
        trainer.writer.wait()
    trainer.note_seconds()
    trainer.journal.note("leave", step=trainer.step, reason=reason)
    log.info("step %d is done; the group forms anew: %s", trainer.step, reason)
    _exit(RESTART)


def _note_step(trainer: Trainer, loss: float, seconds: float, images: int) -> None:
    """Rank 0 writes the step down; the others remember it, should they have to write in its place."""
    trainer.last_step = {
        "at": round(time.time(), 4),
        "step": trainer.step,
        "epoch": trainer.plan.epoch_of(trainer.step - 1) + 1,
        "seconds": round(seconds, 4),
        "images": images,
        "loss": round(loss, 5) if math.isfinite(loss) else None,  # JSON has no word for others
        "learning_rate": round(trainer.schedule.rate(trainer.step - 1), 6),
        "world_size": trainer.seat.world_size,
        "generation": trainer.group.generation,
    }
    if trainer.leads:
        trainer.journal.note("step", **trainer.last_step)


def _exit(code: int) -> NoReturn:
    """End without torch's orderly shutdown, which would wait for peers that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
