"""`Run` in one process, compared with an ordinary training loop."""

import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import ConcatDataset, IterableDataset, TensorDataset

from everstep import elastic
from everstep.catalog import metrics
from everstep.elastic.accounting.journal import flush_all, parse
from everstep.elastic.data_order.sampler import SampleOrder
from everstep.errors import EverstepError
from tests.everstep.elastic.training.test_optimizer_state import GroupOptimizer, ListOptimizer

SAMPLES, BATCH, EPOCHS = 44, 8, 2

OptimizerFactory = Callable[[nn.Module], torch.optim.Optimizer]
LoopBody = Callable[[elastic.Batch, nn.Module], None]
OPTIMIZERS: dict[str, OptimizerFactory] = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, dampening=0.5
    ),
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True),
    "Adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=0.01),
}


def optimizer_with_new_head(model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer with state for the first layer only, whose first step is not like its other ones."""
    *backbone, weight, bias = model.parameters()
    optimizer = torch.optim.SGD(backbone, lr=0.1, momentum=0.9, dampening=0.5)
    for parameter in backbone:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.add_param_group({"params": [weight, bias], "lr": 0.2})
    return optimizer


OTHER_OPTIMIZERS: dict[str, OptimizerFactory] = {
    "new head": optimizer_with_new_head,
    "tensors in lists": lambda model: ListOptimizer(list(model.parameters()), lr=0.001),
    "tensors in groups": lambda model: GroupOptimizer(list(model.parameters()), lr=0.1),
}


def network(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 6), *layers, nn.Tanh(), nn.Linear(6, 3))


def samples() -> TensorDataset:
    generator = torch.Generator().manual_seed(2)
    return TensorDataset(
        torch.randn(SAMPLES, 5, generator=generator),
        torch.randint(0, 3, (SAMPLES,), generator=generator),
    )


def start_run(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> elastic.Run:
    defaults = {"dataset": samples(), "global_batch": BATCH, "epochs": EPOCHS}
    return elastic.Run(model, optimizer, **{**defaults, **options})


def train(run: elastic.Run, model: nn.Module, stop_after: int = 1000) -> list[float]:
    """Train until the run is complete, or for some steps; return the losses."""
    losses = []
    for batch in run:
        with batch:
            for x, y in batch.microbatches():
                batch.backward(nn.functional.cross_entropy(model(x), y))
            if batch.step():
                losses.append(batch.loss)
        run._session.state.flush()
        if len(losses) >= stop_after:
            break
    return losses


def train_plainly(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    """Train with an ordinary loop, in the same order."""
    order, losses = SampleOrder(SAMPLES, BATCH, EPOCHS, 0), []
    inputs, labels = samples().tensors
    for step in range(order.total_steps):
        ids = torch.from_numpy(order.batch(step))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[ids]), labels[ids])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bound", [None, 3])
def test_a_run_trains_like_a_plain_loop(name: str, bound: int | None) -> None:
    plain_model, model = network(), network()
    expected = train_plainly(plain_model, OPTIMIZERS[name](plain_model))

    losses = train(start_run(model, OPTIMIZERS[name](model), max_microbatch=bound), model)

    assert losses == pytest.approx(expected, abs=1e-5)
    for parameter, plain_parameter in zip(
        model.parameters(), plain_model.parameters(), strict=True
    ):
        assert torch.allclose(parameter, plain_parameter, atol=2e-5), (
            "micro-batches must not change the step"
        )


@pytest.mark.parametrize("name", OPTIMIZERS | OTHER_OPTIMIZERS)
@pytest.mark.parametrize("mode", ["live", "exact"])
def test_a_resumed_run_ends_with_the_same_bits_as_an_uninterrupted_one(
    name: str, mode: str, tmp_path: Path
) -> None:
    new_optimizer = (OPTIMIZERS | OTHER_OPTIMIZERS)[name]
    options = {"mode": mode, "shard_size": 4, "checkpoint_steps": 1}
    uninterrupted_model = network(nn.BatchNorm1d(6))
    train(
        start_run(uninterrupted_model, new_optimizer(uninterrupted_model), **options),
        uninterrupted_model,
    )

    first_model = network(nn.BatchNorm1d(6))
    run = start_run(first_model, new_optimizer(first_model), checkpoint=tmp_path, **options)
    train(run, first_model, stop_after=4)
    second_model = network(nn.BatchNorm1d(6))
    with torch.no_grad():
        # The initial parameters of a new process do not matter.
        next(second_model.parameters()).zero_()
    resumed_run = start_run(
        second_model, new_optimizer(second_model), checkpoint=tmp_path, **options
    )
    train(resumed_run, second_model)

    assert resumed_run.step == run.total_steps
    for parameter, expected in zip(
        second_model.state_dict().values(), uninterrupted_model.state_dict().values(), strict=True
    ):
        assert torch.equal(parameter, expected)


def test_a_hook_of_the_optimizer_is_called_once_for_each_step() -> None:
    model = network()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.register_step_post_hook(lambda *_: average.update_parameters(model))

    run = start_run(model, optimizer, states={"average": average})
    updates_before = int(average.n_averaged)
    train(run, model, stop_after=2)

    assert (updates_before, int(average.n_averaged)) == (0, 2), (
        "the average would contain the initial weights twice"
    )


def test_scheduler_scaler_average_and_metrics_continue_from_a_checkpoint(tmp_path: Path) -> None:
    def begin(checkpoint: Path | None) -> tuple[elastic.Run, nn.Module, Any]:
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)
        average = torch.optim.swa_utils.AveragedModel(model)
        run = start_run(
            model,
            optimizer,
            checkpoint=checkpoint,
            scheduler=scheduler,
            scaler=torch.amp.GradScaler("cpu", growth_interval=3),
            states={"average": average},
            checkpoint_steps=1,
        )
        run.after_step(lambda: average.update_parameters(model))

        @run.each_epoch
        def validate(epochs: int) -> None:
            run.metrics["epochs"] = epochs

        return run, model, (scheduler, average, optimizer)

    uninterrupted_run, uninterrupted_model, (_, uninterrupted_average, _) = begin(None)
    train(uninterrupted_run, uninterrupted_model, stop_after=7)
    run, model, _ = begin(tmp_path)
    train(run, model, stop_after=8)
    resumed_run, _, (new_scheduler, new_average, new_optimizer) = begin(tmp_path)
    next(iter(resumed_run))

    assert run.step == 8
    assert resumed_run.step == 7, "the loop ended before the eighth step was saved"
    assert resumed_run.metrics == {"epochs": 1.0}
    assert new_scheduler.last_epoch == resumed_run.step
    assert new_average.n_averaged == resumed_run.step
    assert all(map(torch.equal, new_average.parameters(), uninterrupted_average.parameters()))
    assert new_optimizer.param_groups[0]["lr"] == new_scheduler.get_last_lr()[0]
    assert resumed_run._session.scaler is not None
    assert resumed_run._session.scaler.get_scale() == 4 * 65536.0, "it has grown twice in 7 steps"


def test_two_backward_passes_in_one_micro_batch_add_up() -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with torch.no_grad():
        model.weight.zero_()
    run = elastic.Run(model, optimizer, dataset_size=1, global_batch=1, epochs=1)
    for batch in run:
        for _ in batch.microbatches():
            model(torch.tensor([[1.0, 0.0]])).sum().backward()
            model(torch.tensor([[0.0, 1.0]])).sum().backward()
        batch.step()

    assert model.weight.tolist() == [[-1.0, -1.0]]


def test_random_layers_do_not_depend_on_earlier_draws() -> None:
    outcomes = []
    for draws in (0, 7):
        model = network(nn.Dropout(0.5))
        torch.rand(draws)
        train(start_run(model, torch.optim.SGD(model.parameters(), lr=0.1)), model)
        outcomes.append(copy.deepcopy(model.state_dict()))

    assert all(map(torch.equal, *(state.values() for state in outcomes)))


def test_the_journal_of_a_complete_run_records_its_end(tmp_path: Path) -> None:
    for stop_after, ends in ((3, []), (1000, [12])):
        model = network()
        run = start_run(model, OPTIMIZERS["SGD"](model), checkpoint=tmp_path)
        train(run, model, stop_after)

        assert [entry["step"] for entry in finish_entries(tmp_path)] == ends


def finish_entries(folder: Path) -> list[dict[str, Any]]:
    flush_all()
    texts = (path.read_text() for path in folder.glob("journal/*.jsonl"))
    return [entry for text in texts for entry in parse(text) if entry["kind"] == "finish"]


def test_an_evaluation_returns_exact_means() -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    means = []

    @run.each_epoch
    def validate(epochs: int) -> None:
        means.append(run.evaluate(samples(), lambda x, y: {"label": y, "one": torch.ones(len(x))}))

    train(run, model)

    mean = float(samples().tensors[1].double().mean())
    assert means == [{"label": mean, "one": 1.0}] * EPOCHS


def test_an_evaluation_computes_fewer_samples_at_a_time_after_an_out_of_memory_error() -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    means, sizes = [], []

    def score(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        sizes.append(len(x))
        if len(x) > 12:
            raise torch.OutOfMemoryError
        return {"label": y}

    @run.each_epoch
    def validate(epochs: int) -> None:
        means.append(run.evaluate(samples(), score)["label"])

    train(run, model)

    assert means == [float(samples().tensors[1].double().mean())] * EPOCHS
    assert sizes[:3] == [44, 22, 11]
    assert max(sizes[3:]) == 11


def test_an_evaluation_with_a_sample_that_does_not_fit_ends_with_a_fix() -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def score(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        raise torch.OutOfMemoryError

    run.each_epoch(lambda _: run.evaluate(samples(), score))

    with pytest.raises(EverstepError, match="one sample of the evaluation does not fit"):
        train(run, model)


def test_an_evaluation_leaves_frozen_layers_frozen() -> None:
    model = nn.Sequential(nn.BatchNorm1d(5), network())
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    model[0].eval()

    @run.each_epoch
    def validate(epochs: int) -> None:
        run.evaluate(samples(), lambda x, y: {"label": y})
        assert model.training
        assert not model[0].training

    train(run, model)


def test_an_out_of_memory_error_halves_the_micro_batches_permanently(tmp_path: Path) -> None:
    sizes = list[int]()

    class OutOfMemoryLayer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            if len(x) > 2:
                raise torch.OutOfMemoryError("injected")
            return x

    plain_model, model = network(), network(OutOfMemoryLayer())
    expected = train_plainly(plain_model, torch.optim.SGD(plain_model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = train(start_run(model, optimizer, checkpoint=tmp_path / "a"), model)

    assert losses == pytest.approx(expected, abs=1e-5), "each sample counts once in its step"
    assert sizes[:4] == [8, 4, 2, 2]
    assert max(sizes[3:]) == 2
    assert '"cpu": 2' in (tmp_path / "a" / "microbatch.json").read_text()


def test_a_sample_that_does_not_fit_is_an_error() -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1), max_microbatch=1)

    def run_out_of_memory(batch: elastic.Batch, model: nn.Module) -> None:
        with batch:
            for _ in batch.microbatches():
                raise torch.OutOfMemoryError("injected")

    with pytest.raises(EverstepError, match="one sample does not fit"):
        loop_over(run, model, run_out_of_memory)


def loop_over(run: elastic.Run, model: nn.Module, body: LoopBody) -> None:
    for batch in run:
        body(batch, model)


LOOPS: dict[str, tuple[str, LoopBody]] = {}


def loop(error: str) -> Callable[[LoopBody], LoopBody]:
    """Return a decorator that adds the body of a loop to `LOOPS`, with the error that it causes."""

    def register(body: LoopBody) -> LoopBody:
        LOOPS[body.__name__] = (error, body)
        return body

    return register


def compute(batch: elastic.Batch, model: nn.Module) -> None:
    for x, y in batch.microbatches():
        batch.backward(nn.functional.cross_entropy(model(x), y))


@loop("step() was called twice")
def step_again(batch: elastic.Batch, model: nn.Module) -> None:
    compute(batch, model)
    batch.step()
    batch.step()


@loop("the loop continued without step()")
def takes_no_step(batch: elastic.Batch, model: nn.Module) -> None:
    compute(batch, model)


@loop("before all of microbatches() was consumed")
def steps_too_early(batch: elastic.Batch, model: nn.Module) -> None:
    for _ in batch.microbatches():
        batch.step()


@loop("no gradient was computed")
def forward_only(batch: elastic.Batch, model: nn.Module) -> None:
    for x, _ in batch.microbatches():
        model(x)
    batch.step()


@loop("microbatches() was called twice")
def calls_microbatches_twice(batch: elastic.Batch, model: nn.Module) -> None:
    compute(batch, model)
    compute(batch, model)


@loop("weight() got 100 samples of a micro-batch of")
def weights_too_many_samples(batch: elastic.Batch, model: nn.Module) -> None:
    for _ in batch.microbatches():
        batch.weight([torch.zeros(100)])


COUNTS: list[tuple[object, int]] = [
    (torch.zeros(3, 5), 3),
    ([torch.zeros(3, 5), torch.zeros(3)], 3),
    ({"x": torch.zeros(3, 5), "y": torch.zeros(3)}, 3),
    ({"x": torch.zeros(3, 5), "path": ["a", "b", "c"]}, 3),
    ({"inputs": {"ids": torch.zeros(3, 5)}, "labels": torch.zeros(3)}, 3),
    ((torch.zeros(3, 5), ["a", "b", "c"]), 3),
    ([torch.zeros(4), torch.zeros(5)], 2),
    ([(torch.zeros(4), 1), (torch.zeros(4), 0)], 2),
    (pack_sequence([torch.zeros(5), torch.zeros(4), torch.zeros(1)]), 3),
    (4, 4),
    (np.int64(4), 4),
]


@pytest.mark.parametrize(("parts", "count"), COUNTS)
def test_the_weight_is_the_share_of_the_samples_however_they_are_collated(
    parts: object, count: int
) -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = next(iter(run))

    assert batch.weight(parts) == count / BATCH


@pytest.mark.parametrize(
    "parts",
    [
        tuple(
            torch.zeros(3, 4, 4) for _ in range(BATCH)
        ),  # images, whose first dimension is the channels
        (torch.zeros(5, BATCH, 2), torch.zeros(BATCH)),  # sequences with the time first
    ],
)
def test_parts_that_may_be_a_whole_micro_batch_have_its_weight(parts: object) -> None:
    """Otherwise a loss of eight images would have the weight of three."""
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = next(iter(run))

    next(iter(batch.microbatches()))
    assert batch.weight(parts) == 1.0


@pytest.mark.parametrize("parts", [{"a": torch.zeros(3), "b": torch.zeros(4)}, {"path": ["a"]}])
def test_a_mapping_that_does_not_show_the_number_of_samples_has_no_weight(
    parts: object,
) -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = next(iter(run))

    with pytest.raises(EverstepError, match="pass their number"):
        batch.weight(parts)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("mode", ["live", "exact"])
def test_a_loop_with_a_mistake_ends_with_its_description(name: str, mode: str) -> None:
    error, body = LOOPS[name]
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1), mode=mode)

    with pytest.raises(EverstepError) as exception:
        loop_over(run, model, body)

    assert error in exception.value.problem
    assert "batch.step() once" in exception.value.fix


@pytest.mark.parametrize(
    "mode", [{"mode": "live", "max_microbatch": 2}, {"mode": "exact", "shard_size": 2}]
)
def test_a_micro_batch_without_a_backward_pass_after_another_one_is_reported(
    mode: dict[str, Any],
) -> None:
    """Otherwise its samples would count as trained."""
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1), **mode)
    batches = iter(run)
    batch = next(batches)
    microbatches = iter(batch.microbatches())
    x, y = next(microbatches)
    batch.backward(nn.functional.cross_entropy(model(x), y))
    next(microbatches)

    with pytest.raises(EverstepError, match="no gradient was computed"):
        next(microbatches)


class Stream(IterableDataset[int]):
    """An iterable-style data set with a length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __len__(self) -> int:
        return 3


ARGUMENTS: dict[str, dict[str, Any]] = {
    "global_batch must be 1 or more, got 0": {"global_batch": 0},
    "epochs must be 1 or more": {"epochs": 0},
    "storage_timeout_seconds must be 600 or less, got 601": {"storage_timeout_seconds": 601},
    "storage_timeout_seconds must be 1 or more, got nan": {"storage_timeout_seconds": math.nan},
    "max_grad_norm must be above 0, got nan": {"max_grad_norm": math.nan},
    "max_grad_norm must be above 0, got 0": {"max_grad_norm": 0},
    "max_grad_norm must be above 0, got -1": {"max_grad_norm": -1},
    "epochs must be an integer, got True": {"epochs": True},
    "global_batch must be an integer, got 4.0": {"global_batch": 4.0},
    "checkpoint_seconds must be a number, got '5'": {"checkpoint_seconds": "5"},
    "epochs must be an integer, got None": {"epochs": None},
    "seed must be 9223372036854775807 or less": {"seed": 2**63},
    "mode must be one of live, exact": {"mode": "fast"},
    "the data set has 0 samples": {"dataset": []},
    "either dataset or dataset_size": {"dataset_size": 3},
    "has no length": {"dataset": iter([1])},
    "dataset is a Stream": {"dataset": Stream()},
    "no option of Run named 'global_batches'": {"global_batches": 3},
    "max_microbatch must be 1 or more": {"max_microbatch": 0},
    "a folder or at s3://BUCKET/PREFIX": {"checkpoint": "gs://bucket/run"},
    "cannot be named 'model'": {"states": {"model": nn.Linear(1, 1)}},
    "cannot be named 'scheduler'": {"states": {"scheduler": nn.Linear(1, 1)}},
    "cannot be named 'scaler'": {"states": {"scaler": nn.Linear(1, 1)}},
    "without state_dict": {"states": {"average": object()}},
    "cannot be combined with mode 'exact'": {"mode": "exact", "compress": "bf16"},
    "the scheduler is a ReduceLROnPlateau, which needs a metric": {
        "scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(
            torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
        )
    },
    "a gradient scaler cannot be combined": {
        "mode": "exact",
        "scaler": torch.amp.GradScaler("cpu"),
    },
}


