"""One step of the trainer in this process: what it does about numbers that are none."""

import copy
import math
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from everstep.elastic.accounting import Accounting
from everstep.elastic.copying import MOST_KEPT
from everstep.elastic.group import PeerLostError, Seat, sum_in_default_group
from everstep.elastic.worker import Alone
from everstep.errors import EverstepError
from tests.trainer.nodes import small_data
from trainer import models, program, train
from trainer.in_flight import InFlight
from trainer.run_folder import open_run
from trainer.settings import parse, result
from trainer.state import Trainer, assemble
from trainer.step import exchange
from trainer.train import SKIPPED_IN_A_ROW, train_step
from trainer.verify import Commit, verify


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return small_data(tmp_path_factory.mktemp("data"), samples=10)


class Tiny(nn.Module):
    """A network with a normalisation: what happens to a step's numbers does not depend on how many there are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.fc(self.bn1(self.conv1(images)).relu().mean((2, 3)))


@pytest.fixture
def trainer(data, tmp_path, request, monkeypatch) -> Trainer:
    monkeypatch.setattr(models, "build", lambda name, classes: Tiny())
    return assembled(data, tmp_path, request.param)


def assembled(data: Path, tmp_path: Path, more: Sequence[str]) -> Trainer:
    line = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    line += ["--run", str(tmp_path / "run"), "--global-batch", "4", "--shard-size", "2"]
    settings = parse([*line, *more])
    seat = Seat(0, 1, 0, None, 1, sum_in_default_group)
    return assemble(settings, Alone(), seat, torch.device("cpu"), Accounting())


SKIPPING = [["--nonfinite-loss", "skip", "--mode", mode] for mode in ("live", "exact")]
STOPPING = [["--mode", mode] for mode in ("live", "exact")]


@pytest.mark.parametrize("trainer", STOPPING, indirect=True)
def test_a_loss_that_is_no_number_stops_the_run_with_the_step_named(trainer):
    train_step(trainer)
    weight = trainer.model.fc.bias
    weight.data[0] = math.nan

    with pytest.raises(EverstepError, match="the loss of step 2 is nan"):
        train_step(trainer)
    assert trainer.step == 1


@pytest.mark.parametrize("trainer", SKIPPING, indirect=True)
def test_where_it_is_asked_for_such_a_step_changes_nothing_but_counts_as_trained(trainer):
    before = trainer.model.bn1.running_mean.clone()
    hook = trainer.model.conv1.register_forward_hook(lambda *_: _[2] * math.inf)
    train_step(trainer)
    hook.remove()

    assert trainer.step == 1
    assert torch.equal(trainer.model.bn1.running_mean, before)
    assert all(torch.isfinite(tensor).all() for tensor in trainer.tensors().values())
    assert not any(tensor.any() for tensor in momenta(trainer)), "no update was made"

    train_step(trainer)
    assert any(tensor.any() for tensor in momenta(trainer))
    run = {"samples": 10, "fingerprint": {"global_batch": 4, "seed": 0}}
    account = trainer.account
    assert verify(run, [Commit(2, 0, account.samples, account.digest)]) == []


EXACT = [["--mode", "exact"]]


@pytest.mark.parametrize("trainer", EXACT, indirect=True)
def test_what_a_network_drops_depends_on_step_and_samples_and_not_on_what_was_drawn_before(trainer):
    trainer.model.fc = nn.Sequential(nn.Dropout(0.5), trainer.model.fc)
    before = copy.deepcopy(trainer.model.state_dict())
    outcomes = []
    for drawn in (0, 7):
        trainer.model.load_state_dict(before)
        trainer.exchange.forget()
        torch.rand(drawn)
        exchange(trainer, trainer.plan.batch(0))
        outcomes.append([parameter.grad.clone() for parameter in trainer.model.parameters()])

    assert all(map(torch.equal, *outcomes))


def momenta(trainer: Trainer) -> list[torch.Tensor]:
    return [t for name, t in trainer.tensors().items() if name.startswith("momentum.")]


@pytest.mark.parametrize("trainer", SKIPPING[:1], indirect=True)
def test_a_gradient_that_is_no_number_is_found_where_the_loss_is_one(trainer):
    weight = trainer.model.fc.weight
    hook = weight.register_hook(lambda gradient: gradient * math.inf)
    train_step(trainer)
    hook.remove()

    assert trainer.skipped == 1
    assert not any(tensor.any() for tensor in momenta(trainer))


@pytest.mark.parametrize("trainer", SKIPPING[1:], indirect=True)
def test_steps_are_not_left_out_for_ever(trainer):
    trainer.model.fc.bias.data[0] = math.nan
    trainer.skipped = SKIPPED_IN_A_ROW

    with pytest.raises(EverstepError, match="the loss of step 1 is nan"):
        train_step(trainer)


@pytest.mark.parametrize("trainer", STOPPING[:1], indirect=True)
def test_a_worker_of_another_program_or_other_settings_has_another_identity(trainer, monkeypatch):
    mine = trainer.identity()
    assert mine == trainer.identity()

    monkeypatch.setattr(program, "version", lambda: "another")
    assert trainer.identity() != mine


def test_a_program_s_version_changes_with_any_line_of_its_sources(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    before = program.digest(tmp_path)
    assert program.digest(tmp_path) == before

    (tmp_path / "a.py").write_text("x = 2\n")
    changed = program.digest(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")

    assert len({before, changed, program.digest(tmp_path)}) == 3


@pytest.mark.parametrize("trainer", STOPPING[:1], indirect=True)
def test_a_result_is_written_as_soon_as_there_is_room_for_it(trainer, monkeypatch, caplog):
    open_run(trainer.settings, 10)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))  # the kernel lets no file grow beyond
    monkeypatch.setattr(  # somebody makes room while it waits
        "trainer.train.time.sleep",
        lambda _: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard)),
    )
    try:
        train._write_result(trainer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert "its result cannot be written" in caplog.text
    assert result(trainer.settings) is not None


@pytest.mark.parametrize("trainer", STOPPING[:1], indirect=True)
def test_a_run_s_folder_that_cannot_be_made_is_an_error_that_says_what_to_do(trainer):
    trainer.settings.run.write_text("a file where the folder is to be")

    with pytest.raises(EverstepError, match="cannot be written") as refused:
        open_run(trainer.settings, 10)

    assert "Make room" in refused.value.remedy


def breaking_seat() -> Seat:
    """In a group of two that breaks in its first sum."""

    def lost(tensor: torch.Tensor) -> None:
        tensor.fill_(9)
        raise PeerLostError("gone")

    return Seat(0, 2, 0, None, 2, lost)


@pytest.mark.parametrize("trainer", STOPPING, indirect=True)
def test_what_a_survivor_has_computed_of_a_broken_step_is_not_computed_again(
    trainer, data, tmp_path
):
    undisturbed = assembled(data, tmp_path / "other", ["--mode", trainer.settings.mode])
    train_step(undisturbed)
    seat, asked = trainer.seat, list[int]()
    read = trainer.train_set.train_batch

    def counted(ids, seed, epoch):
        asked.extend(ids.tolist())
        return read(ids, seed, epoch)

    trainer.train_set.train_batch = counted
    trainer.seat = breaking_seat()
    with pytest.raises(PeerLostError):
        train_step(trainer)
    before = list(asked)
    assert trainer.roll_back()
    trainer.adopt(0, trainer.kept(), keeps=True)
    trainer.seat = seat
    train_step(trainer)

    assert 0 < len(before) < 4
    assert sorted(asked) == sorted(trainer.plan.batch(0).tolist()), "each once"
    assert trainer.account == undisturbed.account
    if trainer.settings.mode == "exact":
        assert trainer.sha256() == undisturbed.sha256()


@pytest.mark.parametrize("trainer", STOPPING[:1], indirect=True)
def test_more_spans_than_a_report_has_room_for_are_forgotten(trainer):
    one = InFlight(mine=tuple((first, first + 1) for first in range(0, 2 * MOST_KEPT, 2)))
    trainer.in_flight = one
    assert trainer.kept() == one.mine

    trainer.in_flight = one.plus(((99, 100),), 0.0, trainer.plan.batch(0)[:1], 0)
    assert trainer.kept() == ()
    assert trainer.in_flight == InFlight(), (
        "the gradients, too: they cannot be told from the others'"
    )


@pytest.mark.parametrize("trainer", STOPPING, indirect=True)
def test_where_another_s_state_was_taken_up_the_step_is_computed_anew(trainer):
    seat = trainer.seat
    trainer.seat = breaking_seat()
    with pytest.raises(PeerLostError):
        train_step(trainer)
    trainer.roll_back()
    trainer.adopt(0, (), keeps=False)
    trainer.seat = seat
    train_step(trainer)

    assert trainer.account.samples == 4
