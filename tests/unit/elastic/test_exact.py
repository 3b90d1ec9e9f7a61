import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis.strategies import integers, lists
from torch import nn

from everstep.elastic.exact import ExactExchange, cut
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


def trained(sizes: list[int]) -> str:
    """sha256 of everything after one step for each size of the group, in which workers take turns."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    exchange = ExactExchange(net, scalars=1)
    for step, world_size in enumerate(sizes):
        torch.manual_seed(step)
        images = torch.randn(BATCH, 3, 5, 5)
        shards = cut(np.arange(BATCH), SHARD)
        exchange.clear()
        parts = []
        for rank in range(world_size):
            exchange._flat.zero_()  # each worker has a buffer of its own
            for ids in shards[share(len(shards), rank, world_size)]:
                (net(images[ids]).square().sum() / BATCH).backward()
                exchange.add_shard(len(ids))
            parts.append(exchange._flat.clone())

        def total(flat: torch.Tensor, parts: list[torch.Tensor] = parts) -> None:
            flat.copy_(torch.stack(parts).sum(0))

        exchange.sum(BATCH, [1], total)
        optimizer.step()
    digest = hashlib.sha256()
    for tensor in (*net.state_dict().values(), *(p.grad for p in net.parameters())):
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


@settings(max_examples=15, deadline=None)
@given(sizes=lists(integers(1, 4), min_size=STEPS, max_size=STEPS))
def test_the_bits_do_not_depend_on_how_many_workers_there_were_when(sizes):
    assert trained(sizes) == trained([1] * STEPS)


def test_the_gradient_is_that_of_the_plain_sum_over_shards():
    plain, exact = model(), model()
    images = torch.randn(BATCH, 3, 5, 5)
    exchange = ExactExchange(exact, scalars=1)
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
    exchange = ExactExchange(net, scalars=1)
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
