"""Exclusive locks on files."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import TextIO

import pytest

from everstep.cli.engine.file_lock import exclusive_lock
from everstep.errors import EverstepError


def test_a_held_lock_is_refused_with_the_command_that_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "up.lock"
    message = f"`everstep down` is already running: process {os.getpid()} since"
    with (
        exclusive_lock(path, "`everstep down`", ""),
        pytest.raises(EverstepError, match=message) as error,
        exclusive_lock(path, "`everstep up`", "Wait for it."),
    ):
        pass
    assert error.value.fix == "Wait for it."
    with exclusive_lock(path, "`everstep up`", "Wait for it."):
        pass  # a released lock can be acquired again


def test_a_lock_file_that_down_removes_before_it_is_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock, removals = tmp_path / "twin" / "up.lock", fcntl.flock, [True]

    def remove_then_lock(file: TextIO, operation: int) -> None:
        if removals:
            removals.clear()
            shutil.rmtree(path.parent)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)

    with (
        exclusive_lock(path, "`everstep up`", ""),
        pytest.raises(EverstepError, match="`everstep up` is already running"),
        exclusive_lock(path, "`everstep down`", ""),
    ):
        pass


def test_a_folder_that_is_removed_each_time_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "twin" / "up.lock"
    monkeypatch.setattr(fcntl, "flock", lambda *_: shutil.rmtree(path.parent))

    with (
        pytest.raises(EverstepError, match="keep removing"),
        exclusive_lock(path, "`everstep up`", ""),
    ):
        pass
