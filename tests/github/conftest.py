"""Fixtures of the tests that run the workflows."""

from pathlib import Path

import pytest

from tests.github.act import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return a copy of the repository whose workflows a test runs."""
    return Repository.create(tmp_path)
