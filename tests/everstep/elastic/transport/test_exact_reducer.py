"""Sums of gradients in integers, equal for all group sizes."""

import copy
import hashlib
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis.strategies import integers, lists
from torch import nn

from everstep.elastic.data_order.sampler import share
from everstep.elastic.transport.exact_reducer import (
    MAX_RANGE,
    MIN_RANGE,
    ExactReducer,
    split_into_shards,
)
from everstep.elastic.transport.group import PeerLostError
from everstep.elastic.transport.reducer import AllReduce
from tests.effort import examples

BATCH, SHARD, STEPS = 22, 4, 3


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, since the number of threads affects the last bits of a sum."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2))
    return layers.to(memory_format=torch.channels_last)


@dataclass
class Worker:
    """A worker of a group; its copy by `copy.deepcopy` acts as a joiner that has received its state."""

    net: nn.Sequential
    optimizer: torch.optim.Optimizer
    reducer: ExactReducer
    repeated_steps: int = 0

    def step(
        self, images: torch.Tensor, rank: int, size: int, all_reduce: AllReduce, scale: float = 1
    ) -> None:
        shards = split_into_shards(np.arange(BATCH), SHARD)
        counts = None
        while counts is None:
            self.reducer.clear()
            for ids in shards[share(len(shards), rank, size)]:
                (self.net(images[ids]).square().sum() * (scale / BATCH)).backward()
                assert self.reducer.add_shard(len(ids))
            counts = self.reducer.sum(BATCH, [1], all_reduce)
            self.repeated_steps += counts is None
        assert counts == [size]
        self.reducer.adapt_ranges()
        self.optimizer.step()

    def digest(self) -> str:
        tensors = [*self.net.state_dict().values(), self.reducer.ranges]
        tensors += [parameter.grad for parameter in self.net.parameters()]
        sha256 = hashlib.sha256()
        for tensor in tensors:
            sha256.update(tensor.detach().contiguous().numpy().tobytes())
        return sha256.hexdigest()


