"""One step up to its sum: forward, backward and the exchange, in floating point or exactly."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from everstep.elastic.accounting import Name
from everstep.elastic.exact import ExactExchange, cut
from everstep.elastic.ledger import digest, from_limbs, to_limbs
from everstep.elastic.sampler import Ids, share
from trainer.data import Asked
from trainer.state import Trainer

LOSS_SCALE = 2**32
READ_AHEAD = 1  # steps: what is read while this one computes


@dataclass(frozen=True)
class Sums:
    """What a step's exchange gives besides gradients, over all workers.

    Attributes:
        loss: mean over the global batch; no number where some part of it was none.
        sound: whether the gradients are numbers, as far as was asked.
        votes: workers that want to regroup after the step.
        leavers: workers whose nodes leave.
        samples: that were really read.
        digest: of those, for the ledger.
    """

    loss: float
    sound: bool
    votes: int
    leavers: int
    samples: int
    digest: int


def exchange(trainer: Trainer, ids: Ids) -> Sums:
    """Train on this worker's part of a global batch, and sum over all; nothing is applied yet."""
    trainer.accounting.begin_step()
    _expect(trainer)
    if isinstance(trainer.exchange, ExactExchange):
        return _exactly(trainer, trainer.exchange, ids)
    trainer.exchange.clear(trainer.seat.begin_sum if trainer.overlaps else None)
    mine = share_of(trainer, ids)
    loss = forward_backward(trainer, mine, len(ids)) if len(mine) else 0.0
    wishes = [float(trainer.group.regroup_wanted), float(trainer.group.leaving)]
    read = [float(len(mine)), *to_limbs(digest(trainer.step, mine))]
    trainer.accounting.begin(Name.EXCHANGE)
    total, votes, leavers, samples, *limbs = trainer.exchange.sum(
        len(mine) / len(ids), [loss, *wishes, *read], trainer.seat.sum
    )
    sound = math.isfinite(total) and (
        trainer.settings.nonfinite_loss == "stop" or trainer.exchange.finite()
    )
    return Sums(total, sound, round(votes), round(leavers), round(samples), from_limbs(limbs))


def _exactly(trainer: Trainer, exact: ExactExchange, ids: Ids) -> Sums:
    """As `exchange`, shard by shard; anew where a shard's gradient outgrew its unit."""
    while (sums := _try_exactly(trainer, exact, ids)) is None:
        trainer.journal.note("coarser_unit", step=trainer.step + 1)
    if sums.sound:
        exact.follow()
    return sums


def _try_exactly(trainer: Trainer, exact: ExactExchange, ids: Ids) -> Sums | None:
    exact.clear()
    loss = samples = words = unsound = 0
    for shard in _shards(trainer, ids):
        part = forward_backward(trainer, shard, len(ids))
        usable = exact.add_shard(len(shard))
        if usable and math.isfinite(part):
            loss += round(part * LOSS_SCALE)
        else:
            unsound += 1  # a whole number says it to all: none of them is "not a number"
        samples, words = samples + len(shard), words + digest(trainer.step, shard)
    wishes = [int(trainer.group.regroup_wanted), int(trainer.group.leaving)]
    read = [samples, *map(round, to_limbs(words % 2**64))]
    trainer.accounting.begin(Name.EXCHANGE)
    scalars = exact.sum(len(ids), [loss, unsound, *wishes, *read], trainer.seat.sum)
    if scalars is None:
        return None
    total, unsound, votes, leavers, samples, *limbs = scalars
    mean = math.nan if unsound else total / LOSS_SCALE
    return Sums(mean, not unsound, votes, leavers, samples, from_limbs(limbs))


def share_of(trainer: Trainer, ids: Ids) -> Ids:
    """This worker's samples of a global batch."""
    if trainer.settings.mode == "exact":
        return np.concatenate([ids[:0], *_shards(trainer, ids)])
    return ids[share(len(ids), trainer.seat.rank, trainer.seat.world_size)]


def _shards(trainer: Trainer, ids: Ids) -> list[Ids]:
    """This worker's part of a global batch that is cut into shards."""
    shards = cut(ids, trainer.settings.shard_size)
    return shards[share(len(shards), trainer.seat.rank, trainer.seat.world_size)]


def _expect(trainer: Trainer) -> None:
    """Say what this step needs, and what the next will, should the group stay as it is."""
    last = min(trainer.step + 1 + READ_AHEAD, trainer.total_steps)
    trainer.train_set.expect(
        [
            Asked(
                ids=share_of(trainer, trainer.plan.batch(step)),
                seed=trainer.settings.seed,
                epoch=trainer.plan.epoch_of(step),
            )
            for step in range(trainer.step, last)
        ]
    )


def chance_of(seed: int, step: int, ids: Ids) -> int:
    """The seed of what is left to chance in the network (dropout, stochastic depth) for these samples.

    By what is trained and not by what this process has drawn before: a worker that joins, or that does
    a step again, drops the same.
    """
    drawn = np.random.SeedSequence([seed, step, int(ids[0])]).generate_state(1, np.uint64)
    return int(drawn[0]) % 2**63


def forward_backward(trainer: Trainer, ids: Ids, global_batch: int) -> float:
    """Add these samples' part of the step's gradients; their part of the mean loss over the global batch."""
    settings, device = trainer.settings, trainer.device
    epoch = trainer.plan.epoch_of(trainer.step)
    trainer.accounting.begin(Name.DATA)
    images, labels = trainer.train_set.train_batch(ids, settings.seed, epoch)
    trainer.accounting.begin(Name.COMPUTE)
    torch.manual_seed(chance_of(settings.seed, trainer.step, ids))
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
