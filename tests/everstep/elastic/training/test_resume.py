"""The comparison of data and settings with the run that is resumed."""

from pathlib import Path

import pytest
import torch

from everstep.elastic.checkpoint.files import Manifest, write
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.restore import OtherRunError
from everstep.elastic.checkpoint.store import StoredCheckpoint
from everstep.elastic.training.resume import check_shapes, choose_checkpoint
from everstep.errors import EverstepError

SAVED_DATA = "8 images in 2 classes, contents aaaa"
CURRENT_DATA = "9 images in 2 classes, contents bbbb"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    manifest = Manifest(step=4, generation=1, fingerprint={"model": "resnet18", "data": SAVED_DATA})
    write(tmp_path, {"w": torch.zeros(2, 3)}, manifest, commit=lambda _: True)
    return tmp_path


def resume(
    folder: Path, data: str = CURRENT_DATA, accept_data: str = "", model: str = "resnet18"
) -> StoredCheckpoint | None:
    return choose_checkpoint(
        FolderStore(folder), {"model": model, "data": data}, accept_data, lambda _: None
    )


def test_changed_data_are_refused_with_the_difference_and_the_option_that_accepts_them(
    folder: Path,
) -> None:
    with pytest.raises(EverstepError) as error:
        resume(folder)

    assert f"{SAVED_DATA} then; {CURRENT_DATA} now" in error.value.problem
    assert "--accept-data=bbbb" in error.value.fix
    assert "Run(accept_data='bbbb')" in error.value.fix, "a script has no such flag"
    assert "without our trainer, another folder" in error.value.fix


def test_changed_data_are_accepted_by_their_digest(folder: Path) -> None:
    checkpoint = resume(folder, accept_data="bbbb")

    assert checkpoint is not None
    assert checkpoint.manifest.step == 4


def test_the_digest_of_accepted_data_accepts_no_other_data(folder: Path) -> None:
    with pytest.raises(EverstepError, match="the data have changed"):
        resume(folder, data="9 images in 2 classes, contents cccc", accept_data="bbbb")


def test_data_that_are_identified_by_their_number_of_samples_are_accepted_by_it(
    folder: Path,
) -> None:
    assert resume(folder, data="9 samples", accept_data="9") is not None
    for accept_data in ("samples", "8"):
        with pytest.raises(EverstepError, match="the data have changed") as error:
            resume(folder, data="9 samples", accept_data=accept_data)
        assert "Run(accept_data='9')" in error.value.fix


def test_accepting_data_accepts_no_other_settings(folder: Path) -> None:
    with pytest.raises(OtherRunError, match="model is 'resnet18' there") as error:
        resume(folder, accept_data="bbbb", model="resnet50")

    assert "without our trainer, another folder" in error.value.fix


def test_unchanged_data_need_no_acceptance(folder: Path) -> None:
    assert resume(folder, data=SAVED_DATA) is not None


def test_another_number_of_classes_cannot_be_accepted(folder: Path) -> None:
    checkpoint = resume(folder, accept_data="bbbb")
    assert checkpoint is not None

    with pytest.raises(
        EverstepError,
        match=r"does not fit this model: the shape of w is \[2, 3\] there and \[2, 4\] here",
    ):
        check_shapes(checkpoint.location, checkpoint.load(), {"w": torch.zeros(2, 4)})


@pytest.mark.parametrize(
    ("state", "model", "difference"),
    [
        (["model.w"], ["model.w", "model.new"], "model.new is only here"),
        (["model.w", "model.old"], ["model.w"], "model.old is only there"),
    ],
)
def test_a_checkpoint_of_a_model_with_other_tensors_is_refused(
    state: list[str], model: list[str], difference: str
) -> None:
    with pytest.raises(EverstepError, match=f"does not fit this model: {difference}"):
        check_shapes(
            "step-00000004",
            dict.fromkeys(state, torch.zeros(1)),
            dict.fromkeys(model, torch.zeros(1)),
        )


def test_a_checkpoint_may_lack_the_tensors_of_other_states() -> None:
    check_shapes(
        "", {"model.w": torch.zeros(1)}, dict.fromkeys(["model.w", "average.w"], torch.zeros(1))
    )
