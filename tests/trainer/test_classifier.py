"""The trainer's steps in one process: non-finite numbers, broken groups, the result."""

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.checkpoint.files import Manifest, check, write
from everstep.elastic.data_order.sample_ledger import SampleLedger
from everstep.elastic.recovery.compatibility import describe_differences
from everstep.elastic.recovery.worker import Group, SingleProcessGroup, TrainingState
from everstep.elastic.training.skipped_steps import MAX_SKIPPED_STEPS
from everstep.elastic.transport.group import PeerLostError, RankAssignment
from everstep.errors import EverstepError
from tests.trainer.elastic.nodes import small_data
from tests.trainer.verification import run_verify
from trainer import models
from trainer.classifier import Classifier, assemble
from trainer.data import load
from trainer.settings import parse, result
from trainer.verify import Commit, verify


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_data(tmp_path_factory.mktemp("data"), samples=10)


class Tiny(nn.Module):
    """A small network with batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc(self.bn1(self.conv1(images)).relu().mean((2, 3)))
        return logits


@pytest.fixture(autouse=True)
def tiny_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "build", lambda name, classes: Tiny())


def assemble_classifier(
    data: Path, folder: Path, options: Sequence[str], group: Group | None = None
) -> Classifier:
    arguments = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    arguments += ["--run", str(folder / "run"), "--global-batch", "4", "--shard-size", "2"]
    settings = parse([*arguments, "--epochs", "20", *options])
    return assemble(settings, group or SingleProcessGroup(), TimeAccount(), torch.device("cpu"))


@pytest.fixture
def classifier(data: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Classifier:
    return assemble_classifier(data, tmp_path, request.param)


def digest_of(data: Path, split: str) -> str:
    """Return the digest that accepts the images of a split in this folder."""
    return load("fashion-mnist", data, split, 32).identity


@pytest.fixture(scope="module")
def other_test_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return data with the same training images as `data`, and other test images."""
    return small_data(tmp_path_factory.mktemp("other-test-data"), samples=10, test_samples=30)


def tiny_network(classifier: Classifier) -> Tiny:
    """Return the network as a `Tiny`."""
    assert isinstance(classifier.model, Tiny)
    return classifier.model


def train(classifier: Classifier, steps: int) -> None:
    """Train until this number of steps is completed, and their checkpoints are written."""
    for batch in classifier.run:
        if classifier.run.step == steps:
            break
        classifier.train(batch)
        classifier.run._session.state.flush()
    classifier.run._session.state.flush()


def ledger(classifier: Classifier) -> SampleLedger:
    return classifier.run._session.state.ledger


def momenta(classifier: Classifier) -> list[torch.Tensor]:
    tensors = classifier.run._session.state.tensors()
    return [tensor for name, tensor in tensors.items() if name.startswith("momentum.")]


SKIP_OPTIONS = [["--nonfinite-loss", "skip", "--mode", mode] for mode in ("live", "exact")]
STOP_OPTIONS = [["--mode", mode] for mode in ("live", "exact")]


@pytest.mark.parametrize("classifier", STOP_OPTIONS, indirect=True)
def test_a_non_finite_loss_stops_the_run_with_the_step_named(classifier: Classifier) -> None:
    def corrupt() -> None:
        tiny_network(classifier).fc.bias.data[0] = math.nan

    classifier.run.after_step(corrupt)

    with pytest.raises(EverstepError, match="the loss of step 2 is nan"):
        train(classifier, 2)
    assert classifier.run.step == 1


@pytest.mark.parametrize("classifier", SKIP_OPTIONS, indirect=True)
def test_a_skipped_step_changes_nothing_but_counts_as_trained(classifier: Classifier) -> None:
    model = tiny_network(classifier)
    initial_state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    hook = model.conv1.register_forward_hook(lambda *arguments: arguments[2] * math.inf)
    batches = iter(classifier.run)
    while classifier.run.step < 1:
        classifier.train(next(batches))
    hook.remove()

    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, initial_state[name]), name
    assert not any(tensor.any() for tensor in momenta(classifier)), "no update was made"

    while classifier.run.step < 2:
        classifier.train(next(batches))
    assert any(tensor.any() for tensor in momenta(classifier))
    run = {"samples": 10, "fingerprint": {"global_batch": 4, "seed": 0}}
    trained_ledger = ledger(classifier)
    assert verify(run, [Commit(2, 0, trained_ledger.samples, trained_ledger.digest)]) == []


