import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from everstep.errors import EverstepError
from tests.unit.trainer.photographs import make
from trainer import data
from trainer.data import Asked
from trainer.data.loader import Readers
from trainer.data.wire import Opening, from_slot, to_slot

SIZE = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("photographs"), each=20)


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


def test_a_broken_picture_is_named_when_it_is_its_turn(folder, tmp_path):
    make(tmp_path / "photographs", each=4)
    broken = tmp_path / "photographs" / "train" / "dog" / "2.jpg"
    broken.write_bytes(broken.read_bytes()[:600])
    train, _ = data.read_ahead(*parts(tmp_path / "photographs"), workers=1, global_batch=8)
    try:
        train.expect([Asked(ids=np.arange(8))])
        train.train_batch(np.arange(4), 0, 0)

        with pytest.raises(
            EverstepError, match=r"dog/2\.jpg cannot be read as a picture: it is cut off"
        ):
            train.train_batch(np.arange(4, 8), 0, 0)
    finally:
        train.close()


def test_a_reading_process_that_is_killed_is_replaced_and_nothing_is_lost(folder, caplog):
    train, test = parts(folder)
    readers = Readers(train, test, count=1, slots=40)
    try:
        keys = [(0, sample, sample) for sample in range(20)]
        readers.expect(0, keys)
        os.kill(readers.processes[0], signal.SIGKILL)

        images = readers.take(keys)

        for sample in range(20):
            into = np.empty((SIZE, SIZE, 3), np.uint8)
            train.render(sample, sample, into)
            assert np.array_equal(images[sample], into)
        assert "ended with -9" in caplog.text
    finally:
        readers.close()


def test_a_picture_that_kills_its_reader_again_and_again_ends_the_run_with_its_name(folder):
    train, test = parts(folder)
    readers = Readers(train, test, count=1, slots=4, program=["false"])
    try:
        with pytest.raises(EverstepError, match=r"ended with 1 3 times at .*cat/0\.jpg"):
            readers.take([(0, 0, 0)])
    finally:
        readers.close()


def test_readers_end_with_their_worker_also_when_it_is_killed(folder):
    script = (
        "import sys, time; from pathlib import Path; from trainer import data\n"
        "folder = Path(sys.argv[1])\n"
        "train, test = (data.load('imagefolder', folder, part, 24) for part in ('train', 'test'))\n"
        "from trainer.data.loader import Readers\n"
        "readers = Readers(train, test, 1, 8)\n"
        "readers.take([(0, 0, 0)])\n"
        "print(*readers.processes, flush=True)\n"
        "time.sleep(60)\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    with worker.stdout as said:
        reader = int(said.readline())
        os.kill(reader, signal.SIGTERM)  # meant for the whole pod: its worker has a step to finish
        handle = os.pidfd_open(reader)

        worker.kill()
        worker.wait()

        assert wait_for_end(handle, 10), "a reader without a worker must not stay"
        os.close(handle)


def wait_for_end(handle: int, seconds: float) -> bool:
    """Whether the process behind a pidfd ends in time."""
    import select

    return bool(select.select([handle], [], [], seconds)[0])


def test_data_that_change_under_a_run_are_noticed_by_a_new_reader(tmp_path):
    folder = make(tmp_path / "photographs", each=2)
    train, test = parts(folder)
    (folder / "train" / "cat" / "0.jpg").unlink()
    readers = Readers(train, test, count=1, slots=4)
    try:
        with pytest.raises(EverstepError, match="have changed since this worker started"):
            readers.take([(0, 1, 0)])
    finally:
        readers.close()


def test_an_opening_survives_the_command_line():
    opening = Opening(folder="/a b/ü", size=8, identities=("x", "y"), memory=5, slots=7)

    assert Opening.from_argument(opening.to_argument()) == opening


def test_an_error_too_long_for_a_slot_is_cut():
    assert from_slot(to_slot("ä" * 100, 30) + b"rest").startswith("ää")
    assert from_slot(to_slot("short", 30).ljust(30, b"x")) == "short"


def test_prepared_arrays_are_not_read_ahead(folder):
    train, test = parts(folder)

    assert data.read_ahead(train, test, workers=0, global_batch=8) == (train, test)
