"""Exclusive locks on files."""

import os
from pathlib import Path

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
