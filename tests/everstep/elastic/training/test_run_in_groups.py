"""`Run` in a simulated group that breaks, or whose workers want to regroup."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from everstep import elastic
from everstep.elastic.accounting.journal import Journal
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.worker import SingleProcessGroup, TrainingState
from everstep.elastic.training.run import _device_of
from everstep.elastic.transport.group import PeerLostError, RankAssignment
from everstep.errors import EverstepError
from tests.journals import JournalReader

SIZE = 24


class ScriptedGroup(SingleProcessGroup):
    """A group of two workers whose all-reduces fail on demand; from its second join on, this worker is alone.

    Args:
        fails: called with the index of an all-reduce; returns True if the group breaks in it.
    """

    def __init__(self, fails: Callable[[int], bool]) -> None:
        self._fails, self.sums, self.joins = fails, 0, 0
        self.computed_units: list[Any] = []
        self.wants_regroup = False
        self.failures: list[str] = []
        self.ended_epochs: list[int] = []  # number of earlier groups at the end of each epoch
        self.has_ended_loop = self.has_completed_loop = False

    @property
    def is_regroup_requested(self) -> bool:  # type: ignore[override]
        return self.wants_regroup

    def join(self, state: TrainingState) -> RankAssignment:
        super().join(state)
        self.joins += 1
        if self.joins == 1:
            return RankAssignment(0, 2, None, 2, self._sum)
        self.computed_units.append(state.computed_units())
        state.adopt(state.step, state.computed_units(), keeps_units=True)  # type: ignore[attr-defined]
        return RankAssignment(0, 1, None, 1, self._sum)

    def handle_agreement(self, leavers: float) -> None:
        del leavers
        self.wants_regroup = False

    def handle_epoch_end(self) -> None:
        self.ended_epochs.append(self.joins - 1)

    def report_failure(self, reason: str) -> None:
        self.failures.append(reason)

    def report_loop_end(self, *, is_complete: bool) -> None:
        self.has_ended_loop, self.has_completed_loop = True, is_complete

    def _sum(self, tensor: torch.Tensor) -> None:
        self.sums += 1
        if self._fails(self.sums - 1):
            tensor.fill_(9)
            raise PeerLostError("gone")


class OutOfMemoryLayer(nn.Module):
    """A layer that runs out of memory with too many samples, while `bound` is set."""

    bound = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bound and len(x) > self.bound:
            raise torch.OutOfMemoryError("injected")
        return x


def start_run(
    group: SingleProcessGroup, **options: Any
) -> tuple[elastic.Run, nn.Module, OutOfMemoryLayer]:
    torch.manual_seed(0)
    memory_layer = OutOfMemoryLayer()
    model = nn.Sequential(nn.Linear(2, 2), memory_layer, nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    arguments = {"dataset_size": SIZE, "global_batch": SIZE, "epochs": 1, "overlap": "off"}
    run = elastic.Run(model, optimizer, group=(group, TimeAccount()), **{**arguments, **options})
    return run, model, memory_layer


def compute(batch: elastic.Batch, model: nn.Module) -> list[int]:
    """Compute a batch and take its step; return the computed samples."""
    computed_samples = []
    with batch:
        for ids in batch.microbatches():
            batch.backward(model(torch.stack([ids, ids + 1], 1) / SIZE).square().mean())
            computed_samples += ids.tolist()
        batch.step()
    return computed_samples


@pytest.mark.parametrize("mode", ["live", "exact"])
def test_computed_micro_batches_stay_valid_when_a_group_breaks(mode: str) -> None:
    undisturbed_run, undisturbed_model, _ = start_run(SingleProcessGroup(), mode=mode, shard_size=3)
    for batch in undisturbed_run:
        compute(batch, undisturbed_model)
    group = ScriptedGroup(lambda number: number == 0)
    run, model, _ = start_run(group, mode=mode, shard_size=3, max_microbatch=3)

    computed, sizes = [], []
    for batch in run:
        sizes.append(run.world_size)
        computed += compute(batch, model)

    assert sizes == [2, 1]
    if mode == "live":
        assert sorted(computed) == list(range(SIZE)), "each sample is computed once"
    assert group.computed_units
    assert run._session.state.ledger == undisturbed_run._session.state.ledger
    for parameter, expected in zip(model.parameters(), undisturbed_model.parameters(), strict=True):
        assert torch.allclose(parameter, expected, atol=1e-6)


def test_kept_units_are_computed_again_after_an_out_of_memory_error() -> None:
    undisturbed_run, undisturbed_model, _ = start_run(SingleProcessGroup())
    for batch in undisturbed_run:
        compute(batch, undisturbed_model)
    group = ScriptedGroup(lambda number: number == 0)
    run, model, memory_layer = start_run(group)
    for number, batch in enumerate(run):
        memory_layer.bound = 5 if number else 0  # memory is short in the second group only
        compute(batch, model)

    assert group.computed_units == [((0, SIZE // 2),)]
    assert run._session.state.ledger == undisturbed_run._session.state.ledger, (
        "each sample counts once"
    )
    for parameter, expected in zip(model.parameters(), undisturbed_model.parameters(), strict=True):
        assert torch.allclose(parameter, expected, atol=1e-6)


def test_a_shard_that_does_not_fit_ends_the_run_with_a_fix() -> None:
    group = ScriptedGroup(lambda _: False)
    run, model, memory_layer = start_run(group, mode="exact", shard_size=6)
    memory_layer.bound = 3

    def train() -> None:
        for batch in run:
            compute(batch, model)

    with pytest.raises(EverstepError, match="a shard of 6 samples does not fit") as error:
        train()
    assert "shard_size" in error.value.fix
    assert group.failures, "the failure is reported to the other workers"


class SuccessiveGroups(SingleProcessGroup):
    """Successive groups that this process joins; each but the last breaks in its third all-reduce.

    Args:
        assignments: rank, number of workers and ranks of the sources of the state, for each group.
    """

    def __init__(self, *assignments: tuple[int, int, tuple[int, ...]]) -> None:
        self._assignments, self._joins, self._sums = assignments, 0, 0

    def join(self, state: TrainingState) -> RankAssignment:
        super().join(state)
        rank, world_size, sources = self._assignments[self._joins]
        self._joins, self._sums = self._joins + 1, 0
        if self._joins > 1:
            state.adopt(state.step, (), keeps_units=rank in sources)  # type: ignore[attr-defined]
        return RankAssignment(rank, world_size, None, world_size, self._sum, sources=sources)

    def _sum(self, _: torch.Tensor) -> None:
        self._sums += 1
        if self._joins < len(self._assignments) and self._sums == 3:
            raise PeerLostError("gone")


def recorded_steps(folder: Path, *assignments: tuple[int, int, tuple[int, ...]]) -> list[int]:
    """Return the steps in the journal of a worker with these assignments; of lines marked `again`, the negated step."""
    run, model, _ = start_run(SuccessiveGroups(*assignments), epochs=6)
    with contextlib.closing(Journal(folder / "worker.jsonl")) as journal:
        run._session.worker.journal = journal
        for batch in run:
            compute(batch, model)
    steps = [entry for entry in JournalReader(folder).read() if entry["kind"] == "step"]
    return [-step["step"] if step.get("again") else step["step"] for step in steps]


@pytest.mark.parametrize(
    ("second_group", "expected_steps"),
    [
        pytest.param((0, 1, (0,)), [-1, -2, 3, 4, 5, 6], id="it becomes rank 0"),
        pytest.param((1, 2, (1,)), [-1, -2], id="rank 0 is a new process"),
        pytest.param((1, 2, (0, 1)), [], id="rank 0 has completed them, too"),
        pytest.param((0, 2, (1,)), [3, 4, 5, 6], id="only another worker has completed them all"),
    ],
)
def test_steps_of_a_lost_rank_0_are_recorded_by_a_worker_that_completed_them(
    tmp_path: Path, second_group: tuple[int, int, tuple[int, ...]], expected_steps: list[int]
) -> None:
    assert recorded_steps(tmp_path, (1, 2, (0, 1)), second_group) == expected_steps


def test_a_worker_whose_state_was_replaced_records_no_earlier_step(tmp_path: Path) -> None:
    groups = (1, 2, (0, 1)), (1, 2, (0,)), (0, 1, (0,))

    assert recorded_steps(tmp_path, *groups) == [-3, -4, 5, 6]


def test_rank_0_records_its_steps_once(tmp_path: Path) -> None:
    assert recorded_steps(tmp_path, (0, 2, (0, 1)), (0, 1, (0,))) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("change", ["the group breaks", "a node joins"])
def test_an_evaluation_is_repeated_when_the_group_changes(change: str) -> None:
    group_breaks = change == "the group breaks"
    # The group breaks in the first sum after the step.
    group = ScriptedGroup(lambda number: group_breaks and number == 1)
    run, model, _ = start_run(group)
    scores: list[dict[str, float]] = []
    calls = list[int]()

    @run.each_epoch
    def evaluate(epochs: int) -> None:
        calls.append(epochs)
        group.wants_regroup = not group_breaks and len(calls) == 1
        scores.append(run.evaluate(10, lambda ids: {"index": ids}))

    for batch in run:
        compute(batch, model)

    assert calls == [1, 1]
    assert group.joins == 2
    assert scores == [{"index": 4.5}], "the exact mean over the whole set, once"


@pytest.mark.parametrize("change", ["the group breaks", "a node joins"])
def test_callbacks_that_run_again_start_from_the_same_metrics(change: str) -> None:
    """Other workers may not have got so far; unequal metrics at equal progress would look like a hardware fault."""
    group_breaks = change == "the group breaks"
    # Sums: the step, the first evaluation, the second one.
    group = ScriptedGroup(lambda number: group_breaks and number == 2)
    run, model, _ = start_run(group)
    observed = []

    @run.each_epoch
    def evaluate(epochs: int) -> None:
        observed.append(run.metrics.get("evaluations", 0.0))
        run.evaluate(10, lambda ids: {"index": ids})
        run.metrics["evaluations"] = run.metrics.get("evaluations", 0.0) + 1
        if len(observed) == 1:
            run.stop()
        group.wants_regroup = not group_breaks and len(observed) == 1
        run.evaluate(10, lambda ids: {"index": ids})

    for batch in run:
        compute(batch, model)

    assert observed == [0, 0]
    assert run.metrics == {"evaluations": 1}
    assert not run._session.state.is_stopped, "the request was withdrawn with the other changes"
    assert group.ended_epochs == [1]


def test_the_code_after_the_loop_runs_although_the_group_breaks_after_completion_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the agent would end the worker in its wait for the next group, before the program saves its model."""

    def fail(*_: object) -> str:
        raise PeerLostError("gone")

    monkeypatch.setattr("everstep.elastic.training.session.broadcast_text", fail)
    group = ScriptedGroup(lambda _: False)
    run, model, _ = start_run(group)

    for batch in run:
        compute(batch, model)

    assert (run.step, group.joins) == (1, 1)
    assert group.has_ended_loop
    assert group.has_completed_loop


