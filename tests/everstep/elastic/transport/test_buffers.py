"""Buffers that forward passes change, replace or resize."""

import pytest
import torch
from torch import nn

from everstep.elastic.transport.buffers import Buffers
from everstep.elastic.transport.exact_reducer import ExactReducer
from everstep.elastic.transport.reducer import GradientReducer
from everstep.errors import EverstepError


class Replacing(nn.Module):
    """A model whose forward pass replaces its statistics."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.mean = self.mean + self.layer(inputs).mean(0) * 0 + inputs.mean(0)
        result: torch.Tensor = self.layer(inputs)
        return result


def test_a_replaced_buffer_is_averaged_over_the_workers() -> None:
    net = Replacing()
    reducer = GradientReducer(net, scalars=1)
    reducer.clear()
    for weight, value in ((0.25, 1.0), (0.75, 5.0)):
        reducer.begin_microbatch()
        net(torch.full((4, 2), value)).sum().backward()
        reducer.add_microbatch(weight)
    reducer.sum([0.0], lambda _: None)

    assert net.mean.tolist() == [4.0, 4.0]
    assert not net.mean.requires_grad


def test_a_replaced_buffer_is_averaged_in_exact_mode() -> None:
    net = Replacing()
    reducer = ExactReducer(net, scalars=1, shards=2)
    reducer.clear()
    for value in (1.0, 5.0):
        reducer.begin_shard()
        (net(torch.full((4, 2), value)).sum() / 100).backward()
        reducer.add_shard(4)
    reducer.sum(8, [0], lambda _: None)

    assert net.mean.tolist() == [3.0, 3.0]


def test_an_interrupted_pass_leaves_the_values_from_before_it() -> None:
    net = Replacing()
    reducer = GradientReducer(net, scalars=1)
    reducer.clear()
    reducer.begin_microbatch()
    net(torch.ones(4, 2))
    reducer.roll_back()

    assert net.mean.tolist() == [0.0, 0.0]


def test_values_that_the_program_sets_between_two_steps_are_kept() -> None:
    net = Replacing()
    buffers = Buffers(net)
    net.mean = torch.ones(2)

    buffers.save()
    net.mean = torch.zeros(2)
    buffers.restore()

    assert net.mean.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "value", [torch.tensor([False, True]), torch.tensor([0, 3]), torch.tensor([1j])]
)
@pytest.mark.parametrize("replaces", [True, False])
def test_a_pass_that_changes_a_mask_or_indices_is_refused(
    value: torch.Tensor, replaces: bool
) -> None:
    net = nn.Module()
    net.register_buffer("seen", torch.zeros_like(value))
    buffers = Buffers(net)
    buffers.save()
    buffers.begin_pass()
    if replaces:
        net.seen = value
    else:
        net.get_buffer("seen").copy_(value)

    with pytest.raises(EverstepError, match="changes the buffer 'seen'"):
        buffers.end_pass()


def test_a_pass_that_writes_equal_values_is_accepted() -> None:
    net = nn.Module()
    net.register_buffer("mask", torch.tensor([True, False]))
    buffers = Buffers(net)
    buffers.begin_pass()
    net.get_buffer("mask").copy_(torch.tensor([True, False]))

    buffers.end_pass()


def test_a_cache_of_another_shape_is_left_to_the_model() -> None:
    net = nn.Module()
    net.register_buffer("cache", torch.zeros(0), persistent=False)
    buffers = Buffers(net)
    net.cache = torch.ones(3)

    buffers.restore()

    assert len(net.get_buffer("cache")) == 3