@pytest.mark.parametrize("error", ARGUMENTS)
def test_invalid_arguments_are_refused_with_a_reason(error: str) -> None:
    model = network()

    with pytest.raises(EverstepError) as exception:
        start_run(model, torch.optim.SGD(model.parameters(), lr=0.1), **ARGUMENTS[error])

    assert error in str(exception.value)
    assert exception.value.fix


def test_an_optimizer_of_other_parameters_is_refused() -> None:
    with pytest.raises(EverstepError, match="are not the model's"):
        start_run(network(), torch.optim.SGD(network().parameters(), lr=0.1))


def test_a_list_of_optimizers_is_refused() -> None:
    model = network()

    with pytest.raises(EverstepError, match="the optimizer is a list"):
        start_run(model, [torch.optim.SGD(model.parameters(), lr=0.1)])  # type: ignore[arg-type]


def test_a_model_with_lazy_layers_is_refused() -> None:
    model = nn.LazyLinear(3)

    with pytest.raises(EverstepError, match="the model has lazy layers"):
        start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_complex_parameters_are_refused() -> None:
    """Their gradients would lose the imaginary parts."""
    model = nn.Linear(1, 1, dtype=torch.complex64)

    with pytest.raises(EverstepError, match="the model has complex parameters"):
        start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint16])
