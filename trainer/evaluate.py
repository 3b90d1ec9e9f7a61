"""Accuracy and loss on the test set, shared by all workers, counted exactly."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from everstep.elastic.exchange import sum_numbers
from everstep.elastic.group import Seat
from everstep.elastic.sampler import Ids, share
from everstep.elastic.worker import Group
from trainer.data import Asked, Dataset
from trainer.data.device import Prepare
from trainer.models import Precision

CHUNK = 1500  # images between two looks at whether somebody wants to regroup
PIECE = 256  # images computed at a time: photographs take memory


@dataclass(frozen=True)
class Score:
    """Over the whole test set."""

    accuracy: float
    loss: float
    images: int


def evaluate(
    model: nn.Module,
    dataset: Dataset,
    prepare: Prepare,
    precision: Precision,
    seat: Seat,
    group: Group,
) -> Score | int:
    """Score of the model; or, where the workers agreed to regroup on the way, how many nodes' workers leave."""
    device = next(model.parameters()).device
    model.eval()
    totals = np.zeros(3)
    for first in range(0, len(dataset), CHUNK):
        mine, next_mine = (_share(at, len(dataset), seat) for at in (first, first + CHUNK))
        dataset.expect([Asked(ids=mine), Asked(ids=next_mine)])
        counted = np.zeros(3)
        for piece in range(0, len(mine), PIECE):
            group.check()
            ids = mine[piece : piece + PIECE]
            counted += _count(model, dataset, prepare, precision, ids)
        wishes = [float(group.regroup_wanted), float(group.leaving)]
        *sums, regroup, leavers = sum_numbers([*counted, *wishes], device, seat.sum)
        if regroup:
            return round(leavers)
        totals += sums
    correct, loss, images = totals
    return Score(correct / images, loss / images, int(images))


def _share(first: int, samples: int, seat: Seat) -> Ids:
    """This worker's part of the chunk that begins at `first`."""
    chunk = np.arange(first, min(first + CHUNK, samples))
    return chunk[share(len(chunk), seat.rank, seat.world_size)]


@torch.no_grad()
def _count(
    model: nn.Module, dataset: Dataset, prepare: Prepare, precision: Precision, ids: Ids
) -> tuple[float, float, float]:
    """Correct answers, summed loss and number of these samples."""
    images, labels = dataset.test_batch(ids)
    device = next(model.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=precision.autocast):
        outputs = model(prepare(images)).float()
    truth = torch.from_numpy(labels).to(device)
    loss = nn.functional.cross_entropy(outputs, truth, reduction="sum")
    return float((outputs.argmax(1) == truth).sum()), float(loss), float(len(ids))
