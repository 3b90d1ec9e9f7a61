"""Sums of gradients in floating point."""

import copy
import functools
import sys
from collections.abc import Callable
from typing import NoReturn

import pytest
import torch
from hypothesis import given
from hypothesis.strategies import integers, lists
from torch import nn

from everstep.elastic.transport.exact_reducer import ExactReducer
from everstep.elastic.transport.group import PeerLostError
from everstep.elastic.transport.reducer import GradientReducer, _buckets, sum_scalars
from everstep.errors import EverstepError


@pytest.fixture(autouse=True, params=[False, True], ids=["copied early", "copied late"])
def copy_late(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test twice: gradients are copied during the backward pass, or after it."""
    reducer = functools.partial(GradientReducer, copy_late=request.param)
    monkeypatch.setattr(sys.modules[__name__], "GradientReducer", reducer)


def sum_over_one(tensor: torch.Tensor) -> None:
    """Sum over one worker, which changes nothing."""


def sum_over_two(tensor: torch.Tensor) -> None:
    """Sum over two workers with the same tensor, in place."""
    tensor.mul_(2)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    layers(torch.zeros(1, 3, 5, 5))
    return layers.to(memory_format=torch.channels_last)


def running_mean(net: nn.Sequential) -> torch.Tensor:
    """Return the running mean of the normalization layer."""
    mean = net[1].running_mean
    assert isinstance(mean, torch.Tensor)
    return mean


def batches_tracked(net: nn.Sequential) -> int:
    """Return the number of batches that the normalization layer has counted."""
    count = net[1].num_batches_tracked
    assert isinstance(count, torch.Tensor)
    return int(count)


def test_gradients_have_the_same_values_and_layout_as_without_the_reducer() -> None:
    plain_model, reduced_model = model(), model()
    reducer = GradientReducer(reduced_model, scalars=1)
    batch = torch.randn(6, 3, 5, 5)
    plain_model(batch).square().mean().backward()

    reducer.clear()
    reducer.begin_microbatch()
    reduced_model(batch).square().mean().backward()
    reducer.add_microbatch(1.0)
    reducer.sum([0.0], sum_over_one)

    for parameter, expected in zip(
        reduced_model.parameters(), plain_model.parameters(), strict=True
    ):
        assert parameter.grad is not None
        assert expected.grad is not None
        assert torch.allclose(parameter.grad, expected.grad, atol=1e-6)
        assert parameter.grad.stride() == parameter.stride(), (
            "another layout would cost a copy at each step"
        )


@pytest.mark.parametrize("single", [False, True])
def test_gradients_of_several_micro_batches_add_up(single: bool) -> None:
    plain_model, reduced_model = nn.Linear(3, 2), nn.Linear(3, 2)
    reduced_model.load_state_dict(plain_model.state_dict())
    reducer = GradientReducer(reduced_model, scalars=1)
    batch = torch.randn(6, 3)
    plain_model(batch).square().sum().backward()

    reducer.clear()
    for part in torch.split(batch, 2):
        reducer.begin_microbatch(single=single)
        reduced_model(part).square().sum().backward()
        reducer.add_microbatch(1 / 3)
    reducer.sum([0.0], sum_over_one)

    for parameter, expected in zip(
        reduced_model.parameters(), plain_model.parameters(), strict=True
    ):
        assert parameter.grad is not None
        assert expected.grad is not None
        assert torch.allclose(parameter.grad, expected.grad, rtol=1e-5)


def test_clearing_starts_a_new_sum() -> None:
    net = model()
    reducer = GradientReducer(net, scalars=1)
    reducer.clear()
    reducer.begin_microbatch()
    net(torch.randn(4, 3, 5, 5)).sum().backward()
    reducer.clear()
    reducer.begin_microbatch()

    reducer.sum([0.0], sum_over_one)
    for parameter in net.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_a_backward_pass_outside_a_micro_batch_changes_no_sum() -> None:
    net = nn.Linear(2, 1, bias=False)
    reducer = GradientReducer(net, scalars=1)
    reducer.clear()
    reducer.begin_microbatch()
    net(torch.ones(1, 2)).sum().backward()
    reducer.add_microbatch(1.0)

    net(torch.full((1, 2), 5.0)).sum().backward()
    reducer.sum([0.0], sum_over_one)

    assert net.weight.grad is not None
    assert net.weight.grad.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("single", [False, True])
def test_a_layer_that_a_step_does_not_use_has_a_gradient_of_zero(single: bool) -> None:
    layers = nn.ModuleList([nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)])
    reducer = GradientReducer(layers, scalars=1)
    for used_layers in (layers, layers[:1]):  # the second step must not repeat the first one's
        reducer.clear()
        reducer.begin_microbatch(single=single)
        for layer in used_layers:
            layer(torch.ones(1, 2)).sum().backward()
        reducer.add_microbatch(1.0)
        reducer.sum([0.0], sum_over_one)

    gradients = [p.grad.tolist() for p in layers.parameters() if p.grad is not None]
    assert gradients == [[[1.0, 1.0]], [[0.0, 0.0]]]


def test_a_closed_reducer_takes_no_gradients() -> None:
    net = nn.Linear(2, 1, bias=False)
    GradientReducer(net, scalars=1).close()

    net(torch.ones(1, 2)).sum().backward()

    assert net.weight.grad is not None


def test_compressed_gradients_have_the_precision_of_bfloat16_and_scalars_are_exact() -> None:
    plain_model, compressed_model = model(), model()
    batch = torch.randn(6, 3, 5, 5)
    plain_model(batch).square().mean().backward()
    reducer = GradientReducer(compressed_model, scalars=2, compress=True)
    compressed_bytes, sizes = reducer.summed_bytes, []

    def all_reduce(tensor: torch.Tensor) -> None:
        sizes.append(tensor.numel() * tensor.element_size())

    reducer.clear()
    reducer.begin_microbatch()
    compressed_model(batch).square().mean().backward()
    reducer.add_microbatch(1.0)
    counts = reducer.sum([2.0**23 + 1, 0.0], all_reduce)

    assert counts == [2.0**23 + 1, 0.0]
    assert sum(sizes) == compressed_bytes
    weights = sum(parameter.numel() for parameter in plain_model.parameters())
    assert sizes[0] == 2 * weights
    for parameter, expected in zip(
        compressed_model.parameters(), plain_model.parameters(), strict=True
    ):
        assert parameter.grad is not None
        assert expected.grad is not None
        assert torch.allclose(parameter.grad, expected.grad, rtol=2**-8, atol=1e-9)
    assert torch.equal(running_mean(compressed_model), running_mean(plain_model))


def test_a_step_sums_as_many_bytes_as_the_reducer_reports() -> None:
    net = model()
    reducer, sizes = GradientReducer(net, scalars=3), []
    reducer.clear()
    reducer.begin_microbatch()
    net(torch.randn(6, 3, 5, 5)).square().mean().backward()
    reducer.add_microbatch(1.0)

    reducer.sum([0.0] * 3, lambda tensor: sizes.append(tensor.nbytes))

    assert sum(sizes) == reducer.summed_bytes


class Peer:
    """An all-reduce with a worker that has the same gradients, which records the started buckets."""

    def __init__(self) -> None:
        self.started_buckets: list[torch.Tensor] = []
        self.wait_count = 0

    def __call__(self, tensor: torch.Tensor) -> Callable[[], None]:
        self.started_buckets.append(tensor)

        def end() -> None:
            tensor.mul_(2)
            self.wait_count += 1

        return end


SMALL_BUCKET_BYTES = 64  # buckets of one or two layers


@pytest.mark.parametrize("compress", [False, True])
def test_overlapped_sums_equal_those_started_at_the_end(compress: bool) -> None:
    model_without_overlap, model_with_overlap = model(), model()
    batch, peer = torch.randn(6, 3, 5, 5), Peer()
    unbucketed_reducer = GradientReducer(model_without_overlap, scalars=1, compress=compress)
    bucketed_reducer = GradientReducer(
        model_with_overlap, scalars=1, compress=compress, bucket_bytes=SMALL_BUCKET_BYTES
    )

    unbucketed_reducer.clear()
    unbucketed_reducer.begin_microbatch()
    model_without_overlap(batch).square().mean().backward()
    unbucketed_reducer.add_microbatch(0.5)
    expected = unbucketed_reducer.sum([3.0], sum_over_two)
    bucketed_reducer.clear()
    bucketed_reducer.begin_microbatch(peer)
    model_with_overlap(batch).square().mean().backward()
    bucketed_reducer.add_microbatch(0.5)
    actual = bucketed_reducer.sum([3.0], sum_over_one)

    assert actual == expected == [6.0]
    assert peer.wait_count == len(peer.started_buckets) > 2, (
        "the gradients are in several buckets; statistics and scalars are in another one"
    )
    for parameter, late_parameter in zip(
        model_with_overlap.parameters(), model_without_overlap.parameters(), strict=True
    ):
        assert parameter.grad is not None
        assert late_parameter.grad is not None
        assert torch.equal(parameter.grad, late_parameter.grad)
    assert torch.equal(running_mean(model_with_overlap), running_mean(model_without_overlap))


def test_the_sum_for_the_last_layers_starts_before_the_gradients_of_the_first_are_computed() -> (
    None
):
    net, peer = model(), Peer()
    reducer = GradientReducer(net, scalars=1, bucket_bytes=SMALL_BUCKET_BYTES)
    started_counts: list[int] = []

    def count_started_buckets(_gradient: torch.Tensor) -> None:
        started_counts.append(len(peer.started_buckets))

    weight = net[0].weight
    assert isinstance(weight, nn.Parameter)
    weight.register_hook(count_started_buckets)  # type: ignore[no-untyped-call]  # torch does not annotate it

    reducer.clear()
    reducer.begin_microbatch(peer)
    net(torch.randn(4, 3, 5, 5)).sum().backward()

    assert started_counts[0] > 0


def test_a_worker_without_samples_starts_the_same_sums_in_the_same_order() -> None:
    sizes = []
    for samples in (4, 0):
        net, peer = model(), Peer()
        reducer = GradientReducer(net, scalars=1, bucket_bytes=SMALL_BUCKET_BYTES)
        reducer.clear()
        reducer.begin_microbatch(peer)
        if samples:
            net(torch.randn(samples, 3, 5, 5)).sum().backward()
        reducer.add_microbatch(samples / 4)
        reducer.sum([0.0], sum_over_one)
        sizes.append([tensor.numel() for tensor in peer.started_buckets])

    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("early", [True, False])
def test_an_abandoned_sum_cannot_write_to_the_next_step(early: bool) -> None:
    plain_model, net, peer = model(), model(), Peer()
    batch = torch.randn(4, 3, 5, 5)
    plain_model(batch).square().sum().backward()
    reducer = GradientReducer(net, scalars=1, bucket_bytes=SMALL_BUCKET_BYTES)

    def start_and_raise(tensor: torch.Tensor) -> None:
        peer(tensor)
        raise PeerLostError("gone")

    reducer.clear()
    reducer.begin_microbatch(peer if early else None)
    net(batch).square().sum().backward()
    reducer.add_microbatch(1.0)
    if not early:
        with pytest.raises(PeerLostError):
            reducer.sum([0.0], start_and_raise)
    reducer.roll_back()
    reducer.clear()
    reducer.begin_microbatch()
    net(batch).square().sum().backward()
    reducer.add_microbatch(1.0)
    for tensor in peer.started_buckets:  # a late operation of the abandoned group completes
        tensor.fill_(7)
    reducer.sum([0.0], sum_over_one)

    assert peer.started_buckets
    for parameter, expected in zip(net.parameters(), plain_model.parameters(), strict=True):
        assert parameter.grad is not None
        assert expected.grad is not None
        assert torch.allclose(parameter.grad, expected.grad, rtol=1e-4, atol=1e-5)


def raise_peer_lost(tensor: torch.Tensor) -> NoReturn:
    """Fail as in a group that has ended."""
    tensor.fill_(9)  # gloo may have written some of it already
    raise PeerLostError("gone")


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_gradients_accumulated_before_the_group_failed_are_kept(
    early: bool, compress: bool
) -> None:
    undisturbed_model, broken_model = model(), model()
    batch = torch.randn(6, 3, 5, 5)
    parts = ((batch[:4], 4 / 6), (batch[4:], 2 / 6))
    unbucketed_reducer = GradientReducer(undisturbed_model, scalars=1, compress=compress)
    reducer = GradientReducer(
        broken_model, scalars=1, compress=compress, bucket_bytes=SMALL_BUCKET_BYTES
    )

    unbucketed_reducer.clear()
    for images, weight in parts:
        unbucketed_reducer.begin_microbatch()
        undisturbed_model(images).square().sum().backward()
        unbucketed_reducer.add_microbatch(weight)
    expected = unbucketed_reducer.sum([3.0], sum_over_one)

    initial_mean, initial_batches = (
        running_mean(broken_model).clone(),
        batches_tracked(broken_model),
    )
    reducer.clear()
    reducer.begin_microbatch(raise_peer_lost if early else None)
    broken_model(parts[0][0]).square().sum().backward()
    reducer.add_microbatch(parts[0][1])
    with pytest.raises(PeerLostError):
        reducer.sum([3.0], raise_peer_lost)
    assert reducer.roll_back()
    assert torch.equal(running_mean(broken_model), initial_mean)
    reducer.begin_microbatch()
    broken_model(parts[1][0]).square().sum().backward()
    reducer.add_microbatch(parts[1][1])

    assert reducer.sum([3.0], sum_over_one) == expected
    for parameter, undisturbed_parameter in zip(
        broken_model.parameters(), undisturbed_model.parameters(), strict=True
    ):
        assert parameter.grad is not None
        assert undisturbed_parameter.grad is not None
        assert torch.equal(parameter.grad, undisturbed_parameter.grad)
    for buffer, expected_buffer in zip(
        broken_model.buffers(), undisturbed_model.buffers(), strict=True
    ):
        assert torch.equal(buffer, expected_buffer)
    assert batches_tracked(broken_model) == initial_batches + 1, "a step is one batch"


def test_an_incomplete_micro_batch_invalidates_earlier_ones() -> None:
    net = model()
    reducer = GradientReducer(net, scalars=1)
    reducer.clear()
    reducer.begin_microbatch()
    net(torch.randn(4, 3, 5, 5)).sum().backward()
    reducer.add_microbatch(0.5)
    reducer.begin_microbatch()
    net(torch.randn(4, 3, 5, 5))

    assert not reducer.roll_back()


@given(sizes=lists(integers(1, 100), min_size=1, max_size=30), min_bytes=integers(1, 200))
def test_every_parameter_is_in_one_bucket_and_only_the_last_bucket_may_be_too_small(
    sizes: list[int], min_bytes: int
) -> None:
    buckets = _buckets(sizes, min_bytes)

    assert [index for bucket in reversed(buckets) for index in bucket] == list(range(len(sizes)))
    assert all(sum(sizes[i] for i in bucket) >= min_bytes for bucket in buckets[:-1])


def test_scalars_are_summed_with_the_gradients() -> None:
    reducer, sizes = GradientReducer(model(), scalars=3), list[int]()

    def all_reduce(tensor: torch.Tensor) -> None:
        sizes.append(tensor.numel())
        sum_over_two(tensor)

    reducer.clear()
    reducer.begin_microbatch()

    assert reducer.sum([1.5, 0.0, 2.0], all_reduce) == [3.0, 0.0, 4.0]
    assert len(sizes) == 1, "one more all-reduce would cost one more round trip"


def test_batch_statistics_of_one_worker_do_not_change() -> None:
    net = model()
    reducer = GradientReducer(net, scalars=1)
    reducer.clear()
    reducer.begin_microbatch()
    net(torch.randn(4, 3, 5, 5)).sum().backward()
    initial_mean = running_mean(net).clone()

    reducer.add_microbatch(1.0)
    reducer.sum([0.0], sum_over_one)

    assert torch.equal(running_mean(net), initial_mean)


def test_statistics_are_averaged_over_micro_batches_by_their_weights_in_each_step() -> None:
    net = model()
    reducer = GradientReducer(net, scalars=1)
    for _ in range(2):  # the second step begins without the averages of the first
        before, parts, own_means = copy.deepcopy(net), [(1, 0.25), (3, 0.75)], []
        count = batches_tracked(net)
        reducer.clear()
        for samples, weight in parts:
            batch = torch.randn(samples, 3, 5, 5)
            reference_model = copy.deepcopy(before)
            reference_model(batch)
            own_means.append(running_mean(reference_model) * weight)
            reducer.begin_microbatch(single=True)
            net(batch).square().mean().backward()
            reducer.add_microbatch(weight)
        reducer.sum([0.0], sum_over_one)

        assert torch.allclose(running_mean(net), own_means[0] + own_means[1])
        assert batches_tracked(net) == count + 1, "one per step, however many micro-batches it has"


def test_counts_are_summed_exactly() -> None:
    sums = sum_scalars([2.0**51 + 1, 3.0], torch.device("cpu"), sum_over_two)

    assert sums == [2.0**52 + 2, 6.0]


def test_two_backward_passes_of_one_micro_batch_are_accumulated() -> None:
    net = nn.Linear(2, 1, bias=False)
    reducer = GradientReducer(net, scalars=1)
    reducer.clear()
    reducer.begin_microbatch()

    net(torch.tensor([[1.0, 0.0]])).sum().backward()
    net(torch.tensor([[0.0, 1.0]])).sum().backward()
    reducer.add_microbatch(1.0)
    reducer.sum([0.0], sum_over_one)

    assert net.weight.grad is not None
    assert net.weight.grad.tolist() == [[1.0, 1.0]], "the second gradient must not be dropped"


def test_a_second_backward_pass_after_its_sum_has_started_is_refused() -> None:
    net = nn.Linear(2, 1, bias=False)
    reducer = GradientReducer(net, scalars=1, bucket_bytes=1)
    reducer.clear()
    reducer.begin_microbatch(lambda _: lambda: None)
    net(torch.ones(1, 2)).sum().backward()

    with pytest.raises(EverstepError, match="second backward pass"):
        net(torch.ones(1, 2)).sum().backward()


class Masked(nn.Module):
    """A model whose buffers are not statistics, except one counter of batches."""

    batches: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        for name, value in constant_buffers().items():
            self.register_buffer(name, value)
        self.register_buffer("batches", torch.tensor(5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        result: torch.Tensor = self.layer(inputs)
        return result


def constant_buffers() -> dict[str, torch.Tensor]:
    return {
        "indices": torch.tensor([0, 1]),
        "padding": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "rotations": torch.tensor([1j, 1 + 1j]),
        "bias": torch.tensor([0.0, -torch.inf]),
        "frequencies": torch.tensor([0.1, 0.3, 0.7, 1e-5], dtype=torch.bfloat16),
        "epsilon": torch.tensor([1e-12, 1.0]),
    }


def assert_unchanged(net: Masked, *, batches: int) -> None:
    buffers = dict(net.named_buffers())
    assert buffers.pop("batches") == batches
    for name, expected in constant_buffers().items():
        assert torch.equal(buffers[name], expected), name


@pytest.mark.parametrize(
    "weights", [[1.0], [0.25, 0.75], [0.5, 0.5, 0.0], [3 / 11, 3 / 11, 3 / 11, 2 / 11]]
)
def test_buffers_that_are_not_statistics_keep_their_values(weights: list[float]) -> None:
    net = Masked()
    reducer = GradientReducer(net, scalars=1)
    reducer.clear()
    for weight in weights:
        reducer.begin_microbatch()
        if weight:  # a worker without samples computes nothing
            net(torch.ones(4, 2)).sum().backward()
        reducer.add_microbatch(weight)
    reducer.sum([0.0], sum_over_one)

    assert_unchanged(net, batches=5 + 1)


class DoubleBuffers(nn.Module):
    """A float32 model with float64 buffers: two constants, and the number of samples seen so far."""

    seen: torch.Tensor
    lowest: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("lowest", torch.tensor(torch.inf, dtype=torch.float64))
        self.register_buffer("constant", torch.tensor([0.1, -torch.inf], dtype=torch.float64))
        self.register_buffer("seen", torch.tensor(2.0**24 + 1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += len(x)
        self.lowest.copy_(torch.minimum(self.lowest, x.min()))
        result: torch.Tensor = self.layer(x)
        return result


@pytest.mark.parametrize("single", [True, False])
def test_float64_buffers_of_a_float32_model_keep_all_digits(single: bool) -> None:
    net = DoubleBuffers()
    reducer = GradientReducer(net, scalars=1)
    for _ in range(3):
        reducer.clear()
        for weight in (0.25, 0.75):
            reducer.begin_microbatch(single=single)
            net(torch.ones(4, 2)).sum().backward()
            reducer.add_microbatch(weight)
        reducer.sum([0.0], sum_over_one)

    assert dict(net.named_buffers())["constant"].tolist() == [0.1, -torch.inf]
    assert net.seen.item() == 2**24 + 1 + 3 * 4
    assert net.lowest.item() == 1.0, "it begins at infinity"


def test_buffers_that_are_not_statistics_keep_their_values_in_exact_mode() -> None:
    net = Masked()
    reducer = ExactReducer(net, scalars=1, shards=2)
    reducer.clear()
    for _ in range(2):
        reducer.begin_shard()
        net(torch.ones(4, 2)).sum().backward()
        reducer.add_shard(4)
    reducer.sum(8, [0], sum_over_one)

    assert_unchanged(net, batches=5 + 2)


@pytest.mark.parametrize("gradient", [1.0, torch.inf])
@pytest.mark.parametrize("single", [True, False])
def test_an_infinite_value_in_a_mask_makes_no_gradient_infinite(
    gradient: float, single: bool
) -> None:
    net = Masked()
    reducer = GradientReducer(net, scalars=1)
    reducer.clear()
    reducer.begin_microbatch(single=single)
    (net(torch.ones(4, 2)).sum() * gradient).backward()
    reducer.add_microbatch(1.0)
    reducer.sum([0.0], sum_over_two)

    assert reducer.is_finite() == (gradient == 1.0)
