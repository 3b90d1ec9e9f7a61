"""Run the GPU tests and report what could not be tested: `make test-gpu`.

    python -m tests.gpu.run           # further arguments go to pytest

Exits with 1 if the machine has no GPU, if a test fails, or if no test could run.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.gpu.machine import NO_GPU, describe, gpu_count

FOLDER = Path(__file__).parent
SKIPPED = "Skipped: "  # pytest's prefix of a reason


class Record:
    """A pytest plugin that counts results and keeps the reasons of skipped tests.

    Attributes:
        passed: number of tests that passed.
        failed: number of failures in the set-up, the call or the teardown of tests.
        reasons: reasons of tests that did not run, each once.
    """

    def __init__(self) -> None:
        self.passed = self.failed = 0
        self.reasons: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record one phase of one test."""
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix(SKIPPED)
            if reason not in self.reasons:
                self.reasons.append(reason)
        self.failed += report.failed
        self.passed += report.passed and report.when == "call"

    @property
    def exit_code(self) -> int:
        """0 if a test passed and none failed."""
        return 0 if self.passed and not self.failed else 1

    def lines(self) -> list[str]:
        """Return the lines of the summary."""
        lines = [f"{self.passed} passed, {self.failed} failed"]
        if not self.passed and not self.failed:
            lines.append("no test ran: this is not a success")
        return [*lines, *(f"NOT TESTED: {reason}" for reason in self.reasons)]


def main(arguments: Sequence[str]) -> int:
    """Run the tests and return the exit code."""
    count = gpu_count()
    if not count:
        print(NO_GPU, file=sys.stderr)
        return 1
    record = Record()
    # Warnings from drivers and GPU libraries differ between machines.
    options = ["-m", "gpu", "-W", "default", "-p", "no:xdist", *arguments]
    code = int(pytest.main([str(FOLDER), *options], plugins=[record]))
    print("", *describe(count), *record.lines(), sep="\n")
    return record.exit_code or code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
