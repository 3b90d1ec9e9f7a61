"""Precision, determinism and state of a run on one GPU."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from everstep import elastic
from everstep.elastic.recovery.checksums import checksums
from everstep.elastic.transport.exact_reducer import ExactReducer
from everstep.elastic.transport.reducer import GradientReducer
from tests.gpu.training import GPU, SHARD, STEPS, classifier, train
from trainer import models

pytestmark = pytest.mark.gpu

FIRST_WITH_BFLOAT16 = 8  # major compute capability: Ampere
Factory = Callable[[nn.Module], torch.optim.Optimizer]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.001)


def fused_adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.001, fused=True)


def values(model: nn.Module) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in model.state_dict().values()]


def test_the_precision_is_bfloat16_only_if_the_gpu_has_it_and_needs_a_scaler_otherwise() -> None:
    has_bfloat16 = torch.cuda.get_device_capability(GPU)[0] >= FIRST_WITH_BFLOAT16

    precision = models.precision("resnet18", GPU)

    assert precision.dtype == (torch.bfloat16 if has_bfloat16 else torch.float16)
    assert precision.needs_scaler == (not has_bfloat16)
    assert not models.precision("resnet18", GPU, exact=True).needs_scaler


def test_a_run_in_the_precision_of_the_gpu_takes_all_steps_with_finite_weights() -> None:
    model = classifier()
    initial = values(model)

    run = train(model, sgd(model))

    assert run.step == STEPS
    assert all(bool(torch.isfinite(tensor).all()) for tensor in model.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(initial, values(model), strict=True))


def test_exact_mode_makes_cudnn_deterministic_and_two_runs_bitwise_equal() -> None:
    digests = set()
    for _ in range(2):
        model = classifier()
        digests.add(train(model, sgd(model), mode="exact", shard_size=SHARD).sha256())

        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("new_optimizer", "step_device"), [(adamw, "cpu"), (fused_adamw, "cuda"), (sgd, None)]
)
def test_a_state_on_two_devices_is_compared_and_copied(
    new_optimizer: Factory, step_device: str | None
) -> None:
    source, target = (trained(new_optimizer) for _ in range(2))
    with torch.no_grad():
        for tensor in target._session.state.all_tensors().values():
            tensor.zero_()
    sent, received = (run._session.state.shared_tensors() for run in (source, target))

    assert {tensor.device for tensor in (*sent, *received)} == {GPU}
    assert checksums(sent) != checksums(received)
    for old, new in zip(received, sent, strict=True):
        old.copy_(new)
    assert checksums(sent) == checksums(received)
    target._session.state.adopt(source.step, (), keeps_units=False)

    assert target.sha256() == source.sha256()
    step_devices = {
        state["step"].device.type
        for state in target.optimizer.state.values()
        if torch.is_tensor(state.get("step"))
    }
    assert step_devices == ({step_device} if step_device else set()), (
        "the optimizer keeps its step counts on their device"
    )


def trained(new_optimizer: Factory) -> elastic.Run:
    model = classifier()
    return train(model, new_optimizer(model))


def test_exact_sums_have_the_same_bits_on_the_gpu_and_on_the_cpu() -> None:
    torch.manual_seed(3)
    on_cpu = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Conv2d(64, 64, 3))
    on_cpu = on_cpu.to(memory_format=torch.channels_last)
    on_gpu = copy.deepcopy(on_cpu).to(GPU)
    nets = (on_cpu, on_gpu)
    reducers = [ExactReducer(net, scalars=1, shards=2) for net in nets]
    for reducer in reducers:
        reducer.clear()
    for _ in range(2):
        for parameters in zip(*(net.parameters() for net in nets), strict=True):
            gradient = torch.randn_like(parameters[0])
            for parameter in parameters:
                parameter.grad = torch.empty_like(parameter).copy_(gradient)
        for reducer in reducers:
            assert reducer.add_shard(4)
    for reducer in reducers:
        assert reducer.sum(8, [5], lambda _: None) == [5]
        reducer.adapt_ranges()

    assert torch.equal(reducers[0].ranges, reducers[1].ranges.cpu())
    for expected, parameter in zip(on_cpu.parameters(), on_gpu.parameters(), strict=True):
        assert expected.grad is not None
        assert parameter.grad is not None
        assert torch.equal(expected.grad, parameter.grad.cpu())
        assert parameter.grad.stride() == parameter.stride()


def test_gradients_of_a_live_step_have_the_layout_of_their_parameters() -> None:
    model = classifier()
    reducer = GradientReducer(model, scalars=1)
    reducer.clear()
    reducer.begin_microbatch(single=True)
    inputs = torch.randn(4, 3, 64, 64, device=GPU).to(memory_format=torch.channels_last)
    model(inputs).sum().backward()
    reducer.add_microbatch(1.0)
    reducer.sum([0.0], lambda _: None)

    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.stride() == parameter.stride(), "the optimizer would be slower"
        assert bool(torch.isfinite(parameter.grad).all())