def test_a_state_that_no_checkpoint_can_hold_is_refused_before_the_training(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """It was refused only by the writing thread, so that the run ended without a checkpoint."""
    model, model_in_memory = network(), network()
    for module in (model, model_in_memory):
        module.register_buffer("table", torch.zeros(2, dtype=dtype))

    with pytest.raises(EverstepError, match=f"model.table is of type {dtype}") as error:
        start_run(model, OPTIMIZERS["SGD"](model), checkpoint=tmp_path)

    assert "persistent=False" in error.value.fix
    start_run(model_in_memory, OPTIMIZERS["SGD"](model_in_memory))


class LayerWithExtraState(nn.Linear):
    """A layer whose `state_dict` has a value that is not a tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 3}


def test_a_model_with_extra_state_is_refused() -> None:
    """It would end with an AttributeError or, if the state is a tensor, a joiner would not load it."""
    model = nn.Sequential(LayerWithExtraState(1, 1))

    with pytest.raises(EverstepError, match="_extra_state is a dict from get_extra_state"):
        start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize(
    "setting", [{"image_size": (224, 224)}, {"classes": {1: "cat"}}, {3: "number"}]
)
def test_a_run_continues_with_settings_that_json_stores_in_another_form(
    setting: dict[Any, Any], tmp_path: Path
) -> None:
    """A checkpoint has a list in place of a tuple, and texts in place of numbers as keys."""
    for stop_after in (4, 1000):
        model = network()
        options = {"checkpoint": tmp_path, "checkpoint_steps": 1, "fingerprint": setting}
        run = start_run(model, OPTIMIZERS["SGD"](model), **options)
        train(run, model, stop_after)

    assert run.step == run.total_steps


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "not JSON compliant"),
        ({"rates": [0.1, math.inf]}, "not JSON compliant"),
        (np.int64(3), "int64 is not JSON serializable"),
        (Path("data"), "PosixPath is not JSON serializable"),
    ],
)
def test_settings_that_no_checkpoint_can_hold_are_refused(value: object, reason: str) -> None:
    model = network()

    with pytest.raises(EverstepError, match=reason) as error:
        start_run(model, OPTIMIZERS["SGD"](model), fingerprint={"setting": value})

    assert "'setting' of fingerprint" in error.value.problem
    assert "int(...)" in error.value.fix


def unfreeze(model: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    del optimizer
    model[0].requires_grad_(True)


def add_a_layer(model: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    del model


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (unfreeze, "2 parameters that needed no gradients when Run was created need them now"),
        (add_a_layer, "the optimizer's parameters have changed"),
    ],
)
def test_parameters_that_are_trained_only_later_end_the_run(
    change: Callable[[nn.Sequential, torch.optim.Optimizer], None], error: str
) -> None:
    """Otherwise each worker would apply only its own gradients of such a parameter, added up over all steps."""
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = start_run(model, optimizer)
    run.each_epoch(lambda _: change(model, optimizer))

    with pytest.raises(EverstepError, match=error) as exception:
        train(run, model)

    assert run.step == SAMPLES // BATCH + 1
    assert "learning rate of their parameter group to 0" in exception.value.fix


def test_gradients_that_are_not_finite_end_the_run_if_no_loss_is_reported() -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def diverge(batch: elastic.Batch, model: nn.Module) -> None:
        for x, _ in batch.microbatches():
            (model(x).sum() * math.inf).backward()
        batch.step()

    with pytest.raises(EverstepError, match="gradients of step 1 are not finite, although"):
        loop_over(run, model, diverge)


def test_each_epoch_ends_with_the_callbacks_although_the_run_was_interrupted_in_it(
    tmp_path: Path,
) -> None:
    """A run that `max_steps` ended within an epoch, and that continues without it, must not skip that epoch's end."""
    calls = []
    for max_steps in (3, 0):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = start_run(model, optimizer, checkpoint=tmp_path, max_steps=max_steps)
        run.each_epoch(lambda epochs, run=run: calls.append((run.step, epochs)))
        train(run, model)

    assert calls == [(3, 1), (6, 1), (12, 2)]


def test_each_epoch_ends_with_the_callbacks_although_the_data_have_grown(tmp_path: Path) -> None:
    """With more steps in an epoch, a run that continues is in an earlier epoch."""
    calls = []
    options = {"epochs": 4, "checkpoint": tmp_path, "checkpoint_steps": 1}
    for changed, stop_after in (({}, 6 + 6 + 2), ({"accept_data": str(3 * SAMPLES)}, 1000)):
        model = network()
        data: ConcatDataset[Any] = ConcatDataset([samples()] * (3 if changed else 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = start_run(model, optimizer, dataset=data, **options, **changed)
        run.each_epoch(lambda epochs, run=run: calls.append((run.step, epochs)))
        train(run, model, stop_after)

    assert calls == [(6, 1), (12, 2), (17, 1), (34, 2), (51, 3), (68, 4)]


@pytest.mark.parametrize("mode", ["live", "exact"])
def test_a_run_that_stops_in_a_step_ends_with_a_checkpoint_and_trains_no_more(
    mode: str, tmp_path: Path
) -> None:
    calls = []
    for _ in range(2):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = start_run(model, optimizer, checkpoint=tmp_path, mode=mode, shard_size=4)
        run.each_epoch(lambda epochs, run=run: calls.append((run.step, epochs)))
        for batch in run:
            with batch:
                for x, y in batch.microbatches():
                    batch.backward(nn.functional.cross_entropy(model(x), y))
                if batch.number == 8:
                    run.stop()
                batch.step()
        assert (run.step, run.total_steps, run.planned_steps) == (8, 8, 12)

    assert calls == [(6, 1), (8, 1), (8, 1)], "after each epoch and after the last step"
    assert [entry["step"] for entry in finish_entries(tmp_path)] == [8, 8]


def manifest_extra(checkpoint: Path) -> dict[str, Any]:
    """Return the small values in a checkpoint."""
    return dict(json.loads((checkpoint / "manifest.json").read_text())["extra"])


@pytest.mark.parametrize("options", [{}, {"checkpoint_steps": 6}], ids=["later", "due"])
def test_a_run_that_stops_in_a_callback_ends_with_this_epoch(
    options: dict[str, int], tmp_path: Path
) -> None:
    """Also if a checkpoint of its last step is due: it must not be the state before the callback."""
    calls = []
    for _ in range(2):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = start_run(model, optimizer, checkpoint=tmp_path, **options)

        @run.each_epoch
        def stop(epochs: int, run: elastic.Run = run) -> None:
            calls.append(epochs)
            run.metrics["best"] = 0.5
            run.stop()

        train(run, model)
        assert (run.step, run.metrics) == (6, {"best": 0.5})

    assert calls == [1], "a later start has nothing to evaluate"
    extra = manifest_extra(tmp_path / "checkpoints" / "step-00000006")
    assert (extra["is_stopped"], extra["best"], extra["evaluated"]) == (True, 0.5, 1)


def test_a_checkpoint_at_the_end_of_an_epoch_contains_what_its_callbacks_changed(
    tmp_path: Path,
) -> None:
    model = network()
    run = start_run(
        model, torch.optim.SGD(model.parameters(), lr=0.1), checkpoint=tmp_path, checkpoint_steps=6
    )

    @run.each_epoch
    def evaluate(epochs: int) -> None:
        run.metrics["accuracy"] = epochs / 10

    train(run, model, stop_after=7)

    [checkpoint] = (tmp_path / "checkpoints").glob("step-*")
    assert checkpoint.name == "step-00000006"
    assert manifest_extra(checkpoint)["accuracy"] == 0.1


def test_sums_over_workers_are_allowed_only_in_callbacks() -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))

    with pytest.raises(EverstepError, match="only in a callback"):
        run.sum(1.0)


def compile_model(model: nn.Module, backend: str) -> nn.Module:
    module = torch.compile(model, backend=backend)
    assert isinstance(module, nn.Module)
    return module


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])  # these need no C++ compiler
@pytest.mark.parametrize("variant", ["the model", "the compiled model"])
def test_a_compiled_model_trains_like_a_plain_one(backend: str, variant: str) -> None:
    plain_model, model = network(), network()
    expected = train_plainly(plain_model, torch.optim.SGD(plain_model.parameters(), lr=0.1))
    module = compile_model(model, backend)
    run = start_run(
        module if variant == "the compiled model" else model,
        torch.optim.SGD(model.parameters(), lr=0.1),
    )

    losses = train(run, module)

    assert losses == pytest.approx(expected, abs=1e-5)