@pytest.mark.parametrize("classifier", SKIP_OPTIONS[:1], indirect=True)
def test_a_non_finite_gradient_is_detected_although_the_loss_is_finite(
    classifier: Classifier,
) -> None:
    weight = tiny_network(classifier).fc.weight
    weight.register_hook(lambda gradient: gradient * math.inf)  # type: ignore[no-untyped-call]  # torch does not annotate it
    train(classifier, 1)

    assert classifier.run._session.state.skipped_steps == 1
    assert not any(tensor.any() for tensor in momenta(classifier))


@pytest.mark.parametrize("classifier", SKIP_OPTIONS[1:], indirect=True)
def test_the_number_of_skipped_steps_is_limited(classifier: Classifier) -> None:
    tiny_network(classifier).fc.bias.data[0] = math.nan
    classifier.run._session.state.skipped_steps = MAX_SKIPPED_STEPS

    with pytest.raises(EverstepError, match="the loss of step 1 is nan"):
        train(classifier, 1)


class BreakingGroup(SingleProcessGroup):
    """A group of two workers that breaks in its first all-reduce; this worker then continues alone.

    Args:
        keeps: True if this worker keeps its results of the step in flight.
    """

    def __init__(self, *, keeps: bool = True) -> None:
        self._keeps, self._broken = keeps, False
        self.computed_units: Any = None

    def join(self, state: TrainingState) -> RankAssignment:
        assignment = super().join(state)
        if not self._broken:
            return RankAssignment(0, 2, None, 2, self._lose)
        self.computed_units = state.computed_units()
        state.adopt(0, self.computed_units if self._keeps else (), keeps_units=self._keeps)
        return assignment

    def _lose(self, tensor: torch.Tensor) -> None:
        tensor.fill_(9)
        self._broken = True
        raise PeerLostError("gone")


