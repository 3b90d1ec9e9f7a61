"""The lock of a twin: exclusive and shared holders, and the errors that name them."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.nodes import lock
from cloudtwin.progress import Silent, Step


def test_the_error_for_a_second_holder_names_the_first(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        lock.held(path, "twin 'a'", "up"),
        pytest.raises(TwinError) as error,
        lock.held(path, "twin 'a'", "up"),
    ):
        pass

    assert f"process {os.getpid()} is running `up`" in error.value.problem
    assert f"kill {os.getpid()}" in error.value.fix


def test_operations_share_the_lock_but_exclude_up_and_down(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock.held(path, "t", "drain", shared=True):
        with lock.held(path, "t", "vanish", shared=True):
            pass
        with pytest.raises(TwinError, match="is running"), lock.held(path, "t", "down"):
            pass


def test_the_lock_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), lock.held(tmp_path / "lock", "t", "up"):
        raise RuntimeError
    with lock.held(tmp_path / "lock", "t", "up"):
        pass


def test_down_may_remove_the_folder_of_the_lock_and_the_next_up_creates_another(
    tmp_path: Path,
) -> None:
    path = tmp_path / "twin" / "lock"
    with lock.held(path, "t", "down"):
        shutil.rmtree(path.parent)
        with lock.held(path, "t", "up"):
            assert path.exists()


def test_a_holder_that_has_ended_is_not_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock.held(path, "t", "drain", shared=True):
        path.write_text("4194305 up")  # above the largest possible PID
        with pytest.raises(TwinError) as error, lock.held(path, "t", "down"):
            pass

    assert "4194305" not in str(error.value)


def test_up_waits_for_an_operation_on_a_machine_but_not_for_another_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    operation = contextlib.ExitStack()
    operation.enter_context(lock.held(path, "t", "remove", shared=True))

    class OperationEnds(Silent):
        """Progress that ends the operation when `up` begins to wait."""

        @contextlib.contextmanager
        def step(self, action: str) -> Iterator[Step]:
            operation.close()
            yield self

    with (
        lock.held(path, "t", "up", shared_timeout_seconds=3600, progress=OperationEnds()),
        # The second `up` fails immediately: the test's timeout is shorter than its wait.
        pytest.raises(TwinError, match="is running `up`"),
        lock.held(path, "t", "up", shared_timeout_seconds=3600),
    ):
        pass


def test_the_error_after_the_timeout_names_the_operation_that_does_not_end(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        lock.held(path, "t", "drain gpu-0", shared=True),
        pytest.raises(TwinError, match=f"process {os.getpid()} is running `drain gpu-0`"),
        lock.held(path, "t", "up", shared_timeout_seconds=0.05),
    ):
        pass
