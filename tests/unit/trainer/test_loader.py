import numpy as np
import pytest

from everstep.errors import EverstepError
from tests.unit.trainer.photographs import make
from trainer import data
from trainer.data import Asked
from trainer.data.loader import Readers
from trainer.data.reader import Parts
from trainer.data.wire import Opening, from_slot, to_slot

SIZE = 24
GOOD = 40  # pictures of a part; one more in train is broken


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = make(tmp_path_factory.mktemp("photographs"), each=20)
    whole = (folder / "train" / "dog" / "0.jpg").read_bytes()
    (folder / "train" / "dog" / "z.jpg").write_bytes(whole[:600])
    return folder


def parts(folder):
    return [data.load("imagefolder", folder, part, SIZE) for part in ("train", "test")]


@pytest.fixture(scope="module")
def loaders(folder):
    """Both parts with two processes, and fewer slots than a batch may have samples."""
    ahead = data.read_ahead(*parts(folder), workers=2, global_batch=6)
    yield ahead
    ahead[0].close()


def test_what_is_read_ahead_is_what_would_have_been_read(folder, loaders):
    for plain, ahead in zip(parts(folder), loaders, strict=True):
        ids = np.random.default_rng(0).permutation(40)  # more than there are slots

        for a, b in zip(plain.train_batch(ids, 5, 2), ahead.train_batch(ids, 5, 2), strict=True):
            if plain.part == "train":
                assert np.array_equal(a, b)
        for a, b in zip(plain.test_batch(ids), ahead.test_batch(ids), strict=True):
            if plain.part == "test":
                assert np.array_equal(a, b)


def test_a_change_of_the_group_only_changes_what_is_asked_for(folder, loaders):
    plain, train = parts(folder)[0], loaders[0]
    order = np.random.default_rng(1).permutation(40)
    group_of_three, group_of_two = (
        np.array_split(order[:12], 3)[1],
        np.array_split(order[:12], 2)[0],
    )

    train.expect([Asked(ids=group_of_three, seed=1), Asked(ids=order[20:24], seed=1)])
    train.expect([Asked(ids=group_of_two, seed=1), Asked(ids=order[12:18], seed=1)])

    for ids in (group_of_two, order[12:18], order[18:30]):
        assert np.array_equal(train.train_batch(ids, 1, 0)[0], plain.train_batch(ids, 1, 0)[0])


def test_an_evaluation_does_not_wait_for_slots_that_training_holds(loaders):
    train, test = loaders
    train.expect([Asked(ids=np.arange(40), seed=9)])

    assert test.test_batch(np.arange(40))[0].shape == (40, SIZE, SIZE, 3)


def test_what_is_wanted_now_does_not_wait_for_slots_that_are_wanted_later(folder, loaders):
    plain, train = parts(folder)[0], loaders[0]
    train.expect([Asked(ids=np.arange(GOOD - 12, GOOD), seed=4)])  # as many as there are slots

    images, _ = train.train_batch(np.arange(GOOD), 4, 0)

    assert np.array_equal(images, plain.train_batch(np.arange(GOOD), 4, 0)[0])


def test_a_broken_picture_is_named_when_it_is_its_turn_and_not_sooner(loaders):
    train, _ = loaders
    train.expect([Asked(ids=np.arange(GOOD + 1))])
    train.train_batch(np.arange(GOOD), 0, 0)

    with pytest.raises(
        EverstepError, match=r"dog/z\.jpg cannot be read as a picture: it is cut off"
    ):
        train.train_batch(np.array([GOOD]), 0, 0)


def test_a_picture_that_kills_its_reader_again_and_again_ends_the_run_with_its_name(folder):
    train, test = parts(folder)
    readers = Readers(train, test, count=1, slots=4, program=["false"])
    try:
        with pytest.raises(EverstepError, match=r"ended with 1 3 times at .*cat/0\.jpg"):
            readers.take([(0, 0, 0)])
    finally:
        readers.close()


def test_data_that_change_under_a_run_are_noticed_by_a_reader(folder):
    opening = Opening(
        folder=str(folder), size=SIZE, identities=("40 images", ""), memory=0, slots=1
    )

    with pytest.raises(
        EverstepError, match="changed since this worker started: 40 images then, 41"
    ):
        Parts(opening).render(0, 0, 0, np.empty((SIZE, SIZE, 3), np.uint8))


def test_an_opening_survives_the_command_line():
    opening = Opening(folder="/a b/ü", size=8, identities=("x", "y"), memory=5, slots=7)

    assert Opening.from_argument(opening.to_argument()) == opening


def test_an_error_too_long_for_a_slot_is_cut():
    assert from_slot(to_slot("ä" * 100, 30) + b"rest").startswith("ää")
    assert from_slot(to_slot("short", 30).ljust(30, b"x")) == "short"


def test_prepared_arrays_are_not_read_ahead(folder):
    train, test = parts(folder)

    assert data.read_ahead(train, test, workers=0, global_batch=8) == (train, test)
