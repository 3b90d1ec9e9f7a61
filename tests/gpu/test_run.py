"""The report of `make test-gpu`, on a machine without GPUs."""

import ast
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gpu import run
from tests.gpu.machine import NO_GPU, skip_reason
from tests.gpu.run import FOLDER, Record, main

pytest_plugins = ["pytester"]

CONFTEST = "from tests.gpu.conftest import required_gpus"


def test_without_a_gpu_the_run_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "gpu_count", lambda: 0)

    assert main([]) == 1
    assert NO_GPU in capsys.readouterr().err


def test_a_marked_test_fails_without_a_gpu(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.gpu.conftest.gpu_count", lambda: 0)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_a(): pass\ndef test_b(): pass")

    result = pytester.runpytest("-W", "default")

    result.assert_outcomes(errors=1, passed=1)
    assert NO_GPU in result.stdout.str()


def test_with_one_gpu_the_reason_names_the_purpose_of_a_test_that_needs_two(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.gpu.conftest.gpu_count", lambda: 1)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        "import pytest\n"
        "pytestmark = pytest.mark.gpu\n"
        "def test_a(): pass\n"
        "@pytest.mark.gpu(count=2, purpose='NCCL between two GPUs')\n"
        "def test_b(): pass\n"
    )
    record = Record()

    result = pytester.inline_run("-W", "default", plugins=[record])

    result.assertoutcome(passed=1, skipped=1)
    assert record.exit_code == 0
    assert record.lines() == [
        "1 passed, 0 failed",
        "NOT TESTED: 1 GPU: NCCL between two GPUs not tested; it needs 2",
    ]


def test_a_test_is_not_skipped_if_there_are_enough_gpus() -> None:
    assert skip_reason(2, 2, "NCCL between two GPUs") is None


@pytest.mark.parametrize(
    ("outcomes", "code"), [([], 1), (["skipped"], 1), (["passed"], 0), (["passed", "failed"], 1)]
)
def test_a_run_in_which_no_test_passed_or_one_failed_exits_with_1(
    outcomes: Sequence[str], code: int
) -> None:
    record = Record()
    for outcome in outcomes:
        report = SimpleNamespace(
            skipped=outcome == "skipped",
            passed=outcome == "passed",
            failed=outcome == "failed",
            when="call",
            longrepr=("file", 1, "Skipped: no etcd"),
        )
        record.pytest_runtest_logreport(report)  # type: ignore[arg-type] # a stand-in

    assert record.exit_code == code
    assert ("NOT TESTED: no etcd" in record.lines()) == ("skipped" in outcomes)


def test_every_gpu_test_is_marked() -> None:
    tests_without_mark = [
        f"{path.name}: {test}"
        for path in FOLDER.glob("test_*.py")
        if path.name != Path(__file__).name
        for test in unmarked_tests(ast.parse(path.read_text()))
    ]

    assert tests_without_mark == []


def unmarked_tests(module: ast.Module) -> list[str]:
    """Return the tests of a module without the marker `gpu`, which may also be the module's."""
    if "pytestmark = pytest.mark.gpu" in map(ast.unparse, module.body):
        return []
    return [
        node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if not any(ast.unparse(mark).startswith("pytest.mark.gpu") for mark in node.decorator_list)
    ]


def test_a_test_without_a_mark_is_detected() -> None:
    source = "@pytest.mark.gpu(count=2)\ndef test_a(): pass\ndef test_b(): pass"

    assert unmarked_tests(ast.parse(source)) == ["test_b"]
    assert unmarked_tests(ast.parse(f"pytestmark = pytest.mark.gpu\n{source}")) == []
