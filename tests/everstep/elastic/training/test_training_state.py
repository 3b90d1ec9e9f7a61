"""The state of a run, as groups copy it between two workers of this process."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from everstep import elastic
from everstep.elastic.recovery.checksums import checksums
from everstep.elastic.recovery.compatibility import MAX_VALUE_CHARACTERS
from everstep.elastic.recovery.copying import MAX_COMPUTED_SPANS
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.training.in_flight import InFlight
from everstep.elastic.training.training_state import RunState, _bytes, _sendable
from everstep.errors import EverstepError

OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
    "Adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=0.01),
}


def start_run(
    name: str, buffers: Mapping[str, torch.Tensor] | None = None, **options: Any
) -> tuple[elastic.Run, nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    for buffer_name, buffer in (buffers or {}).items():
        model.register_buffer(buffer_name, buffer)
    optimizer = OPTIMIZERS[name](model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    run = elastic.Run(
        model,
        optimizer,
        scheduler=scheduler,
        **{"dataset_size": 40, "global_batch": 4, "epochs": 1, **options},
    )
    return run, model, optimizer


def state_of(run: elastic.Run) -> RunState:
    return run._session.state


def train(run: elastic.Run, model: nn.Module, steps: int) -> None:
    for batch in run:
        if run.step == steps:
            break
        for ids in batch.microbatches():
            x = torch.stack([ids, ids * 2, ids * 3], 1).float()
            batch.backward(model(x).square().mean())
        batch.step()


def copy_state(source: RunState, target: RunState) -> None:
    """Copy as `recovery.copying` does."""
    source_tensors, target_tensors = source.shared_tensors(), target.shared_tensors()
    assert source.identity() == target.identity()
    for tensor, target_tensor in zip(source_tensors, target_tensors, strict=True):
        assert tensor.shape == target_tensor.shape
        target_tensor.copy_(tensor)
    target.adopt(source.step, (), keeps_units=False)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps", [0, 3])
def test_a_joiner_continues_like_the_worker_whose_state_it_received(name: str, steps: int) -> None:
    run, model, optimizer = start_run(name)
    train(run, model, steps)
    run.metrics["best"] = 0.5
    joiner, joiner_model, joiner_optimizer = start_run(name)

    copy_state(state_of(run), state_of(joiner))

    sums = [checksums(state_of(r).shared_tensors()) for r in (run, joiner)]
    assert sums[0] == sums[1]
    assert joiner.step == steps
    assert joiner.metrics == {"best": 0.5}
    assert joiner_optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert bool(joiner_optimizer.state) == bool(optimizer.state)
    for each_model, each_optimizer in ((model, optimizer), (joiner_model, joiner_optimizer)):
        for parameter in each_model.parameters():
            parameter.grad = torch.ones_like(parameter)
        each_optimizer.step()
    assert all(map(torch.equal, model.parameters(), joiner_model.parameters()))


def test_tensors_that_cannot_be_sent_directly_are_sent_as_copies() -> None:
    storage = torch.zeros(9)
    odd = storage[1:4]  # without the 8-byte alignment that checksums need
    run, model, _ = start_run("SGD", {"odd": odd, "transposed": torch.zeros(4, 6)[:, ::2]})
    state = state_of(run)
    receiver, _, _ = start_run("SGD", {"odd": torch.ones(3), "transposed": torch.ones(4, 3)})

    assert len(checksums(state.shared_tensors())) == len(state.shared_tensors())
    copy_state(state_of(receiver), state)

    assert storage.tolist() == [0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert model.get_buffer("transposed").sum() == 12


class Growing(nn.Module):
    """A model, or another state, with a tensor that grows in each step."""

    queue: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("queue", torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)
        return result

    def grow(self) -> None:
        self.queue = torch.cat([self.queue, torch.zeros(1)])


@pytest.mark.parametrize("kind", ["buffer", "state", "new buffer"])
def test_a_tensor_that_gets_another_shape_ends_the_run_at_its_first_checkpoint(
    kind: str, tmp_path: Path
) -> None:
    model, other = Growing(), Growing()
    run = elastic.Run(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        dataset_size=40,
        global_batch=4,
        epochs=1,
        checkpoint=tmp_path,
        checkpoint_steps=2,
        states={"other": other},
    )

    @run.after_step
    def change() -> None:
        if kind == "new buffer":
            model.register_buffer("late", torch.zeros(1))
        else:
            (model if kind == "buffer" else other).grow()

    with pytest.raises(EverstepError, match="have changed since Run was created"):
        train(run, model, steps=8)
    assert run.step == 2


def test_a_metric_that_would_replace_a_number_of_the_state_is_refused() -> None:
    run, _, _ = start_run("SGD")
    run.metrics["samples"] = 1.0

    with pytest.raises(EverstepError, match="a metric cannot be named 'samples'"):
        state_of(run)._text({})


@pytest.mark.parametrize("value", [torch.tensor([0.5]), np.float32(0.5), 1])
def test_a_metric_may_be_any_number(value: Any) -> None:
    """Otherwise the last checkpoint could not be written, and the result of the training would be lost."""
    run, _, _ = start_run("SGD")
    run.metrics["accuracy"] = value

    assert state_of(run)._extra({})["accuracy"] == float(value)
    assert json.loads(state_of(run)._text({}))["accuracy"] == float(value)


@pytest.mark.parametrize("value", [torch.ones(2), "high", None])
def test_a_metric_that_is_not_a_number_is_refused(value: Any) -> None:
    run, _, _ = start_run("SGD")
    run.metrics["accuracy"] = value

    with pytest.raises(EverstepError, match="the metric 'accuracy' is not a number"):
        state_of(run)._text({})


def test_the_identity_depends_on_settings_shapes_and_program() -> None:
    own = state_of(start_run("SGD")[0]).identity()

    def differing_names(name: str = "SGD", **options: Any) -> set[str]:
        other = state_of(start_run(name, **options)[0]).identity()
        assert other.keys() == own.keys()
        return {part for part in own if own[part] != other[part]}

    assert differing_names() == set()
    assert differing_names(seed=1) == {"setting seed"}
    assert differing_names(epochs=2) == {"number of epochs", "number of steps"}
    assert differing_names(overlap="on") == {"overlap"}
    assert differing_names(identity="other") == {"program"}
    assert differing_names("momentum") == {"tensors"}
    assert differing_names("AdamW") >= {"setting optimizer", "tensors"}
    assert max(map(len, own.values())) <= MAX_VALUE_CHARACTERS, "the error message has all values"


def test_a_worker_keeps_its_units_only_if_the_group_continues_from_its_state() -> None:
    state = state_of(start_run("SGD")[0])
    state.in_flight = InFlight(own_spans=((0, 2),), spans_to_recompute=((2, 3),), samples=2)
    group_spans = ((0, 2), (5, 6))

    state.shared_tensors()
    state.adopt(0, group_spans, keeps_units=True)
    assert state.in_flight == InFlight(own_spans=((0, 2),), group_spans=group_spans, samples=2), (
        "the group relies on no other units of this worker"
    )

    state.shared_tensors()
    state.adopt(0, group_spans, keeps_units=False)
    assert state.in_flight == InFlight(group_spans=group_spans)


def test_a_restored_state_has_no_units() -> None:
    state = state_of(start_run("SGD")[0])
    state.begin()
    state.in_flight = InFlight(own_spans=((0, 2),), samples=2)

    state.restore(StepProgress())

    assert state.in_flight == InFlight()


def test_a_pass_that_is_interrupted_midway_invalidates_the_units_before_it() -> None:
    run, model, _ = start_run("SGD", max_microbatch=2)
    state = state_of(run)
    batches = iter(run)
    parts = next(batches).microbatches()
    model(torch.stack([next(parts)] * 3, 1).float()).sum().backward()
    model(torch.stack([next(parts)] * 3, 1).float())
    assert state.in_flight.own_spans == ((0, 2),)

    assert not state.roll_back()
    assert state.in_flight == InFlight()


def test_a_process_with_a_partially_copied_state_does_not_start_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("everstep.elastic.training.training_state.end_process", sys.exit)
    run, model, _ = start_run("SGD")
    state = state_of(run)
    state.begin()
    assert state.restore(StepProgress()) == 0
    with torch.no_grad():
        next(model.parameters()).add_(1)

    with pytest.raises(SystemExit, match="an unfinished copy has changed the initial state"):
        state.restore(StepProgress())


def test_spans_beyond_the_limit_of_a_report_are_discarded() -> None:
    state = state_of(start_run("SGD")[0])
    state.in_flight = InFlight(
        own_spans=tuple((n, n + 1) for n in range(0, 2 * MAX_COMPUTED_SPANS, 2))
    )
    assert len(state.computed_units()) == MAX_COMPUTED_SPANS

    state.in_flight = state.in_flight.with_units(((99, 100),), 0.0, torch.arange(1).numpy(), 0)

    assert state.computed_units() == ()
    assert state.in_flight == InFlight(), "the gradients, too: they are one sum"


@pytest.mark.parametrize("shape", [(), (0,), (5,), (64, 64, 1, 1), (8, 3, 5, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_the_bytes_of_a_tensor_do_not_depend_on_its_layout(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    tensor = torch.ones(shape).cumsum(0).to(dtype) if shape else torch.ones(()).to(dtype)
    tensor_in_other_layout = (
        tensor.to(memory_format=torch.channels_last) if len(shape) == 4 else tensor
    )

    assert _bytes(tensor_in_other_layout) == tensor.numpy().tobytes(), (
        "a digest of the result depends on it"
    )


def test_a_tensor_on_another_device_is_sent_from_a_copy_on_the_device_of_the_group() -> None:
    sendable = _sendable(torch.ones(()), torch.device("meta"))

    assert sendable.device.type == "meta"
    own = torch.ones(2)
    assert _sendable(own, torch.device("cpu")).data_ptr() == own.data_ptr()


class Normalizer:
    """A state whose `state_dict` returns copies."""

    def __init__(self) -> None:
        self.mean, self.count = torch.zeros(3), 0

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean.clone(), "count": torch.tensor(self.count)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.mean, self.count = state_dict["mean"].clone(), int(state_dict["count"])


def test_a_joiner_receives_a_state_whose_state_dict_returns_copies() -> None:
    source, target = Normalizer(), Normalizer()
    run, _, _ = start_run("SGD", states={"normalizer": source})
    joiner, _, _ = start_run("SGD", states={"normalizer": target})
    source.mean, source.count = torch.tensor([1.0, 2.0, 3.0]), 7

    copy_state(state_of(run), state_of(joiner))

    assert (target.mean.tolist(), target.count) == ([1, 2, 3], 7), (
        "the joiner would train on with its own values"
    )
    assert (source.mean.tolist(), source.count) == ([1, 2, 3], 7)


def test_a_model_whose_state_dict_returns_copies_is_refused() -> None:
    model = nn.Linear(3, 1)

    def copy_bias(module: nn.Module, state: dict[str, Any], *_: object) -> None:
        state["bias"] = state["bias"].clone()

    model.register_state_dict_post_hook(copy_bias)  # type: ignore[no-untyped-call]

    with pytest.raises(EverstepError, match="the state_dict of the model returns a copy of bias"):
        elastic.Run(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            dataset_size=40,
            global_batch=4,
            epochs=1,
        )
