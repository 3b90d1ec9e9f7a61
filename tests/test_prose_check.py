"""The exit code of the prose check, with a stand-in for Vale."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / ".vale"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one page, one module and the check."""
    folder = tmp_path / "repository"
    (folder / ".vale").mkdir(parents=True)
    for name in ("check.sh", "extract.py"):
        shutil.copy(SOURCE / name, folder / ".vale" / name)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (folder / "page.md").write_text("A page.\n")
    (folder / "module.py").write_text('"""A module."""\n')
    for command in (["init", "--quiet"], ["add", "page.md", "module.py"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def check(repository: Path, vale: str) -> subprocess.CompletedProcess[str]:
    """Run the check with a shell script instead of Vale."""
    programs = repository / "programs"
    programs.mkdir()
    for name, script in (("vale", vale), ("go", f"echo {programs}/vale")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return subprocess.run(
        [repository / ".vale" / "check.sh"],
        env={"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_pages_and_modules_without_findings_pass(repository: Path) -> None:
    assert check(repository, "exit 0").returncode == 0


def test_a_finding_is_shown_and_fails(repository: Path) -> None:
    result = check(repository, "echo page.md:1:1:Everstep.Words:wrong; exit 1")

    assert result.returncode == 1
    assert "page.md:1:1:Everstep.Words:wrong" in result.stdout


@pytest.mark.parametrize("code", [2, 139])
@pytest.mark.parametrize("failing_input", ["page.md", "build/prose"])
def test_a_failure_of_vale_fails_the_check(repository: Path, code: int, failing_input: str) -> None:
    result = check(repository, f'case "$*" in *{failing_input}*) exit {code};; esac')

    assert result.returncode not in (0, 1), "without a result of Vale nothing was checked"
