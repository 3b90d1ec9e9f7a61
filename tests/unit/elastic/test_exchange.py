import pytest
import torch
from torch import nn

from everstep.elastic.exchange import StepExchange, sum_numbers


def alone(tensor: torch.Tensor) -> None:
    """The sum over one worker."""


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    layers(torch.zeros(1, 3, 5, 5))
    return layers.to(memory_format=torch.channels_last)


def test_gradients_are_views_of_one_buffer_and_have_their_usual_values():
    plain, exchanged = model(), model()
    exchange = StepExchange(exchanged, scalars=1)
    batch = torch.randn(6, 3, 5, 5)
    plain(batch).square().mean().backward()

    exchange.clear()
    exchanged(batch).square().mean().backward()
    exchange.sum(1.0, [0.0], alone)

    for mine, theirs in zip(exchanged.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)
        assert mine.grad.stride() == mine.stride(), "another layout would cost a copy at each step"


def test_clearing_starts_a_new_sum():
    net = model()
    exchange = StepExchange(net, scalars=1)
    exchange.clear()
    net(torch.randn(4, 3, 5, 5)).sum().backward()
    exchange.clear()

    assert all(not parameter.grad.any() for parameter in net.parameters())


def test_compressed_gradients_keep_three_digits_and_the_numbers_that_ride_along_all_of_theirs():
    plain, compressed = model(), model()
    batch = torch.randn(6, 3, 5, 5)
    plain(batch).square().mean().backward()
    exchange = StepExchange(compressed, scalars=2, compress=True)
    sizes = []

    def total(tensor: torch.Tensor) -> None:
        sizes.append(tensor.numel() * tensor.element_size())

    exchange.clear()
    compressed(batch).square().mean().backward()
    numbers = exchange.sum(1.0, [2.0**23 + 1, 0.0], total)

    assert numbers == [2.0**23 + 1, 0.0]
    weights = sum(parameter.numel() for parameter in plain.parameters())
    assert sizes[0] == 2 * weights
    for mine, theirs in zip(compressed.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=2**-8, atol=1e-9)
    assert torch.equal(compressed[1].running_mean, plain[1].running_mean)


def test_small_numbers_ride_along():
    exchange = StepExchange(model(), scalars=3)
    exchange.clear()

    assert exchange.sum(1.0, [1.5, 0.0, 2.0], alone) == [1.5, 0.0, 2.0]


def test_batch_statistics_of_one_worker_stay_as_they_are():
    net = model()
    exchange = StepExchange(net, scalars=1)
    exchange.clear()
    net(torch.randn(4, 3, 5, 5)).sum().backward()
    before = net[1].running_mean.clone()

    exchange.sum(1.0, [0.0], alone)

    assert torch.equal(net[1].running_mean, before)


def test_counts_are_summed_exactly():
    assert sum_numbers([2.0**40 + 1, 3.0], torch.device("cpu"), alone) == pytest.approx(
        [2.0**40 + 1, 3.0], abs=0
    )