def test_a_run_continues_whether_its_model_is_compiled_or_not(tmp_path: Path) -> None:
    uninterrupted_model = network()
    train_plainly(uninterrupted_model, torch.optim.SGD(uninterrupted_model.parameters(), lr=0.1))
    stops = {"a compiled model": 2, "the plain model": 4, "a model with a compiled layer": 1000}
    step_counts = list[int]()

    for variant, stop_after in stops.items():
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trained_model = compile_model(model, "eager") if variant == "a compiled model" else model
        if variant == "a model with a compiled layer":
            model[0] = compile_model(model[0], "eager")
        run = start_run(trained_model, optimizer, checkpoint=tmp_path, checkpoint_steps=1)
        step_counts.append(len(train(run, trained_model, stop_after)))

    # A loop that ends early has not saved its last step.
    assert step_counts == [2, 4, run.total_steps - 1 - 3], "each part continues the same run"
    for parameter, expected in zip(
        model.parameters(), uninterrupted_model.parameters(), strict=True
    ):
        assert torch.allclose(parameter, expected, atol=1e-5)


def test_the_public_names_are_pinned() -> None:
    assert sorted(elastic.__all__) == [
        "Batch",
        "EverstepError",
        "Run",
        "RunHooks",
        "RunOptions",
        "choose_device",
    ]
    assert all(hasattr(elastic, name) for name in elastic.__all__)


