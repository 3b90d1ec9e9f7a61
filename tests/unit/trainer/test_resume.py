import pytest
import torch

from everstep.elastic.checkpoint import Manifest, OtherRunError, write
from everstep.errors import EverstepError
from trainer.resume import check_shapes, choose

THERE = "8 images in 2 classes, contents aaaa"
HERE = "9 images in 2 classes, contents bbbb"


@pytest.fixture
def folder(tmp_path):
    manifest = Manifest(step=4, generation=1, fingerprint={"model": "resnet18", "data": THERE})
    write(tmp_path, {"w": torch.zeros(2, 3)}, manifest, commit=lambda _: True)
    return tmp_path


def run(folder, data=HERE, accepted="", model="resnet18"):
    return choose(folder, {"model": model, "data": data}, accepted, lambda _: None)


def test_changed_data_are_refused_with_what_differs_and_how_to_accept_them(folder):
    with pytest.raises(EverstepError) as error:
        run(folder)

    assert f"{THERE} then; {HERE} now" in error.value.what
    assert "--accept-data=bbbb" in error.value.remedy


def test_changed_data_that_are_named_are_accepted(folder):
    found = run(folder, accepted="bbbb")

    assert found is not None
    assert found.manifest.step == 4


def test_a_word_that_accepted_other_data_accepts_no_others_later(folder):
    with pytest.raises(EverstepError, match="the data have changed"):
        run(folder, data="9 images in 2 classes, contents cccc", accepted="bbbb")


def test_to_accept_data_accepts_no_other_settings(folder):
    with pytest.raises(OtherRunError, match="model is 'resnet18' there"):
        run(folder, accepted="bbbb", model="resnet50")


def test_unchanged_data_need_no_word(folder):
    assert run(folder, data=THERE) is not None


def test_another_number_of_classes_cannot_be_accepted(folder):
    found = run(folder, accepted="bbbb")

    with pytest.raises(EverstepError, match="the number of classes is another"):
        check_shapes(found.path, found.load(), {"w": torch.zeros(2, 4)})