def test_the_agent_learns_that_a_loop_ends_early() -> None:
    group = ScriptedGroup(lambda _: False)
    run, model, _ = start_run(group, epochs=2)

    for batch in run:
        compute(batch, model)
        assert not group.has_ended_loop
        break

    assert group.has_ended_loop
    assert not group.has_completed_loop, "the launcher reports an error"


def test_an_update_is_neither_lost_nor_repeated_when_its_sum_fails() -> None:
    group = ScriptedGroup(lambda number: number == 0)
    run, model, _ = start_run(group)
    updates = list[int]()
    run.after_step(lambda: updates.append(run.step))

    applied_steps = []
    for batch in run:
        with batch:
            for ids in batch.microbatches():
                batch.backward(model(torch.stack([ids, ids], 1).float()).mean())
            applied_steps.append(batch.step())

    assert applied_steps == [False, True]
    assert len(updates) == 1


def test_a_forward_pass_ends_between_layers_after_its_group_has_ended() -> None:
    class LostGroup(ScriptedGroup):
        def check(self, min_age_seconds: float = 0.0) -> None:
            if min_age_seconds and self.joins == 1:
                raise PeerLostError("gone for long")

    group = LostGroup(lambda _: False)
    run, model, _ = start_run(group)
    for batch in run:
        compute(batch, model)

    assert group.joins == 2
    assert group.sums == 0, "the forward pass of the first group ended before its sum"
    assert run.step == run.total_steps


def test_a_model_on_two_devices_is_refused() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1, device="meta"))

    with pytest.raises(EverstepError, match="several devices"):
        _device_of(model)
