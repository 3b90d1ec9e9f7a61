"""The loader that prefetches images."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from everstep.errors import EverstepError
from tests.trainer.data.photographs import open_splits, write_photographs
from trainer import data
from trainer.data import BatchRequest, Dataset
from trainer.data.loader import Loader, Readers
from trainer.data.protocol import ReaderArguments, from_slot, to_slot
from trainer.data.reader import Splits

SIZE = 24
VALID_IMAGES = 40  # number in each split; train has an invalid image, too


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_photographs(tmp_path_factory.mktemp("photographs"), per_class=20)
    valid_jpeg = (folder / "train" / "dog" / "0.jpg").read_bytes()
    (folder / "train" / "dog" / "z.jpg").write_bytes(valid_jpeg[:600])
    return folder


@pytest.fixture(scope="module")
def loaders(folder: Path) -> Iterator[tuple[Dataset, Dataset]]:
    """Yield the loaders of both splits, with two processes and 12 slots, two for each sample of a global batch."""
    train, test = data.read_ahead(*open_splits(folder, SIZE), readers=2, global_batch=6)
    assert isinstance(train, Loader)
    yield train, test
    train.close()


def test_images_of_the_reader_processes_equal_those_decoded_in_this_process(
    folder: Path, loaders: tuple[Dataset, Dataset]
) -> None:
    (plain_train, plain_test), (train, test) = open_splits(folder, SIZE), loaders
    ids = np.random.default_rng(0).permutation(VALID_IMAGES)  # more than there are slots
    train_batches = plain_train.train_batch(ids, 5, 2), train.train_batch(ids, 5, 2)
    test_batches = plain_test.test_batch(ids), test.test_batch(ids)

    for (expected_images, expected_labels), (images, labels) in (train_batches, test_batches):
        assert np.array_equal(images, expected_images)
        assert np.array_equal(labels, expected_labels)


def test_images_are_correct_after_a_change_of_the_requested_samples(
    folder: Path, loaders: tuple[Dataset, Dataset]
) -> None:
    plain, train = open_splits(folder, SIZE)[0], loaders[0]
    order = np.random.default_rng(1).permutation(VALID_IMAGES)
    share_among_three, share_among_two = (
        np.array_split(order[:12], 3)[1],
        np.array_split(order[:12], 2)[0],
    )

    train.prefetch(
        [BatchRequest(ids=share_among_three, seed=1), BatchRequest(ids=order[20:24], seed=1)]
    )
    train.prefetch(
        [BatchRequest(ids=share_among_two, seed=1), BatchRequest(ids=order[12:18], seed=1)]
    )

    for ids in (share_among_two, order[12:18], order[18:30]):
        assert np.array_equal(train.train_batch(ids, 1, 0)[0], plain.train_batch(ids, 1, 0)[0])


def test_an_evaluation_does_not_wait_for_slots_of_the_training(
    loaders: tuple[Dataset, Dataset],
) -> None:
    train, test = loaders
    ids = np.arange(VALID_IMAGES)
    train.prefetch([BatchRequest(ids=ids, seed=9)])

    assert test.test_batch(ids)[0].shape == (VALID_IMAGES, SIZE, SIZE, 3)


def test_images_needed_now_do_not_wait_for_prefetched_ones(
    folder: Path, loaders: tuple[Dataset, Dataset]
) -> None:
    plain, train = open_splits(folder, SIZE)[0], loaders[0]
    # The prefetched images occupy all slots.
    train.prefetch([BatchRequest(ids=np.arange(VALID_IMAGES - 12, VALID_IMAGES), seed=4)])

    images, _ = train.train_batch(np.arange(VALID_IMAGES), 4, 0)

    assert np.array_equal(images, plain.train_batch(np.arange(VALID_IMAGES), 4, 0)[0])


def test_an_invalid_image_raises_when_it_is_used_and_not_when_it_is_prefetched(
    loaders: tuple[Dataset, Dataset],
) -> None:
    train, _ = loaders
    train.prefetch([BatchRequest(ids=np.arange(VALID_IMAGES + 1))])
    train.train_batch(np.arange(VALID_IMAGES), 0, 0)

    with pytest.raises(
        EverstepError, match=r"dog/z\.jpg cannot be read as an image: it is truncated"
    ):
        train.train_batch(np.array([VALID_IMAGES]), 0, 0)


def test_an_image_that_repeatedly_crashes_its_reader_ends_the_run_with_its_name(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train, test = open_splits(folder, SIZE)
    readers = Readers(train, test, count=1, slots=4, program=["false"])
    try:
        with pytest.raises(
            EverstepError, match=r"failed 3 consecutive times at .*cat/0\.jpg; .* code 1"
        ):
            readers.take([(0, 0, 0)])
    finally:
        readers.close()

    assert caplog.text.count("replacing it") == 2, "the last reader is not replaced"


def test_a_reader_detects_data_that_changed_during_the_run(folder: Path) -> None:
    arguments = ReaderArguments(
        folder=str(folder), size=SIZE, identities=("40 images", ""), memory=0, slots=1
    )

    with pytest.raises(
        EverstepError, match="changed since this worker started: 40 images then, 41"
    ):
        Splits(arguments).render(0, 0, 0, np.empty((SIZE, SIZE, 3), np.uint8))


def test_reader_arguments_survive_the_command_line() -> None:
    arguments = ReaderArguments(folder="/a b/ü", size=8, identities=("x", "y"), memory=5, slots=7)

    assert ReaderArguments.from_argument(arguments.to_argument()) == arguments


def test_an_error_too_long_for_a_slot_is_truncated() -> None:
    content = to_slot("ä" * 100, 30)

    assert len(content) == 30
    assert from_slot(content + b"rest") == "ä" * 14 + "\N{REPLACEMENT CHARACTER}"


def test_an_error_shorter_than_a_slot_ends_at_its_terminator() -> None:
    assert from_slot(to_slot("short", 30).ljust(30, b"x")) == "short"


def test_without_reader_processes_nothing_is_read_ahead(folder: Path) -> None:
    train, test = open_splits(folder, SIZE)

    assert data.read_ahead(train, test, readers=0, global_batch=8) == (train, test)
