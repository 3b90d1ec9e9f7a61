"""Inject deliberate mistakes into copies of the repository and check that a test catches each.

python -m tests.mutation.run [--only WORD] [--sample N] [--jobs 2] [--assume-pass] [--markdown]
"""

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.mutation.elastic_mutations import ELASTIC_MUTATIONS
from tests.mutation.mutations import ALL_TESTS, MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 900
TEST_TIMEOUT_SECONDS = 120  # a mistake may make a test wait forever
FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """The outcome of one mutation.

    Attributes:
        mutation: the injected mistake.
        caught_by: the first test that failed, or a message if none is reported, as after a timeout; None if all passed.
        seconds: duration of the test run.
    """

    mutation: Mutation
    caught_by: str | None
    seconds: float


def main() -> int:
    """Inject the selected mutations and return the exit code: 0 if all were caught."""
    options = _parse_options()
    mutations = _select(options.only, options.sample)
    if not mutations:
        print(f"no mutation has {options.only!r} in its description or file", file=sys.stderr)
        return 2
    copies = SimpleQueue[Path]()
    with tempfile.TemporaryDirectory(prefix="everstep-mutation-") as folder:
        for number in range(options.jobs):
            copies.put(_copy(Path(folder) / str(number)))
        with ThreadPoolExecutor(options.jobs) as pool:
            if not options.assume_pass:
                test_sets = dict.fromkeys(mutation.tests for mutation in mutations)
                failures = pool.map(lambda tests: _run_unchanged(tests, copies), test_sets)
                if failure := next(filter(None, failures), None):
                    print(f"the tests fail without any mutation: {failure}", file=sys.stderr)
                    return 2
            results = list(pool.map(lambda mutation: _inject(mutation, copies), mutations))
    _report(results, markdown=options.markdown)
    return int(any(result.caught_by is None for result in results))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", default="", help="mutations with this word in description or file"
    )
    parser.add_argument(
        "--sample", type=int, default=0, help="number of mutations, chosen by the commit; 0: all"
    )
    parser.add_argument("--jobs", type=int, default=2, help="parallel test runs (%(default)s)")
    parser.add_argument(
        "--assume-pass",
        action="store_true",
        help="do not run the tests without a mutation first, since they pass or run elsewhere",
    )
    parser.add_argument("--markdown", action="store_true", help="print the table for the docs")
    return parser.parse_args()


def _select(word: str, sample: int) -> list[Mutation]:
    """Return the mutations to inject; a sample differs from commit to commit and is reproducible."""
    all_mutations = (*MUTATIONS, *ELASTIC_MUTATIONS)
    candidates = [
        mutation for mutation in all_mutations if word in f"{mutation.description} {mutation.file}"
    ]
    if not sample:
        return candidates
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    generator = random.Random(commit)
    return generator.sample(candidates, min(sample, len(candidates)))


def _copy(target: Path) -> Path:
    """Copy all tracked files to the folder `target`, a repository in which they are tracked too."""
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    for name in filter(None, names.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    subprocess.run(["git", "init", "--quiet"], cwd=target, check=True)
    subprocess.run(["git", "add", "--all"], cwd=target, check=True)
    return target


def _run_unchanged(tests: Sequence[str], copies: "SimpleQueue[Path]") -> str | None:
    """Run tests in a free copy; return the first that fails, or a message if none is reported; None if all pass."""
    copy = copies.get()
    try:
        return _run_tests(copy, tests)
    finally:
        copies.put(copy)


def _inject(mutation: Mutation, copies: "SimpleQueue[Path]") -> Result:
    """Inject one mutation into a free copy, run the tests, restore the file."""
    copy, start = copies.get(), time.monotonic()
    file = copy / mutation.file
    original = file.read_text()
    try:
        file.write_text(mutation.applied_to(original))
        failures = (_run_tests(copy, tests) for tests in stages(mutation))
        result = Result(mutation, next(filter(None, failures), None), time.monotonic() - start)
    finally:
        file.write_text(original)
        copies.put(copy)
    mark = "caught  " if result.caught_by else "SURVIVED"
    test = (result.caught_by or "").rpartition("/")[2]
    print(
        f"{mark} {result.seconds:5.1f} s  {mutation.description}  {test}",
        file=sys.stderr,
        flush=True,
    )
    return result


def stages(mutation: Mutation) -> list[tuple[str, ...]]:
    """Return the tests to run one after the other until one fails: for the changed file, for its folder, and all."""
    file = Path(mutation.file)
    folder = "tests" / file.parent
    first_stages = [
        folder / f"test_{file.name}",
        *([folder] if mutation.tests == ALL_TESTS else []),
    ]
    existing = [(str(stage),) for stage in first_stages if (ROOT / stage).exists()]
    return [*existing, mutation.tests]


def _run_tests(copy: Path, tests: Sequence[str]) -> str | None:
    """Run the tests of a copy; return the first that fails, or a message if none is reported; None if all pass.

    A run that does not end in time fails.

    Raises:
        RuntimeError: pytest itself failed.
    """
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT_SECONDS}"]
    command = [sys.executable, "-B", "-m", "pytest", *options, *tests]
    path = ":".join(str(copy / folder) for folder in ("", "facts", "twin"))
    try:
        result = subprocess.run(
            [*command, "-m", "not twin and not e2e", "--rootdir", str(copy)],
            cwd=copy,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "HOME": str(copy)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no result within {TIMEOUT_SECONDS} s"
    if result.returncode in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        return None
    if result.returncode in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR}:
        raise RuntimeError(f"pytest did not run the tests: {result.stderr[-400:]}")
    match = FIRST_FAILURE.search(result.stdout)
    return match[1] if match else result.stdout.strip().rpartition("\n")[2] or result.stderr[-200:]


def _report(results: Sequence[Result], *, markdown: bool) -> None:
    caught_count = sum(result.caught_by is not None for result in results)
    if markdown:
        print("| mutation | file | caught by |\n| --- | --- | --- |")
        for result in results:
            test = (result.caught_by or "**nothing**").rpartition("::")[2].partition("[")[0]
            print(f"| {result.mutation.description} | `{result.mutation.file}` | `{test}` |")
    print(f"{caught_count} of {len(results)} mutations were caught")


if __name__ == "__main__":
    sys.exit(main())