def test_a_worker_exports_its_progress_its_loss_and_its_checkpoints(tmp_path: Path) -> None:
    started_at, model = time.time(), network()
    run = start_run(model, OPTIMIZERS["SGD"](model), checkpoint=tmp_path, checkpoint_seconds=7)
    losses = train(run, model)
    values = run._session.reading().values

    assert values[metrics.STEP] == values[metrics.WORKER_STEPS] == run.total_steps
    assert values[metrics.PLANNED_STEPS] == run.total_steps
    assert values[metrics.SAMPLES] == SAMPLES * EPOCHS
    assert values[metrics.LOSS] == pytest.approx(losses[-1], abs=1e-4)
    assert (values[metrics.CHECKPOINT_TIME] or 0) >= started_at
    assert values[metrics.CHECKPOINT_INTERVAL] == 7
    assert (values[metrics.CHECKPOINT_BYTES] or 0) > 0
    assert values[metrics.CHECKPOINT_FAILURES] == 0


def test_only_the_worker_that_writes_checkpoints_exports_their_age(tmp_path: Path) -> None:
    model = network()
    run = start_run(model, OPTIMIZERS["SGD"](model), checkpoint=tmp_path)

    values = run._session.state.checkpoints.metric_values(saves=False)

    assert values[metrics.CHECKPOINT_TIME] is None, "the newest worker would hide an old checkpoint"


