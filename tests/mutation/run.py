"""Inject deliberate mistakes into the components, one at a time: does a test catch each?

    python tests/mutation/run.py [--only WORD] [--jobs 2] [--markdown]

Each mistake is put into a copy of the tree, never into the tree itself. A mistake that no longer
matches its file is an error too: the table would otherwise shrink unseen. Exit code 1 where a
mistake survives.
"""

import argparse
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

from mistakes import MISTAKES, Mistake

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "components",
    "controller",
    "everstep",
    "manifests",
    "policy",
    "spot",
    "stacks",
    "trainer",
    "tests/policy",
    "tests/unit",
)
FILES = ("pyproject.toml", "Pulumi.yaml", "__main__.py", "docs/configuration.md")
SUITE = ("tests/unit/components", "tests/policy")
LIMIT_SECONDS = 300
FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What became of a mistake: the test that caught it, or None where it survived."""

    mistake: Mistake
    caught_by: str | None
    seconds: float


def main() -> int:
    """Inject them all; return the exit code."""
    asked = _arguments()
    chosen = [mistake for mistake in MISTAKES if asked.only in f"{mistake.what} {mistake.file}"]
    if not chosen:
        print(f"no mistake has {asked.only!r} in its words or file", file=sys.stderr)
        return 2
    trees = SimpleQueue[Path]()
    with tempfile.TemporaryDirectory(prefix="everstep-mutation-") as folder:
        for number in range(asked.jobs):
            trees.put(_copy(Path(folder) / str(number)))
        sound = _run_suite(_copy(Path(folder) / "sound"))
        if sound is not None:
            print(f"the tests fail before any mistake is made: {sound}", file=sys.stderr)
            return 2
        with ThreadPoolExecutor(asked.jobs) as pool:
            verdicts = list(pool.map(lambda mistake: _judge(mistake, trees), chosen))
    _report(verdicts, markdown=asked.markdown)
    return int(any(verdict.caught_by is None for verdict in verdicts))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="mistakes with this word in what or where")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (%(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table for the docs")
    return parser.parse_args()


def _copy(tree: Path) -> Path:
    """Copy what the tests need."""
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored, dirs_exist_ok=True)
    for name in FILES:
        (tree / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    return tree


def _judge(mistake: Mistake, trees: "SimpleQueue[Path]") -> Verdict:
    """Make one mistake in a free copy, run the tests, put the copy right again."""
    tree, began = trees.get(), time.monotonic()
    file = tree / mistake.file
    sound = file.read_text()
    try:
        file.write_text(mistake.made_in(sound))
        verdict = Verdict(mistake, _run_suite(tree), time.monotonic() - began)
    finally:
        file.write_text(sound)
        trees.put(tree)
    mark = "caught  " if verdict.caught_by else "SURVIVED"
    by = (verdict.caught_by or "").rpartition("/")[2]
    print(f"{mark} {verdict.seconds:5.1f} s  {mistake.what}  {by}", file=sys.stderr, flush=True)
    return verdict


def _run_suite(tree: Path) -> str | None:
    """Run the tests of a copy; return the first that fails, None where all pass."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *SUITE]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree), "HOME": str(tree)}
    done = subprocess.run(
        [*command, "-m", "not twin and not e2e", "--rootdir", str(tree)],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if done.returncode == 0:
        return None
    found = FIRST_FAILURE.search(done.stdout)
    return found[1] if found else done.stdout.strip().rpartition("\n")[2] or done.stderr[-200:]


def _report(verdicts: Sequence[Verdict], *, markdown: bool) -> None:
    caught = sum(verdict.caught_by is not None for verdict in verdicts)
    if markdown:
        print("| mistake | where | caught by |\n| --- | --- | --- |")
        for verdict in verdicts:
            test = (verdict.caught_by or "**nothing**").rpartition("::")[2].partition("[")[0]
            print(f"| {verdict.mistake.what} | `{verdict.mistake.file}` | `{test}` |")
    print(f"{caught} of {len(verdicts)} mistakes were caught")


if __name__ == "__main__":
    sys.exit(main())
