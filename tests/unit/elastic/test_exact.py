import copy
import hashlib
import math
import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis.strategies import integers, lists
from torch import nn

from everstep.elastic.exact import LEAST_RANGE, MOST_RANGE, ExactExchange, cut
from everstep.elastic.exchange import Total
from everstep.elastic.group import PeerLostError
from everstep.elastic.sampler import share

BATCH, SHARD, STEPS = 22, 4, 3


@pytest.fixture(autouse=True)
def one_thread():
    """How many threads share a sum decides its last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2))
    return layers.to(memory_format=torch.channels_last)


@dataclass
class Worker:
    """Of one group; `copy.deepcopy` of it is a joiner that has taken up its state."""

    net: nn.Module
    optimizer: torch.optim.Optimizer
    exchange: ExactExchange
    repeated: int = 0

    def step(
        self, images: torch.Tensor, rank: int, size: int, total: Total, loudness: float = 1
    ) -> None:
        shards = cut(np.arange(BATCH), SHARD)
        summed = None
        while summed is None:
            self.exchange.clear()
            for ids in shards[share(len(shards), rank, size)]:
                (self.net(images[ids]).square().sum() * (loudness / BATCH)).backward()
                assert self.exchange.add_shard(len(ids))
            summed = self.exchange.sum(BATCH, [1], total)
            self.repeated += summed is None
        assert summed == [size]
        self.exchange.follow()
        self.optimizer.step()

    def digest(self) -> str:
        tensors = [*self.net.state_dict().values(), self.exchange.ranges]
        tensors += [parameter.grad for parameter in self.net.parameters()]
        whole = hashlib.sha256()
        for tensor in tensors:
            whole.update(tensor.detach().contiguous().numpy().tobytes())
        return whole.hexdigest()


def worker() -> Worker:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    return Worker(net, optimizer, ExactExchange(net, scalars=1, shards=-(-BATCH // SHARD)))


def together(size: int) -> Total:
    """A sum over so many threads."""
    met, given = threading.Barrier(size), dict[int, torch.Tensor]()

    def total(tensor: torch.Tensor) -> None:
        given[threading.get_ident()] = tensor.clone()
        met.wait(20)
        tensor.copy_(torch.stack(list(given.values())).sum(0))
        met.wait(20)

    return total


def trained(sizes: list[int], louder: int = 1) -> Worker:
    """A worker that was in groups of these sizes for a step each; the last step's loss is so much `louder`."""
    lead = worker()
    for number, size in enumerate(sizes):
        torch.manual_seed(number)
        images = torch.randn(BATCH, 3, 5, 5)
        loudness = louder if number == len(sizes) - 1 else 1
        workers = [lead, *(copy.deepcopy(lead) for _ in range(size - 1))]
        total = together(size)
        threads = [
            threading.Thread(target=one.step, args=(images, rank, size, total, loudness))
            for rank, one in enumerate(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len({one.digest() for one in workers}) == 1, "workers differ"
    return lead


@settings(max_examples=15, deadline=None)
@given(sizes=lists(integers(1, 4), min_size=STEPS, max_size=STEPS))
def test_the_bits_do_not_depend_on_how_many_workers_there_were_when(sizes):
    assert trained(sizes).digest() == trained([1] * STEPS).digest()


@pytest.mark.parametrize("size", [1, 3])
def test_a_gradient_that_outgrows_its_unit_costs_a_repeated_step_and_no_bit(size):
    quiet, loud = trained([1, 1, 1]), trained([1, size, size], louder=10_000)

    assert quiet.repeated == 0
    assert loud.repeated > 0
    assert loud.digest() == trained([1, 1, 1], louder=10_000).digest()


@pytest.mark.parametrize("computed", [0, 1, 4, 6])
def test_shards_that_were_computed_before_the_group_broke_are_kept_to_the_bit(computed):
    torch.manual_seed(0)
    images, one = torch.randn(BATCH, 3, 5, 5), worker()
    shards = cut(np.arange(BATCH), SHARD)

    def add(these: list[np.ndarray]) -> None:
        for ids in these:
            one.exchange.begin_shard()
            (one.net(images[ids]).square().sum() / BATCH).backward()
            assert one.exchange.add_shard(len(ids))

    def lost(tensor: torch.Tensor) -> None:
        tensor.fill_(9)
        raise PeerLostError("gone")

    one.exchange.clear()
    add(shards[:computed])
    one.exchange.begin_shard()
    one.net(images[:SHARD]).sum().backward()  # and a shard that was left half-way
    with pytest.raises(PeerLostError):
        one.exchange.sum(BATCH, [1], lost)
    assert one.exchange.roll_back()
    add(shards[computed:])
    one.exchange.sum(BATCH, [1], lambda tensor: None)
    one.exchange.follow()
    one.optimizer.step()

    assert one.digest() == trained([1]).digest()


def test_units_become_finer_as_gradients_become_smaller():
    one = worker()
    before = one.exchange.ranges.clone()
    for factor in (1e-2, 1e-4):
        one.step(torch.randn(BATCH, 3, 5, 5), 0, 1, lambda tensor: None, factor)

    assert (one.exchange.ranges < before).any()
    assert (one.exchange.ranges >= LEAST_RANGE).all()


@pytest.mark.parametrize("gradient", [math.nan, math.inf, 2.0**MOST_RANGE])
def test_a_gradient_that_no_unit_is_for_is_told(gradient):
    one = worker()
    one.exchange.clear()
    one.net(torch.randn(4, 3, 5, 5)).sum().backward()
    one.net[0].weight.grad[0, 0, 0, 0] = gradient

    assert not one.exchange.add_shard(4)


def test_the_gradient_is_that_of_the_plain_sum_over_shards():
    plain, exact = model(), model()
    images = torch.randn(BATCH, 3, 5, 5)
    exchange = ExactExchange(exact, scalars=1, shards=6)
    exchange.clear()
    for ids in cut(np.arange(BATCH), SHARD):
        (plain(images[ids]).square().sum() / BATCH).backward()
        (exact(images[ids]).square().sum() / BATCH).backward()
        exchange.add_shard(len(ids))
    exchange.sum(BATCH, [0], lambda flat: None)

    for mine, due in zip(exact.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, due.grad, atol=1e-6)
        assert mine.grad.stride() == mine.stride()


def test_a_step_that_was_not_summed_leaves_the_statistics_as_they_were():
    net = model()
    exchange = ExactExchange(net, scalars=1, shards=1)
    before = [buffer.clone() for buffer in net.buffers()]
    exchange.clear()
    net(torch.randn(4, 3, 5, 5)).sum().backward()

    exchange.roll_back()

    for buffer, due in zip(net.buffers(), before, strict=True):
        assert torch.equal(buffer, due)


@pytest.mark.parametrize("samples", [1, 4, 5, 23])
def test_shards_are_the_batch_in_order(samples):
    ids = np.arange(samples)

    assert np.concatenate(cut(ids, SHARD)).tolist() == ids.tolist()
