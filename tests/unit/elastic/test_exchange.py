from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis.strategies import integers, lists
from torch import nn

from everstep.elastic.exchange import StepExchange, _buckets, sum_numbers
from everstep.elastic.group import PeerLostError


def alone(tensor: torch.Tensor) -> None:
    """The sum over one worker."""


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    layers(torch.zeros(1, 3, 5, 5))
    return layers.to(memory_format=torch.channels_last)


def test_gradients_have_their_usual_values_and_layout():
    plain, exchanged = model(), model()
    exchange = StepExchange(exchanged, scalars=1)
    batch = torch.randn(6, 3, 5, 5)
    plain(batch).square().mean().backward()

    exchange.clear()
    exchange.begin_part()
    exchanged(batch).square().mean().backward()
    exchange.add_part(1.0)
    exchange.sum([0.0], alone)

    for mine, theirs in zip(exchanged.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)
        assert mine.grad.stride() == mine.stride(), "another layout would cost a copy at each step"


def test_clearing_starts_a_new_sum():
    net = model()
    exchange = StepExchange(net, scalars=1)
    exchange.clear()
    exchange.begin_part()
    net(torch.randn(4, 3, 5, 5)).sum().backward()
    exchange.clear()
    exchange.begin_part()

    exchange.sum([0.0], alone)
    assert not any(parameter.grad.any() for parameter in net.parameters())


def test_compressed_gradients_keep_three_digits_and_the_numbers_that_ride_along_all_of_theirs():
    plain, compressed = model(), model()
    batch = torch.randn(6, 3, 5, 5)
    plain(batch).square().mean().backward()
    exchange = StepExchange(compressed, scalars=2, compress=True)
    sizes = []

    def total(tensor: torch.Tensor) -> None:
        sizes.append(tensor.numel() * tensor.element_size())

    exchange.clear()
    exchange.begin_part()
    compressed(batch).square().mean().backward()
    exchange.add_part(1.0)
    numbers = exchange.sum([2.0**23 + 1, 0.0], total)

    assert numbers == [2.0**23 + 1, 0.0]
    weights = sum(parameter.numel() for parameter in plain.parameters())
    assert sizes[0] == 2 * weights
    for mine, theirs in zip(compressed.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=2**-8, atol=1e-9)
    assert torch.equal(compressed[1].running_mean, plain[1].running_mean)


class Peer:
    """Sums with a worker that has the same gradients, bucket by bucket, and remembers what was begun."""

    def __init__(self) -> None:
        self.begun: list[torch.Tensor] = []
        self.waited = 0

    def __call__(self, tensor: torch.Tensor) -> Callable[[], None]:
        self.begun.append(tensor)

        def end() -> None:
            tensor.mul_(2)
            self.waited += 1

        return end


SMALL = 64  # bytes: some buckets of a layer or two


