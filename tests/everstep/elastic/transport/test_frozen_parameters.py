"""Frozen parameters that a forward pass changes: each worker would have its own."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from everstep.elastic.transport.exact_reducer import ExactReducer
from everstep.elastic.transport.frozen_parameters import CHECKED_STEPS
from everstep.elastic.transport.reducer import GradientReducer
from everstep.errors import EverstepError


class MomentumEncoder(nn.Module):
    """A model with a second, frozen layer that follows the first one in each forward pass.

    Args:
        update: function that changes the frozen layer; it gets the layer and the new values of its weight.
    """

    def __init__(self, update: Callable[[nn.Linear, torch.Tensor], object] | None) -> None:
        super().__init__()
        self.query, self.key, self._update = nn.Linear(2, 2), nn.Linear(2, 2), update
        self.key.requires_grad_(False)
        self.key.load_state_dict(self.query.state_dict())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._update:
            with torch.no_grad():
                self._update(self.key, self.key.weight * 0.9 + self.query.weight * 0.1)
        loss: torch.Tensor = (self.query(x) - self.key(x)).sum()
        return loss


def replace_parameter(layer: nn.Linear, weight: torch.Tensor) -> None:
    layer.weight = nn.Parameter(weight, requires_grad=False)


UPDATES = {
    "the data": lambda layer, weight: setattr(layer.weight, "data", weight),
    "the elements": lambda layer, weight: layer.weight.copy_(weight),
    "the elements of the data": lambda layer, weight: layer.weight.data.copy_(weight),
    "the parameter": replace_parameter,
}


def take_steps(net: MomentumEncoder) -> None:
    """Take steps in `live` mode, which change the first layer."""
    reducer = GradientReducer(net, scalars=1)
    for _ in range(2 * CHECKED_STEPS):
        reducer.clear()
        reducer.begin_microbatch(single=True)
        net(torch.ones(1, 2)).backward()
        reducer.add_microbatch(1.0)
        reducer.sum([0.0], lambda _: None)
        with torch.no_grad():
            net.query.weight.add_(1)


def take_exact_steps(net: MomentumEncoder) -> None:
    """Take steps in `exact` mode, which change the first layer."""
    reducer = ExactReducer(net, scalars=1, shards=1)
    for _ in range(2 * CHECKED_STEPS):
        reducer.clear()
        reducer.begin_shard()
        (net(torch.ones(1, 2)) / 100).backward()
        reducer.add_shard(1)
        reducer.sum(1, [0], lambda _: None)
        with torch.no_grad():
            net.query.weight.add_(1)


@pytest.mark.parametrize("take", [take_steps, take_exact_steps])
@pytest.mark.parametrize("changed", UPDATES)
def test_a_forward_pass_that_changes_a_frozen_parameter_ends_the_run(
    changed: str, take: Callable[[MomentumEncoder], None]
) -> None:
    with pytest.raises(EverstepError, match=r"changes the parameter 'key.weight'.*no gradient"):
        take(MomentumEncoder(UPDATES[changed]))


@pytest.mark.parametrize("take", [take_steps, take_exact_steps])
def test_a_frozen_parameter_may_change_between_two_steps(
    take: Callable[[MomentumEncoder], None],
) -> None:
    net = MomentumEncoder(None)
    net.query.weight = net.key.weight  # a step changes both

    take(net)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64]
)
def test_a_frozen_parameter_of_any_type_counts_as_unchanged(dtype: torch.dtype) -> None:
    net = MomentumEncoder(None)
    values = torch.tensor([1.0, torch.nan]).to(dtype)
    net.table = nn.Parameter(values, requires_grad=False)

    take_steps(net)


def test_a_forward_pass_may_normalize_the_rows_of_a_frozen_table() -> None:
    # The result does not depend on which rows a worker has normalized before.
    net = MomentumEncoder(None)
    net.key = nn.Embedding.from_pretrained(torch.full((4, 2), 3.0), max_norm=1.0)  # type: ignore[no-untyped-call]
    net.forward = lambda x: net.query(x).sum() + net.key(torch.tensor([1])).sum()  # type: ignore[method-assign]

    take_steps(net)

    assert net.key.weight[1].norm().item() == pytest.approx(1.0)


def test_a_frozen_shard_is_not_checked_since_fsdp_replaces_it_by_the_whole_parameter() -> None:
    net = MomentumEncoder(UPDATES["the elements"])
    net.key.weight.to_local = lambda: net.key.weight  # type: ignore[attr-defined] # as a DTensor

    take_steps(net)
