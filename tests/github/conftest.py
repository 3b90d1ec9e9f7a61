"""Fixtures of the tests that run the workflows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.github.act import Repository


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """Yield a copy of the repository whose workflows tests run; no test may change it."""
    repository = Repository.create(tmp_path_factory.mktemp("github"))
    yield repository
    assert repository.changes() == "", "a test that changes files needs `changed_repository`"


@pytest.fixture
def changed_repository(repository: Repository, tmp_path: Path) -> Repository:
    """Return a copy of the repository that the test may change."""
    return repository.copy(tmp_path)
