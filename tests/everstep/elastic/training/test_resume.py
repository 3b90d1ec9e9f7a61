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


def resume_with_test_data(
    folder: Path, recorded: str | None, accept_data: str = "", data: str = SAVED_DATA
) -> StoredCheckpoint | None:
    """Resume a run with test data from a checkpoint that records other ones, or none."""
    fingerprint = {"data": SAVED_DATA} | ({"test data": recorded} if recorded else {})
    manifest = Manifest(step=6, generation=1, fingerprint=fingerprint)
    write(folder / "other", {"w": torch.zeros(2, 3)}, manifest, commit=lambda _: True)
    return choose_checkpoint(
        FolderStore(folder / "other"),
        {"data": data, "test data": "7 images in 2 classes, contents 7777"},
        accept_data,
        lambda _: None,
    )


def test_changed_test_data_are_refused_and_accepted_like_training_data(folder: Path) -> None:
    recorded = "6 images in 2 classes, contents 6666"
    with pytest.raises(EverstepError, match="the test data have changed since") as error:
        resume_with_test_data(folder, recorded)

    assert f"{recorded} then; 7 images in 2 classes, contents 7777 now" in error.value.problem
    assert "--accept-data=7777 " in error.value.fix
    assert resume_with_test_data(folder, recorded, accept_data="7777") is not None


def test_a_change_of_both_splits_is_accepted_by_both_digests(folder: Path) -> None:
    recorded = "6 images in 2 classes, contents 6666"
    for accept_data in ("bbbb", "7777"):
        with pytest.raises(EverstepError, match="the data and the test data have changed") as error:
            resume_with_test_data(folder, recorded, accept_data, CURRENT_DATA)
        assert "--accept-data=bbbb7777 " in error.value.fix
        assert f"test data: {recorded} then; 7 images" in error.value.problem

    assert resume_with_test_data(folder, recorded, "bbbb7777", CURRENT_DATA) is not None


def test_a_checkpoint_of_a_version_that_did_not_record_test_data_is_continued(folder: Path) -> None:
    assert resume_with_test_data(folder, recorded=None) is not None
    with pytest.raises(EverstepError, match="the data have changed") as error:
        resume_with_test_data(folder, recorded=None, data=CURRENT_DATA)
    assert "--accept-data=bbbb " in error.value.fix


def test_test_data_that_only_the_checkpoint_has_are_another_run(folder: Path) -> None:
    fingerprint = {"model": "resnet18", "data": SAVED_DATA, "test data": "6"}
    write(folder, {"w": torch.zeros(2, 3)}, Manifest(5, 2, fingerprint), commit=lambda _: True)
    (folder / "step-00000004").rename(folder / "moved")

    with pytest.raises(OtherRunError, match="test data is '6' there and None here"):
        resume(folder, data=SAVED_DATA)


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
