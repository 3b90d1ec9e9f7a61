"""One step up to its sum: forward, backward and the exchange, in floating point or exactly."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from everstep.elastic.accounting import Name
from everstep.elastic.exact import ExactExchange, cut
from everstep.elastic.exchange import StepExchange
from everstep.elastic.ledger import from_limbs, to_limbs
from everstep.elastic.leftover import Span, part, rest
from everstep.elastic.sampler import Ids
from trainer.data import Asked
from trainer.in_flight import InFlight
from trainer.state import Trainer

LOSS_SCALE = 2**32
READ_AHEAD = 1  # steps: what is read while this one computes
LEAST_LEFT = (
    16  # samples of a broken step that are not divided: a normalisation is over each part by itself
)


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
    """Train on this worker's part of a global batch, and sum over all; nothing is applied yet.

    Its part is of what the group has not computed yet: where the last group broke in this step, what
    the survivors had computed is kept.
    """
    trainer.accounting.begin_step()
    _expect(trainer)
    if isinstance(trainer.exchange, ExactExchange):
        sums = _exactly(trainer, trainer.exchange, ids)
    else:
        sums = _in_floating_point(trainer, trainer.exchange, ids)
    trainer.in_flight = InFlight()
    return sums


def _in_floating_point(trainer: Trainer, exchange: StepExchange, ids: Ids) -> Sums:
    if not trainer.in_flight.mine:
        exchange.clear()
    alone = trainer.seat.world_size == 1
    early = trainer.seat.begin_sum if trainer.overlaps and not alone else None
    exchange.begin_part(early, alone=alone)
    spans = _left_for(trainer, len(ids), trainer.in_flight.group)
    mine = _joined(ids, spans)
    loss = forward_backward(trainer, mine, len(ids)) if len(mine) else 0.0
    exchange.add_part(len(mine) / len(ids))
    trainer.in_flight = trainer.in_flight.plus(spans, loss, mine, trainer.step)
    wishes = [float(trainer.group.regroup_wanted), float(trainer.group.leaving)]
    done = trainer.in_flight
    read = [float(done.samples), *to_limbs(done.digest)]
    trainer.accounting.begin(Name.EXCHANGE)
    total, votes, leavers, samples, *limbs = exchange.sum(
        [done.loss, *wishes, *read], trainer.seat.sum
    )
    sound = math.isfinite(total) and (
        trainer.settings.nonfinite_loss == "stop" or exchange.finite()
    )
    return Sums(total, sound, round(votes), round(leavers), round(samples), from_limbs(limbs))


def _exactly(trainer: Trainer, exact: ExactExchange, ids: Ids) -> Sums:
    """Shard by shard; anew where a shard's gradient outgrew its unit."""
    while (sums := _try_exactly(trainer, exact, ids)) is None:
        trainer.journal.note("coarser_unit", step=trainer.step + 1)
        trainer.in_flight = InFlight()
    if sums.sound:
        exact.follow()
    return sums


def _try_exactly(trainer: Trainer, exact: ExactExchange, ids: Ids) -> Sums | None:
    if not trainer.in_flight.mine:
        exact.clear()
    shards = cut(ids, trainer.settings.shard_size)
    left = _left_for(trainer, len(shards), trainer.in_flight.group)
    for number in (number for span in left for number in range(*span)):
        trainer.group.check()
        exact.begin_shard()
        loss = forward_backward(trainer, shards[number], len(ids))
        usable = exact.add_shard(len(shards[number])) and math.isfinite(loss)
        # A whole number says it to all: none of them is "not a number".
        told = round(loss * LOSS_SCALE) if usable else 0
        trainer.in_flight = trainer.in_flight.plus(
            ((number, number + 1),), told, shards[number], trainer.step, unsound=not usable
        )
    done = trainer.in_flight
    wishes = [int(trainer.group.regroup_wanted), int(trainer.group.leaving)]
    read = [done.samples, *map(round, to_limbs(done.digest))]
    trainer.accounting.begin(Name.EXCHANGE)
    scalars = exact.sum(
        len(ids), [round(done.loss), done.unsound, *wishes, *read], trainer.seat.sum
    )
    if scalars is None:
        return None
    total, unsound, votes, leavers, samples, *limbs = scalars
    mean = math.nan if unsound else total / LOSS_SCALE
    return Sums(mean, not unsound, votes, leavers, samples, from_limbs(limbs))


def _left_for(trainer: Trainer, units: int, done: tuple[Span, ...]) -> tuple[Span, ...]:
    """What is this worker's to compute of a step's units, of which these are done."""
    seat, left = trainer.seat, rest(units, done)
    broken = done and trainer.settings.mode != "exact"
    return part(left, seat.rank, seat.world_size, least=LEAST_LEFT if broken else 1)


def _joined(ids: Ids, spans: Iterable[Span], unit: int = 1) -> Ids:
    """The samples of these spans, of so many samples a unit."""
    return np.concatenate([ids[:0], *(ids[first * unit : last * unit] for first, last in spans)])


def _expect(trainer: Trainer) -> None:
    """Say what this step needs, and what the next will, should the group stay as it is."""
    last = min(trainer.step + 1 + READ_AHEAD, trainer.total_steps)
    trainer.train_set.expect(
        [
            Asked(
                ids=_share_of(trainer, step),
                seed=trainer.settings.seed,
                epoch=trainer.plan.epoch_of(step),
            )
            for step in range(trainer.step, last)
        ]
    )


def _share_of(trainer: Trainer, step: int) -> Ids:
    """The samples that this worker computes of a step: the one in flight, or one that is to come."""
    ids = trainer.plan.batch(step)
    unit = trainer.settings.shard_size if trainer.settings.mode == "exact" else 1
    done = trainer.in_flight.group if step == trainer.step else ()
    return _joined(ids, _left_for(trainer, -(-len(ids) // unit), done), unit)


def chance_of(seed: int, step: int, ids: Ids) -> int:
    """The seed of what is left to chance in the network (dropout, stochastic depth) for these samples.

    By what is trained and not by what this process has drawn before: a worker that joins, or that does
    a step again, drops the same.
    """
    drawn = np.random.SeedSequence([seed, step, int(ids[0])]).generate_state(1, np.uint64)
    return int(drawn[0]) % 2**63


def forward_backward(trainer: Trainer, ids: Ids, global_batch: int) -> float:
    """Add these samples' part of the step's gradients; their part of the mean loss over the global batch.

    Raises:
        PeerLostError: the group broke so long ago that the agent would soon take this worker for hung.
    """
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
