"""The report of `make test-gpu`, on a machine without GPUs."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from tests.gpu import run
from tests.gpu.machine import NO_GPU, what_is_missing
from tests.gpu.run import FOLDER, Record, main

pytest_plugins = ["pytester"]


def test_without_a_gpu_the_run_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "gpu_count", lambda: 0)

    assert main([]) == 1
    assert NO_GPU in capsys.readouterr().err


def test_a_test_that_is_run_without_a_gpu_fails(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "import tests.gpu.conftest as gpus\n"
        "gpus.gpu_count = lambda: 0\n"
        "required_gpus = gpus.required_gpus\n"
    )
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_a(): pass\ndef test_b(): pass")

    result = pytester.runpytest("-W", "default")

    result.assert_outcomes(errors=1, passed=1)
    assert NO_GPU in result.stdout.str()


def test_with_one_gpu_the_reason_names_what_needs_two(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "import tests.gpu.conftest as gpus\n"
        "gpus.gpu_count = lambda: 1\n"
        "required_gpus = gpus.required_gpus\n"
    )
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


def test_enough_gpus_are_no_reason_to_skip() -> None:
    assert what_is_missing(2, 2, "NCCL between two GPUs") is None


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


def test_every_test_of_gpus_is_marked() -> None:
    for path in FOLDER.glob("test_*.py"):
        if path.name != "test_run.py":
            assert "pytest.mark.gpu" in path.read_text(), path.name
