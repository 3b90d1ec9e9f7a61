"""Clipping of gradients by their norm."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from everstep import elastic
from everstep.elastic.training.clipping import (
    BITS,
    clip,
    clip_shards,
    gradient_norm,
    sum_of_squares,
)

PRECISION = 2.0**-BITS

numbers = st.floats(-1e6, 1e6, width=32)
tensors = st.lists(st.lists(numbers, min_size=1, max_size=20).map(torch.tensor), min_size=1)


def with_gradients(gradients: Sequence[torch.Tensor]) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    return parameters


@given(tensors)
def test_the_norm_has_16_correct_bits(gradients: list[torch.Tensor]) -> None:
    numbers = torch.cat(gradients).double().tolist()

    assert gradient_norm(gradients) == pytest.approx(math.hypot(*numbers), rel=PRECISION)


def test_the_norm_does_not_depend_on_the_order_in_which_a_device_adds_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(100_003, generator=generator)
    orders = [torch.randperm(len(gradient), generator=generator) for _ in range(20)]

    assert len({gradient_norm([gradient[order]]) for order in orders}) == 1
    float32_norms = {float(torch.linalg.vector_norm(gradient[order])) for order in orders}
    assert len(float32_norms) > 1, "the test needs numbers whose float32 norm depends on the order"


@given(tensors, st.floats(1e-3, 1e6))
def test_gradients_are_scaled_like_torch_does(
    gradients: list[torch.Tensor], max_norm: float
) -> None:
    parameters, expected = with_gradients(gradients), with_gradients(gradients)

    clip(parameters, max_norm)

    torch.nn.utils.clip_grad_norm_(expected, max_norm)
    for parameter, reference in zip(parameters, expected, strict=True):
        assert parameter.grad is not None
        assert reference.grad is not None
        torch.testing.assert_close(parameter.grad, reference.grad, rtol=2 * PRECISION, atol=1e-6)


def test_gradients_with_a_smaller_norm_do_not_change() -> None:
    (parameter,) = with_gradients([torch.tensor([3.0, 4.0])])

    clip([parameter], 6.0)

    assert parameter.grad is not None
    assert parameter.grad.tolist() == [3.0, 4.0]


def test_parameters_without_a_gradient_are_ignored() -> None:
    frozen = nn.Parameter(torch.ones(2))
    (parameter,) = with_gradients([torch.tensor([3.0, 4.0])])

    clip([frozen], 1.0)
    clip([frozen, parameter], 1.0)

    assert frozen.grad is None
    assert parameter.grad is not None
    assert parameter.grad.tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_the_norm_of_a_non_finite_gradient_is_not_finite(value: float) -> None:
    assert not math.isfinite(gradient_norm([torch.tensor([1.0, value])]))


def test_a_run_clips_the_gradients_of_each_step() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    run = elastic.Run(
        model, optimizer, dataset_size=4, global_batch=2, epochs=1, max_grad_norm=0.25
    )

    for batch in run:
        for _ in batch.microbatches():
            batch.backward(-100 * model.weight.sum())
        batch.step()

    assert model.weight.item() == pytest.approx(0.5)  # two steps


@given(tensors, st.floats(1e-3, 1e6))
def test_shards_are_scaled_like_the_whole_gradients(
    gradients: list[torch.Tensor], max_norm: float
) -> None:
    parameters, references = with_gradients(gradients), with_gradients(gradients)
    shards = (parameters[::2], parameters[1::2])

    squares = sum(sum_of_squares(shard) for shard in shards)
    for shard in shards:
        clip_shards(shard, max_norm, squares)

    clip(references, max_norm)
    for parameter, reference in zip(parameters, references, strict=True):
        assert parameter.grad is not None
        assert reference.grad is not None
        torch.testing.assert_close(parameter.grad, reference.grad, rtol=2 * PRECISION, atol=1e-6)


def test_the_gradients_of_all_shards_become_nan_if_one_is() -> None:
    first, second = with_gradients([torch.ones(3)]), with_gradients([torch.full((3,), math.nan)])

    clip_shards(first, 1.0, sum_of_squares(first) + sum_of_squares(second))

    assert first[0].grad is not None
    assert first[0].grad.isnan().all(), "as with a whole model"
