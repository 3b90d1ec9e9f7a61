"""The list of deliberate mistakes fits the code; `tests.mutation.run` injects them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation import run
from tests.mutation.elastic_mutations import ELASTIC_MUTATIONS
from tests.mutation.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]


every_mutation = pytest.mark.parametrize(
    "mutation", [*MUTATIONS, *ELASTIC_MUTATIONS], ids=lambda mutation: mutation.description
)


@every_mutation
def test_a_mistake_changes_its_file_and_leaves_valid_python(mutation: Mutation) -> None:
    original = (ROOT / mutation.file).read_text()
    source = mutation.applied_to(original)

    assert source != original
    ast.parse(source)


def test_no_mistake_uses_an_undefined_name(tmp_path: Path) -> None:
    """Otherwise the name, and not the mistake, would make the test fail."""
    for number, mutation in enumerate([*MUTATIONS, *ELASTIC_MUTATIONS]):
        source = mutation.applied_to((ROOT / mutation.file).read_text())
        (tmp_path / f"{number}.py").write_text(source)

    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", str(tmp_path)]
    result = subprocess.run(ruff, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout


@every_mutation
def test_the_tests_of_a_mistake_exist(mutation: Mutation) -> None:
    assert mutation.tests, "without a path, pytest would run all tests"
    assert [path for path in mutation.tests if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("source", ["", "old old"])
def test_a_mistake_that_no_longer_fits_its_file_is_refused(source: str) -> None:
    mutation = Mutation("a mistake", "module.py", "old", "new")

    with pytest.raises(ValueError, match=r"module\.py has 'old' \d times instead of once"):
        mutation.applied_to(source)


def test_the_tests_of_the_changed_file_and_of_its_folder_run_before_all_others() -> None:
    """Most mistakes fail there, and all tests of the components take minutes."""
    mutation = Mutation("a mistake", "components/platform/network.py", "old", "new")

    assert run.stages(mutation) == [
        ("tests/components/platform/test_network.py",),
        ("tests/components/platform",),
        ("tests/components", "tests/policy"),
    ]


def test_a_mistake_with_tests_of_its_own_runs_the_tests_of_its_file_and_its_own() -> None:
    file, tests = "everstep/elastic/membership/run_keys.py", ("tests/everstep/elastic/accounting",)

    assert run.stages(Mutation("a mistake", file, "old", "new", tests)) == [
        ("tests/everstep/elastic/membership/test_run_keys.py",),
        tests,
    ]


@pytest.mark.parametrize(
    ("code", "output", "failure"),
    [
        (0, "", None),
        (5, "no tests ran", None),
        (1, "FAILED tests/test_x.py::test_y - AssertionError", "tests/test_x.py::test_y"),
        (2, "ERROR tests/test_x.py", "tests/test_x.py"),
        (-9, "killed", "killed"),
    ],
)
def test_a_mistake_is_caught_by_a_failing_test_only(
    code: int, output: str, failure: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = subprocess.CompletedProcess([], code, output, "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: result)

    assert run._run_tests(tmp_path, ["tests"]) == failure


@pytest.mark.parametrize("code", [3, 4])
def test_a_mistake_is_not_caught_if_pytest_itself_fails(
    code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = subprocess.CompletedProcess([], code, "", "unrecognized arguments")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: result)

    with pytest.raises(RuntimeError, match="unrecognized arguments"):
        run._run_tests(tmp_path, ["tests"])


def test_a_test_run_that_does_not_end_in_time_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def expire(command: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", expire)

    assert run._run_tests(tmp_path, ["tests"]) == "no result within 900 s"
