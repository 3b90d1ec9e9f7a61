"""The choice of modules that a run with a marker imports; each complete run checks it for all tests."""

from pathlib import Path

import pytest

from tests import marked_modules

MARKED = "@pytest.mark.twin\ndef test_it(): ...\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder of tests in a repository of its own."""
    monkeypatch.setattr(marked_modules, "ROOT", tmp_path)
    folder = tmp_path / "tests" / "part"
    folder.mkdir(parents=True)
    return folder


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_module_with_the_marker_is_imported_for_this_marker_only(folder: Path) -> None:
    module = written(folder / "test_it.py", MARKED)

    assert not marked_modules.can_be_ignored(module, "twin")
    assert marked_modules.can_be_ignored(module, "e2e")


@pytest.mark.parametrize("expression", ["", "not twin", "twin or e2e", "schedules"])
def test_any_other_expression_imports_all_modules(folder: Path, expression: str) -> None:
    module = written(folder / "test_it.py", "def test_it(): ...\n")

    assert not marked_modules.can_be_ignored(module, expression)
    assert marked_modules.can_be_ignored(module, "twin")


@pytest.mark.parametrize("conftest", ["conftest.py", "tests/conftest.py", "tests/part/conftest.py"])
def test_a_module_that_gets_the_marker_from_a_conftest_is_imported(
    folder: Path, conftest: str
) -> None:
    module = written(folder / "test_it.py", "def test_it(): ...\n")
    written(marked_modules.ROOT / conftest, "item.add_marker(pytest.mark.twin)\n")

    assert not marked_modules.can_be_ignored(module, "twin")


class Item:
    """A collected test with a marker."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def iter_markers(self) -> list[pytest.Mark]:
        return [pytest.mark.twin.mark, pytest.mark.timeout(1).mark]


def test_a_run_ends_with_an_error_if_it_finds_a_marker_that_its_module_does_not_name(
    folder: Path,
) -> None:
    marked = written(folder / "test_it.py", MARKED)
    hidden = written(folder / "test_hidden.py", "def test_it(): ...\n")

    marked_modules.check_markers([Item(marked)])  # type: ignore[list-item]
    with pytest.raises(pytest.UsageError, match=r"test_hidden\.py: name the marker"):
        marked_modules.check_markers([Item(marked), Item(hidden)])  # type: ignore[list-item]
