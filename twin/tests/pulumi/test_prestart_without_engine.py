"""Runs that find no prestarted process; `test_prestart.py` tests the other runs, with the real engine."""

import sys
import tempfile
from pathlib import Path

import pytest
from cloudtwin.pulumi.prestart import connect, prestarted_program


def test_no_process_is_found_without_the_variable() -> None:
    assert connect(sys.executable, ["."], "/", {}) is None


def test_nothing_is_prestarted_where_the_path_of_a_socket_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_folder = tmp_path / ("folder-" * 16)
    long_folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long_folder))

    with prestarted_program(tmp_path, ["pulumi"]) as variables:
        assert not variables