def worker() -> Worker:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    return Worker(net, optimizer, ExactReducer(net, scalars=1, shards=-(-BATCH // SHARD)))


def all_reduce_of(size: int) -> AllReduce:
    """Return the all-reduce function that `size` threads share."""
    barrier, contributions = threading.Barrier(size), dict[int, torch.Tensor]()

    def all_reduce(tensor: torch.Tensor) -> None:
        contributions[threading.get_ident()] = tensor.clone()
        barrier.wait(100)
        tensor.copy_(torch.stack(list(contributions.values())).sum(0))
        barrier.wait(100)

    return all_reduce


def train_worker(sizes: list[int], last_scale: int = 1) -> Worker:
    """Return a worker after a step in a group of each size; the loss of the last step is scaled by `last_scale`."""
    first_worker = worker()
    for number, size in enumerate(sizes):
        torch.manual_seed(number)
        images = torch.randn(BATCH, 3, 5, 5)
        scale = last_scale if number == len(sizes) - 1 else 1
        workers = [first_worker, *(copy.deepcopy(first_worker) for _ in range(size - 1))]
        all_reduce = all_reduce_of(size)
        threads = [
            threading.Thread(target=worker.step, args=(images, rank, size, all_reduce, scale))
            for rank, worker in enumerate(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert len({member.digest() for member in workers}) == 1, "workers differ"
    return first_worker


def test_a_step_sums_as_many_bytes_as_the_reducer_reports() -> None:
    lone_worker, sizes = worker(), list[int]()

    lone_worker.step(torch.randn(BATCH, 3, 5, 5), 0, 1, lambda tensor: sizes.append(tensor.nbytes))

    assert lone_worker.repeated_steps == 0
    assert sum(sizes) == lone_worker.reducer.summed_bytes


@settings(max_examples=examples(15))  # each example computes six or more steps of a worker
@given(sizes=lists(integers(1, 4), min_size=STEPS, max_size=STEPS))
def test_the_result_is_bitwise_independent_of_the_group_sizes(sizes: list[int]) -> None:
    assert train_worker(sizes).digest() == train_worker([1] * STEPS).digest()


@pytest.mark.parametrize("size", [1, 3])
def test_a_gradient_that_exceeds_its_range_repeats_the_step_without_loss_of_precision(
    size: int,
) -> None:
    normal_worker, overflowing_worker = (
        train_worker([1, 1, 1]),
        train_worker([1, size, size], last_scale=10_000),
    )

    assert normal_worker.repeated_steps == 0
    assert overflowing_worker.repeated_steps > 0
    assert overflowing_worker.digest() == train_worker([1, 1, 1], last_scale=10_000).digest()


@pytest.mark.parametrize("computed_shards", [0, 1, 4, 6])
def test_shards_computed_before_the_group_failed_are_kept_bitwise(
    computed_shards: int,
) -> None:
    torch.manual_seed(0)
    images, only_worker = torch.randn(BATCH, 3, 5, 5), worker()
    shards = split_into_shards(np.arange(BATCH), SHARD)

    def add_shards(batches: list[np.ndarray]) -> None:
        for ids in batches:
            only_worker.reducer.begin_shard()
            (only_worker.net(images[ids]).square().sum() / BATCH).backward()
            assert only_worker.reducer.add_shard(len(ids))

    def raise_peer_lost(tensor: torch.Tensor) -> None:
        tensor.fill_(9)
        raise PeerLostError("gone")

    only_worker.reducer.clear()
    add_shards(shards[:computed_shards])
    only_worker.reducer.begin_shard()
    only_worker.net(images[:SHARD]).sum().backward()  # and an incomplete shard
    with pytest.raises(PeerLostError):
        only_worker.reducer.sum(BATCH, [1], raise_peer_lost)
    assert only_worker.reducer.roll_back()
    add_shards(shards[computed_shards:])
    only_worker.reducer.sum(BATCH, [1], lambda tensor: None)
    only_worker.reducer.adapt_ranges()
    only_worker.optimizer.step()

    assert only_worker.digest() == train_worker([1]).digest()


def test_units_become_finer_as_gradients_become_smaller() -> None:
    only_worker = worker()
    initial_ranges = only_worker.reducer.ranges.clone()
    for factor in (1e-2, 1e-4):
        only_worker.step(torch.randn(BATCH, 3, 5, 5), 0, 1, lambda tensor: None, factor)

    assert (only_worker.reducer.ranges < initial_ranges).any()
    assert (only_worker.reducer.ranges >= MIN_RANGE).all()


@pytest.mark.parametrize("gradient", [math.nan, math.inf, 2.0**MAX_RANGE])
def test_a_gradient_out_of_range_is_reported(gradient: float) -> None:
    only_worker = worker()
    only_worker.reducer.clear()
    only_worker.net(torch.randn(4, 3, 5, 5)).sum().backward()
    weight = only_worker.net[0].weight
    assert isinstance(weight, nn.Parameter)
    assert weight.grad is not None
    weight.grad[0, 0, 0, 0] = gradient

    assert not only_worker.reducer.add_shard(4)


def test_the_gradient_equals_the_ordinary_sum_over_shards() -> None:
    plain_model, exact_model = model(), model()
    images = torch.randn(BATCH, 3, 5, 5)
    reducer = ExactReducer(exact_model, scalars=1, shards=6)
    reducer.clear()
    for ids in split_into_shards(np.arange(BATCH), SHARD):
        (plain_model(images[ids]).square().sum() / BATCH).backward()
        (exact_model(images[ids]).square().sum() / BATCH).backward()
        reducer.add_shard(len(ids))
    reducer.sum(BATCH, [0], lambda flat: None)

    for parameter, expected in zip(exact_model.parameters(), plain_model.parameters(), strict=True):
        assert parameter.grad is not None
        assert expected.grad is not None
        assert torch.allclose(parameter.grad, expected.grad, atol=1e-6)
        assert parameter.grad.stride() == parameter.stride()


def test_a_step_that_is_rolled_back_does_not_change_the_statistics() -> None:
    net = model()
    reducer = ExactReducer(net, scalars=1, shards=1)
    initial_buffers = [buffer.clone() for buffer in net.buffers()]
    reducer.clear()
    net(torch.randn(4, 3, 5, 5)).sum().backward()

    reducer.roll_back()

    for buffer, expected in zip(net.buffers(), initial_buffers, strict=True):
        assert torch.equal(buffer, expected)


@pytest.mark.parametrize("samples", [1, 4, 5, 23])
def test_shards_are_the_batch_in_order_and_all_but_the_last_have_one_size(samples: int) -> None:
    ids = np.arange(samples)

    *full_shards, last_shard = split_into_shards(ids, SHARD)

    assert np.concatenate([*full_shards, last_shard]).tolist() == ids.tolist()
    assert all(len(shard) == SHARD for shard in full_shards)
    assert 1 <= len(last_shard) <= SHARD


def test_the_gradients_take_no_memory_besides_the_sums() -> None:
    only_worker, received = worker(), list[int]()

    only_worker.step(
        torch.randn(BATCH, 3, 5, 5),
        0,
        1,
        lambda tensor: received.append(tensor.untyped_storage().data_ptr()),
    )

    storages = {
        parameter.grad.untyped_storage().data_ptr()
        for parameter in only_worker.net.parameters()
        if parameter.grad is not None
    }
    assert storages == {received[-1]}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_gradients_of_other_types_keep_their_type(dtype: torch.dtype) -> None:
    net = nn.Linear(4, 2).to(dtype)
    reducer = ExactReducer(net, scalars=1, shards=1)
    reducer.clear()
    net(torch.ones(3, 4, dtype=dtype)).sum().backward()
    expected = [p.grad.clone() for p in net.parameters() if p.grad is not None]

    assert reducer.add_shard(3)
    reducer.sum(3, [0], lambda flat: None)
    reducer.adapt_ranges()

    for parameter, gradient in zip(net.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert parameter.grad.dtype == dtype
        assert torch.equal(parameter.grad, gradient)


def test_sparse_gradients_are_summed_like_dense_ones() -> None:
    net = nn.Embedding(4, 2, sparse=True)
    reducer = ExactReducer(net, scalars=1, shards=1)
    reducer.clear()
    (net(torch.tensor([1, 1, 3])).sum() / 4).backward()

    assert reducer.add_shard(3)
    reducer.sum(3, [0], lambda _: None)

    assert net.weight.grad is not None
    assert net.weight.grad[:, 0].tolist() == [0, 0.5, 0, 0.25]
