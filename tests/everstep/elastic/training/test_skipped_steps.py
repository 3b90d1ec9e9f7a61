"""Steps whose update is skipped: a non-finite loss, or scaled gradients that overflow."""

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from everstep import elastic
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.worker import SingleProcessGroup, TrainingState
from everstep.elastic.training.skipped_steps import MAX_OVERFLOWED_STEPS, MAX_SKIPPED_STEPS
from everstep.elastic.training.training_state import RunState
from everstep.elastic.transport.group import RankAssignment
from everstep.errors import EverstepError

FIRST_SCALE = 65536.0
WAIT_SECONDS = 100.0  # limit on a busy machine; all waits end much earlier


class Training:
    """A run whose losses or gradients can be made non-finite, usually with a gradient scaler.

    Attributes:
        loss_factor: factor of the next losses.
        gradient_factor: factor of the next gradients.
        callbacks: number of calls of the `after_step` callback.
    """

    def __init__(
        self,
        *,
        group: SingleProcessGroup | None = None,
        scaled: bool = True,
        layer: nn.Module | None = None,
        **options: Any,
    ) -> None:
        torch.manual_seed(1)
        first = nn.Linear(2, 3)
        self.model = nn.Sequential(first, layer or nn.BatchNorm1d(3), nn.Linear(3, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=FIRST_SCALE, enabled=scaled)
        self.loss_factor = self.gradient_factor = 1.0
        self.callbacks = 0
        arguments = {"dataset_size": 400, "global_batch": 4, "epochs": 1, "overlap": "off"}
        self.run = elastic.Run(
            self.model,
            self.optimizer,
            scheduler=self.scheduler,
            scaler=self.scaler,
            group=(group, TimeAccount()) if group else None,
            warm_up=False,
            **{**arguments, **options},
        )
        self.run.after_step(self._count)
        first.weight.register_hook(  # type: ignore[no-untyped-call]  # torch does not annotate it
            lambda gradient: gradient * self.gradient_factor
        )
        self._batches = iter(self.run)

    def _count(self) -> None:
        self.callbacks += 1

    @property
    def state(self) -> RunState:
        return self.run._session.state

    def step(self, steps: int = 1) -> None:
        """Complete some steps."""
        for _ in range(steps):
            batch = next(self._batches)
            for ids in batch.microbatches():
                x = torch.stack([ids, ids * 2], 1).float() / 400
                batch.backward(self.model(x).square().mean() * self.loss_factor)
            assert batch.step()
            self.state.flush()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return copies of all tensors of the state."""
        return {name: tensor.clone() for name, tensor in self.state.tensors().items()}


def journal(folder: Path, kind: str) -> list[dict[str, Any]]:
    [path] = folder.glob("journal/*.jsonl")
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [entry for entry in entries if entry["kind"] == kind]


@pytest.mark.parametrize("bound", [None, 2])
def test_a_non_finite_loss_ends_a_run_with_a_scaler(bound: int | None) -> None:
    training = Training(max_microbatch=bound)
    training.step(2)
    training.loss_factor = math.nan

    with pytest.raises(EverstepError, match="the loss of step 3 is nan") as error:
        training.step()

    assert "Lower the learning rate" in error.value.fix
    assert training.run.step == 2


def test_steps_with_a_non_finite_loss_are_skipped_a_limited_number_of_times_with_a_scaler(
    tmp_path: Path,
) -> None:
    training = Training(nonfinite_loss="skip", checkpoint=tmp_path)
    training.step()
    before = training.tensors()
    training.loss_factor = math.inf

    training.step(MAX_SKIPPED_STEPS)

    assert all(torch.equal(tensor, before[name]) for name, tensor in training.tensors().items())
    assert training.scaler.get_scale() == FIRST_SCALE, "the scale is not at fault"
    assert training.scheduler.last_epoch == training.callbacks == 1
    with pytest.raises(
        EverstepError,
        match=f"step {MAX_SKIPPED_STEPS + 2} is inf, after {MAX_SKIPPED_STEPS} consec",
    ):
        training.step()
    training.run._session.worker.journal.flush()
    noted_steps = [entry["step"] for entry in journal(tmp_path, "nonfinite_step")]
    assert noted_steps == list(range(2, MAX_SKIPPED_STEPS + 3))


@pytest.mark.parametrize("nonfinite_loss", ["stop", "skip"])
def test_an_overflow_lowers_the_scale_and_changes_nothing_else(
    nonfinite_loss: str, tmp_path: Path
) -> None:
    training = Training(nonfinite_loss=nonfinite_loss, checkpoint=tmp_path)
    training.step()
    before = training.tensors()
    training.gradient_factor = math.inf

    training.step(2)

    assert training.run.step == 3, "the samples count as trained"
    assert all(torch.equal(tensor, before[name]) for name, tensor in training.tensors().items())
    assert training.scaler.get_scale() == FIRST_SCALE / 4
    assert training.scheduler.last_epoch == 1, "no update, no step of the scheduler"
    assert training.callbacks == 1
    training.run._session.worker.journal.flush()
    entries = journal(tmp_path, "overflowed_step")
    assert [(e["step"], e["scale"]) for e in entries] == [(2, FIRST_SCALE), (3, FIRST_SCALE / 2)]

    training.gradient_factor = 1.0
    training.step()
    assert training.scheduler.last_epoch == training.callbacks == 2
    assert training.state.skipped_steps == 0


def test_gradients_that_overflow_at_any_scale_end_the_run() -> None:
    training = Training()
    training.gradient_factor = math.nan
    training.step(MAX_OVERFLOWED_STEPS)

    with pytest.raises(
        EverstepError,
        match=f"in {MAX_OVERFLOWED_STEPS + 1} consecutive steps, up to step {MAX_OVERFLOWED_STEPS + 1},",
    ) as error:
        training.step()

    assert "Lower the learning rate" in error.value.fix
    assert training.scaler.get_scale() < 1, "the limit is reached only without any scaling"


def test_an_applied_step_resets_the_limit() -> None:
    training = Training()
    for _ in range(2):
        training.gradient_factor = math.inf
        training.step(MAX_OVERFLOWED_STEPS)
        training.gradient_factor = 1.0
        training.step()

    assert training.run.step == 2 * (MAX_OVERFLOWED_STEPS + 1)


def test_a_resumed_run_and_a_joiner_continue_the_count(tmp_path: Path) -> None:
    training = Training(checkpoint=tmp_path, checkpoint_steps=1)
    training.gradient_factor = math.inf
    training.step(3)
    next(training._batches)  # starts the checkpoint of the third step
    training.state.flush()

    resumed = Training(checkpoint=tmp_path)
    resumed.gradient_factor = math.inf
    resumed.step()
    assert resumed.run.step == resumed.state.skipped_steps == 4
    assert resumed.scaler.get_scale() == FIRST_SCALE / 16

    joiner = Training()
    sources, targets = training.state.shared_tensors(), joiner.state.shared_tensors()
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
    joiner.state.adopt(training.run.step, (), keeps_units=False)
    assert joiner.state.skipped_steps == training.state.skipped_steps == 3


class PairedGroup(SingleProcessGroup):
    """The group of one of two workers in two threads of this process."""

    def __init__(
        self, rank: int, tensors: list[torch.Tensor | None], barrier: threading.Barrier
    ) -> None:
        self._rank, self._tensors, self._barrier = rank, tensors, barrier

    def join(self, state: TrainingState) -> RankAssignment:
        super().join(state)
        return RankAssignment(self._rank, 2, None, 2, self._sum)

    def _sum(self, tensor: torch.Tensor) -> None:
        self._tensors[self._rank] = tensor.clone()
        self._barrier.wait(WAIT_SECONDS)
        first, second = self._tensors
        assert first is not None
        assert second is not None
        tensor.copy_(first + second)
        self._barrier.wait(WAIT_SECONDS)


@pytest.mark.parametrize(
    ("global_batch", "loss_factor", "gradient_factor"),
    [(4, math.nan, 1.0), (4, 1.0, math.inf), (1, 1.0, math.inf)],
    ids=["loss", "gradient", "gradient, and a worker without samples"],
)
@pytest.mark.parametrize("scaled", [True, False])
def test_all_workers_treat_a_non_finite_step_alike(
    *, global_batch: int, loss_factor: float, gradient_factor: float, scaled: bool
) -> None:
    tensors: list[torch.Tensor | None] = [None, None]
    barrier = threading.Barrier(2)
    outcomes: dict[int, Any] = {}

    def work(rank: int) -> None:
        training = trainings[rank]
        if rank == 0 or global_batch == 1:  # on one worker only: the one with samples
            training.loss_factor, training.gradient_factor = loss_factor, gradient_factor
        try:
            training.step(2)
        except EverstepError as error:
            outcomes[rank] = str(error)
        else:
            digests = training.state.sha256(), training.scaler.get_scale()
            outcomes[rank] = (training.state.skipped_steps, *digests)

    trainings = [
        Training(
            group=PairedGroup(rank, tensors, barrier),
            scaled=scaled,
            layer=nn.Tanh(),
            global_batch=global_batch,
            max_steps=2,
        )
        for rank in range(2)
    ]
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert outcomes[0] == outcomes[1]
    if scaled and math.isfinite(loss_factor):
        assert outcomes[0][0] == 2, "both steps overflow"
    else:
        assert "training has diverged" in outcomes[0]
