import os
import shutil

import pytest

from everstep.errors import EverstepError
from twin.nodes import lock


def test_who_comes_second_is_told_who_is_at_it(tmp_path):
    path = tmp_path / "lock"
    with (
        lock.held(path, "twin 'a'", "up"),
        pytest.raises(EverstepError) as caught,
        lock.held(path, "twin 'a'", "up"),
    ):
        pass

    assert f"process {os.getpid()} is at `up`" in caught.value.what
    assert f"kill {os.getpid()}" in caught.value.remedy


def test_verbs_run_side_by_side_but_not_beside_up_or_down(tmp_path):
    path = tmp_path / "lock"
    with lock.held(path, "t", "drain", shared=True):
        with lock.held(path, "t", "vanish", shared=True):
            pass
        with pytest.raises(EverstepError), lock.held(path, "t", "down"):
            pass


def test_the_lock_is_free_again_after_an_error(tmp_path):
    with pytest.raises(RuntimeError), lock.held(tmp_path / "lock", "t", "up"):
        raise RuntimeError
    with lock.held(tmp_path / "lock", "t", "up"):
        pass


def test_down_may_remove_the_lock_s_folder_and_the_next_up_makes_another(tmp_path):
    path = tmp_path / "twin" / "lock"
    with lock.held(path, "t", "down"):
        shutil.rmtree(path.parent)
        with lock.held(path, "t", "up"):
            assert path.exists()


def test_a_holder_that_is_long_gone_is_not_named(tmp_path):
    path = tmp_path / "lock"
    with lock.held(path, "t", "drain", shared=True):
        path.write_text("4194305 up")  # above the largest id there can be
        with pytest.raises(EverstepError) as caught, lock.held(path, "t", "down"):
            pass

    assert "4194305" not in str(caught.value)


def test_a_verb_is_named_too(tmp_path):
    with (
        lock.held(tmp_path / "lock", "twin 'a'", "drain gpu-0", shared=True),
        pytest.raises(EverstepError, match=f"process {os.getpid()} is at `drain gpu-0`"),
        lock.held(tmp_path / "lock", "twin 'a'", "down"),
    ):
        pass