@pytest.mark.parametrize("mode", STOP_OPTIONS)
@pytest.mark.parametrize("keeps", [True, False])
def test_a_failed_step_is_completed_without_recomputing_kept_results(
    mode: list[str], keeps: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed_classifier = assemble_classifier(data, tmp_path / "other", mode)
    train(undisturbed_classifier, 1)
    group, requested_ids = BreakingGroup(keeps=keeps), list[int]()
    classifier = assemble_classifier(data, tmp_path, mode, group)
    train_batch = classifier.train_set.train_batch

    def record_ids(ids: Any, seed: int, epoch: int) -> Any:
        requested_ids.extend(ids.tolist())
        return train_batch(ids, seed, epoch)

    monkeypatch.setattr(classifier.train_set, "train_batch", record_ids)
    train(classifier, 1)

    assert group.computed_units
    assert set(requested_ids) == set(classifier.run._session.order.batch(0).tolist())
    repeated_count = len(requested_ids) - len(set(requested_ids))
    assert (repeated_count == 0) == keeps, "kept gradients are not computed again"
    assert ledger(classifier) == ledger(undisturbed_classifier)
    if mode[-1] == "exact":
        assert classifier.run.sha256() == undisturbed_classifier.run.sha256()


@pytest.mark.parametrize("classifier", STOP_OPTIONS[:1], indirect=True)
def test_a_complete_run_has_its_result_and_is_not_continued(
    classifier: Classifier, data: Path, tmp_path: Path
) -> None:
    classifier.run.each_epoch(classifier.evaluate)
    for batch in classifier.run:
        classifier.train(batch)

    recorded_result = result(classifier.settings)
    assert recorded_result is not None
    assert recorded_result["steps"] == classifier.run.total_steps
    assert 0 < recorded_result["accuracy"] <= 1
    assert recorded_result["sha256"] == classifier.run.sha256()
    second_classifier = assemble_classifier(data, tmp_path, STOP_OPTIONS[0])
    assert list(second_classifier.run) == []
    assert second_classifier.run.metrics["accuracy"] == recorded_result["accuracy"]
    newest_checkpoint = check(max((tmp_path / "run" / "checkpoints").iterdir()))
    assert newest_checkpoint.manifest.extra["accuracy"] == recorded_result["accuracy"]


@pytest.mark.parametrize("lost_steps", [0, 1])
def test_a_run_that_returns_to_its_first_data_is_verified(
    lost_steps: int, data: Path, tmp_path: Path
) -> None:
    """It continues from the last checkpoint with these data, at the step of the change or before it."""
    (tmp_path / "other").mkdir()
    other_data = small_data(tmp_path / "other", samples=30)
    options = ["--checkpoint-steps", "1", "--keep-checkpoints", "9"]
    first_classifier = assemble_classifier(data, tmp_path, options)
    train(first_classifier, 4)
    accepted_data = digest_of(other_data, "train") + digest_of(other_data, "test")
    changed_classifier = assemble_classifier(
        other_data, tmp_path, [*options, "--accept-data", accepted_data]
    )
    train(changed_classifier, 7)
    if lost_steps:
        shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000004")

    last_classifier = assemble_classifier(data, tmp_path, options)
    train(last_classifier, 9)

    record = json.loads((tmp_path / "run" / "run.json").read_text())
    verification = run_verify(tmp_path / "run")
    assert verification.returncode == 0, verification.stdout
    changes = [(change["step"], change["samples"]) for change in record["data_changes"]]
    assert changes == [(4, 30), (4 - lost_steps, 10)]


def test_a_node_with_another_test_set_is_incompatible(
    data: Path, other_test_data: Path, tmp_path: Path
) -> None:
    """Otherwise each worker evaluates its part of another set, and the accuracy mixes the sets."""
    own, reference = (
        assemble_classifier(folder, tmp_path, []).run._session.state.identity()
        for folder in (other_test_data, data)
    )

    assert describe_differences(own, reference) == (
        f"test data is {digest_of(other_test_data, 'test')} here and {digest_of(data, 'test')} on rank 0"
    )


def test_a_run_with_another_test_set_is_refused_until_it_is_accepted(
    data: Path, other_test_data: Path, tmp_path: Path
) -> None:
    options = ["--checkpoint-steps", "1"]
    train(assemble_classifier(data, tmp_path, options), 2)

    with pytest.raises(EverstepError, match="the test data have changed") as error:
        train(assemble_classifier(other_test_data, tmp_path, options), 3)

    digest = digest_of(other_test_data, "test")
    assert f"{digest_of(data, 'test')} then; {digest} now" in error.value.problem
    assert f"--accept-data={digest} " in error.value.fix
    accepting_classifier = assemble_classifier(
        other_test_data, tmp_path, [*options, "--accept-data", digest]
    )
    train(accepting_classifier, 3)
    assert accepting_classifier.run.step == 3


@pytest.mark.parametrize("classifier", STOP_OPTIONS, indirect=True)
def test_a_run_continues_from_a_checkpoint_of_the_first_version(classifier: Classifier) -> None:
    """A checkpoint of the first version always has momentum, and no hyperparameters of the optimizer."""
    state = {
        name: torch.full_like(tensor, 2)
        for name, tensor in classifier.run._session.state.tensors().items()
    }
    extra = {"evaluated": 0, "accuracy": 0.25, "samples": 4, "digest": "00ff"}
    fingerprint = {
        **classifier.settings.fingerprint,
        "data": classifier.train_set.identity,
    }
    manifest = Manifest(1, 1, fingerprint, json.loads(json.dumps(extra)))
    folder = classifier.settings.run / "checkpoints"
    write(folder, state, manifest, commit=lambda _: True)

    next(iter(classifier.run))

    assert classifier.run.step == 1
    assert classifier.run.metrics == {"accuracy": 0.25}
    assert ledger(classifier) == SampleLedger(4, 255)
    weight = tiny_network(classifier).fc.weight
    assert (weight == 2).all()
    assert (classifier.run.optimizer.state[weight]["momentum_buffer"] == 2).all()