def test_a_run_without_checkpoints_exports_nothing_about_them() -> None:
    model = network()
    run = start_run(model, OPTIMIZERS["SGD"](model))

    assert metrics.CHECKPOINT_TIME not in run._session.reading().values


def test_a_new_process_counts_its_own_steps_only(tmp_path: Path) -> None:
    model = network()
    run = start_run(model, OPTIMIZERS["SGD"](model), checkpoint=tmp_path, checkpoint_steps=1)
    train(run, model, stop_after=4)
    second_model = network()
    resumed_run = start_run(
        second_model, OPTIMIZERS["SGD"](second_model), checkpoint=tmp_path, checkpoint_steps=1
    )
    train(resumed_run, second_model)

    values = resumed_run._session.reading().values
    assert values[metrics.WORKER_STEPS] == run.total_steps - 3, "the first process saved three"
    assert values[metrics.STEP] == run.total_steps


class NoisyDescent(torch.optim.SGD):
    """An optimizer that adds noise to the parameters, as stochastic gradient Langevin dynamics does."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(torch.randn_like(parameter), alpha=0.01)


def draw_random_numbers(other_draws: int) -> tuple[str, list[tuple[float, float]]]:
    """Train while the loop draws more random numbers, as another worker would; return the state and the draws."""
    model, draws = network(), list[tuple[float, float]]()
    run = start_run(model, NoisyDescent(model.parameters(), lr=0.1))

    def draw(*_: object) -> None:
        draws.append((torch.rand(()).item(), np.random.rand()))

    run.after_step(draw)
    run.each_epoch(lambda _: torch.rand(other_draws))  # such as the scores of this worker's share
    run.each_epoch(draw)
    for batch in run:
        for x, y in batch.microbatches():
            batch.backward(nn.functional.cross_entropy(model(x), y))
            torch.rand(other_draws)
            np.random.rand(other_draws)
        batch.step()
    return run.sha256(), draws


def test_random_numbers_of_optimizer_and_callbacks_are_equal_on_all_workers() -> None:
    state, draws = draw_random_numbers(0)

    assert draw_random_numbers(7) == (state, draws)
    assert len(set(draws)) == len(draws), "each step and each callback has its own"


@pytest.mark.parametrize("stops", [False, True])
def test_after_the_loop_a_model_without_hooks_can_be_saved_and_trained(
    tmp_path: Path, stops: bool
) -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    train(run, model, 1 if stops else 1000)

    torch.save(model, tmp_path / "model.pt")
    assert not any(layer._forward_pre_hooks for layer in model.modules()), "scripting refuses them"
    model(torch.ones(1, 5)).sum().backward()

    assert all(parameter.grad is not None for parameter in model.parameters())


def test_during_the_loop_a_model_can_be_copied_and_saved(tmp_path: Path) -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))

    @run.each_epoch
    def save(_: int) -> None:
        torch.save(copy.deepcopy(model), tmp_path / "model.pt")

    train(run, model)
    saved = torch.load(tmp_path / "model.pt", weights_only=False)

    saved(torch.ones(1, 5)).sum().backward()
    assert all(
        torch.equal(a, b) for a, b in zip(saved.parameters(), model.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    "score",
    [lambda x: torch.ones(len(x), 5), lambda x: torch.ones(len(x)) * 1j, lambda _: torch.ones(1)],
    ids=["several values for each sample", "complex numbers", "one value for all"],
)
def test_a_score_without_one_real_value_for_each_sample_is_refused(
    score: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    run.each_epoch(lambda _: run.evaluate(samples(), lambda x, _y: {"loss": score(x)}))

    with pytest.raises(EverstepError, match="'loss' is not a tensor with one real value for each"):
        train(run, model)


class QuantizedLayer(nn.Linear):
    """A frozen layer whose `state_dict` has a constant that it builds on each call, as bitsandbytes has."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight.format"] = torch.tensor(1)


def test_a_layer_may_add_constants_to_the_state_dict() -> None:
    base = QuantizedLayer(6, 6).requires_grad_(False)
    model = network(base)
    run = start_run(
        model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    )

    assert len(train(run, model)) == run.total_steps


def test_a_batch_is_complete_although_its_iterator_is_dropped() -> None:
    model = network()
    run = start_run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = next(iter(run))

    for x, y in batch.microbatches():
        batch.backward(nn.functional.cross_entropy(model(x), y))

    assert batch.step()
