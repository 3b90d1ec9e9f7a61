"""The comparison of a sharded model with the unsharded model, without processes."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import fsdp_in_node


@pytest.mark.parametrize("nan_parameter", ["weight", "bias"])
def test_the_difference_from_a_parameter_with_nan_is_nan(
    nan_parameter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsdp_in_node, "local", lambda shard: shard.chunk(2)[0])
    model, unsharded = nn.Linear(4, 4), nn.Linear(4, 4)
    getattr(model, nan_parameter).data.fill_(math.nan)
    worker: Any = SimpleNamespace(model=model, _rank=0)

    assert math.isnan(fsdp_in_node.Worker.difference(worker, unsharded))


def test_the_greatest_difference_of_all_parameters_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsdp_in_node, "local", lambda shard: shard.chunk(2)[0])
    unsharded = nn.Linear(4, 4)
    model = nn.Linear(4, 4)
    model.load_state_dict(unsharded.state_dict())
    with torch.no_grad():
        model.bias[0] += 0.5

    worker: Any = SimpleNamespace(model=model, _rank=0)

    assert fsdp_in_node.Worker.difference(worker, unsharded) == pytest.approx(0.5)
