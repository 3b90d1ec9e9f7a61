"""Accuracy and loss on the test set, shared by all workers, counted exactly."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from everstep.elastic.exchange import sum_numbers
from everstep.elastic.group import Seat
from everstep.elastic.sampler import share
from everstep.elastic.worker import Group
from trainer.data import Dataset, Prepare
from trainer.models import Precision

CHUNK = 1500  # images between two looks at whether somebody wants to regroup


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
        chunk = np.arange(first, min(first + CHUNK, len(dataset)))
        mine = chunk[share(len(chunk), seat.rank, seat.world_size)]
        counted = _count(model, dataset, prepare, precision, mine)
        wishes = [float(group.regroup_wanted), float(group.leaving)]
        *sums, regroup, leavers = sum_numbers([*counted, *wishes], device, seat.sum)
        if regroup:
            return round(leavers)
        totals += sums
    correct, loss, images = totals
    return Score(correct / images, loss / images, int(images))


@torch.no_grad()
def _count(
    model: nn.Module, dataset: Dataset, prepare: Prepare, precision: Precision, ids: np.ndarray
) -> tuple[float, float, float]:
    """Correct answers, summed loss and number of these samples."""
    if len(ids) == 0:
        return 0.0, 0.0, 0.0
    images, labels = dataset.test_batch(ids)
    device = next(model.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=precision.autocast):
        outputs = model(prepare(images)).float()
    truth = torch.from_numpy(labels).to(device)
    loss = nn.functional.cross_entropy(outputs, truth, reduction="sum")
    return float((outputs.argmax(1) == truth).sum()), float(loss), float(len(ids))