@pytest.mark.parametrize("compress", [False, True])
def test_sums_that_begin_early_are_those_that_begin_at_the_end(compress):
    late, early = model(), model()
    batch, peer = torch.randn(6, 3, 5, 5), Peer()
    at_the_end = StepExchange(late, scalars=1, compress=compress)
    bucketed = StepExchange(early, scalars=1, compress=compress, bucket_bytes=SMALL)

    at_the_end.clear()
    at_the_end.begin_part()
    late(batch).square().mean().backward()
    at_the_end.add_part(0.5)
    due = at_the_end.sum([3.0], lambda tensor: tensor.mul_(2))
    bucketed.clear()
    bucketed.begin_part(peer)
    early(batch).square().mean().backward()
    bucketed.add_part(0.5)
    got = bucketed.sum([3.0], alone)

    assert got == due == [6.0]
    assert peer.waited == len(peer.begun) > 2, "gradients in more than one part, and the rest"
    for mine, theirs in zip(early.parameters(), late.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    assert torch.equal(early[1].running_mean, late[1].running_mean)


def test_the_last_layers_gradients_travel_while_the_first_layers_are_not_there_yet():
    net, peer = model(), Peer()
    exchange = StepExchange(net, scalars=1, bucket_bytes=SMALL)
    begun_before_the_first_layer = []
    net[0].weight.register_hook(lambda _: begun_before_the_first_layer.append(len(peer.begun)))

    exchange.clear()
    exchange.begin_part(peer)
    net(torch.randn(4, 3, 5, 5)).sum().backward()

    assert begun_before_the_first_layer[0] > 0


def test_a_worker_without_samples_begins_the_same_sums_in_the_same_order():
    sizes = []
    for samples in (4, 0):
        net, peer = model(), Peer()
        exchange = StepExchange(net, scalars=1, bucket_bytes=SMALL)
        exchange.clear()
        exchange.begin_part(peer)
        if samples:
            net(torch.randn(samples, 3, 5, 5)).sum().backward()
        exchange.add_part(samples / 4)
        exchange.sum([0.0], alone)
        sizes.append([tensor.numel() for tensor in peer.begun])

    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("early", [True, False])
def test_a_sum_that_was_given_up_cannot_write_into_the_next_step(early):
    net, peer = model(), Peer()
    exchange = StepExchange(net, scalars=1, bucket_bytes=SMALL)

    def lost(tensor: torch.Tensor) -> None:
        peer(tensor)
        raise PeerLostError("gone")

    exchange.clear()
    exchange.begin_part(peer if early else None)
    net(torch.randn(4, 3, 5, 5)).sum().backward()
    exchange.add_part(1.0)
    if not early:
        with pytest.raises(PeerLostError):
            exchange.sum([0.0], lost)
    exchange.roll_back()
    exchange.clear()
    exchange.begin_part()
    for tensor in peer.begun:  # the network of the group that is gone wakes up
        tensor.fill_(7)

    assert peer.begun
    assert all(parameter.grad is None for parameter in net.parameters())


def lost(tensor: torch.Tensor) -> Callable[[], None]:
    """A sum whose group is no more."""
    tensor.fill_(9)  # gloo may have written some of it already
    raise PeerLostError("gone")


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_what_was_computed_before_the_group_broke_is_kept(early, compress):
    whole, broken = model(), model()
    batch = torch.randn(6, 3, 5, 5)
    parts = ((batch[:4], 4 / 6), (batch[4:], 2 / 6))
    at_once = StepExchange(whole, scalars=1, compress=compress)
    kept = StepExchange(broken, scalars=1, compress=compress, bucket_bytes=SMALL)

    at_once.clear()
    for images, weight in parts:
        at_once.begin_part()
        whole(images).square().sum().backward()
        at_once.add_part(weight)
    due = at_once.sum([3.0], alone)

    before, batches = broken[1].running_mean.clone(), int(broken[1].num_batches_tracked)
    kept.clear()
    kept.begin_part(lost if early else None)
    broken(parts[0][0]).square().sum().backward()
    kept.add_part(parts[0][1])
    with pytest.raises(PeerLostError):
        kept.sum([3.0], lost)
    assert kept.roll_back()
    assert torch.equal(broken[1].running_mean, before)
    kept.begin_part()
    broken(parts[1][0]).square().sum().backward()
    kept.add_part(parts[1][1])

    assert kept.sum([3.0], alone) == due
    for mine, theirs in zip(broken.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    for mine, theirs in zip(broken.buffers(), whole.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    assert broken[1].num_batches_tracked == batches + 1, "a step is one batch"


def test_a_part_that_was_left_half_way_spoils_those_before():
    net = model()
    exchange = StepExchange(net, scalars=1)
    exchange.clear()
    exchange.begin_part()
    net(torch.randn(4, 3, 5, 5)).sum().backward()
    exchange.add_part(0.5)
    exchange.begin_part()
    net(torch.randn(4, 3, 5, 5))

    assert not exchange.roll_back()


@given(sizes=lists(integers(1, 100), min_size=1, max_size=30), least=integers(1, 200))
def test_every_parameter_is_in_one_bucket_and_none_is_too_small_but_the_last(sizes, least):
    buckets = _buckets(sizes, least)

    assert [index for bucket in reversed(buckets) for index in bucket] == list(range(len(sizes)))
    assert all(sum(sizes[i] for i in bucket) >= least for bucket in buckets[:-1])


def test_small_numbers_ride_along():
    exchange = StepExchange(model(), scalars=3)
    exchange.clear()
    exchange.begin_part()

    assert exchange.sum([1.5, 0.0, 2.0], alone) == [1.5, 0.0, 2.0]


def test_batch_statistics_of_one_worker_stay_as_they_are():
    net = model()
    exchange = StepExchange(net, scalars=1)
    exchange.clear()
    exchange.begin_part()
    net(torch.randn(4, 3, 5, 5)).sum().backward()
    before = net[1].running_mean.clone()

    exchange.add_part(1.0)
    exchange.sum([0.0], alone)

    assert torch.equal(net[1].running_mean, before)


def test_counts_are_summed_exactly():
    assert sum_numbers([2.0**40 + 1, 3.0], torch.device("cpu"), alone) == pytest.approx(
        [2.0**40 + 1, 3.0], abs=0
    )
