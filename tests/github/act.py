"""Run GitHub's workflows on this machine with `act`, on a copy of the repository.

`act` evaluates expressions, matrices, conditions, outputs and called workflows as GitHub does, and runs each job
in its own folder. Three parts differ from GitHub:

    actions     `uses:` of other repositories are replaced by stand-ins (stand_ins.py); the project's own
                action runs as it is
    shell       steps without `shell` get `bash -e`, as on GitHub; the default of `act` sets pipefail, which
                would hide a step that lacks it
    settings    variables of the repository and of environments are arguments of a run
"""

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.github import stand_ins

ROOT = Path(__file__).resolve().parents[2]
RUNNER = "ubuntu-24.04"
REPOSITORY = "example/everstep"
BACKEND = {"PULUMI_BACKEND_URL": "s3://state", "PULUMI_SECRETS_PROVIDER": "awskms://key"}
"""Variables of a repository with a backend, without which no workflow deploys."""

RUN_SECONDS = 300
GITHUB_SHELL = "defaults:\n  run:\n    shell: bash -e {0}\n"
STRATEGY, ONE_AT_A_TIME = "    strategy:\n", "    strategy:\n      max-parallel: 1\n"
"""The jobs of a matrix run in turn, as `--concurrent-jobs=1` makes the other jobs do."""

STACK_KEY = "secretsprovider: awskms://key\nencryptedkey: AQICAHg=\n"
"""The lines that `pulumi stack init` adds to a stack file."""

LEFT_OUT = ("benchmarks/", "docs/", "tests/", "twin/tests/")
"""Folders that no job of the tests reads. The copy leaves them out, because each job gets all its files."""

STAMPS = ("uv", "runtime", "aws", "azure", "development")
"""Groups of packages that `make` considers installed in the virtual environment of the copy."""

USES = re.compile(r"uses: ([\w.-]+/[\w./-]+)@(\S+)")


@functools.cache
def program() -> Path:
    """Build `act` where it is missing and return its path."""
    command = ["go", "-C", str(ROOT / ".github" / "act"), "tool", "-n", "act"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"`act` cannot be built: {result.stderr}"
    return Path(result.stdout.strip())


@dataclass(frozen=True)
class WorkflowRun:
    """The results of one run of a workflow.

    Attributes:
        jobs: result of each job that ran, by its name.
        actions: calls of stand-ins in their order: name of the action and its inputs, keys in lower case.
        programs: calls of the stand-ins for programs in their order, such as `aws logs delete-log-group`.
        summary: text of the run's summary.
        log: all output.
        exit_code: exit code of `act`: 0 unless a job failed or the workflow cannot be run.
    """

    jobs: Mapping[str, str]
    actions: Sequence[tuple[str, Mapping[str, str]]]
    programs: Sequence[str]
    summary: str
    log: str
    exit_code: int

    @property
    def is_green(self) -> bool:
        """True if at least one job ran and none failed."""
        return bool(self.jobs) and set(self.jobs.values()) == {"success"}

    def calls(self, action: str) -> list[Mapping[str, str]]:
        """Return the inputs of each call of an action."""
        return [inputs for name, inputs in self.actions if name == action]


@dataclass(frozen=True)
class Repository:
    """A copy of the working tree, with stand-ins for actions.

    Attributes:
        folder: the copy.
        home: folder for stand-ins, records, artifacts and the workspaces of jobs.
    """

    folder: Path
    home: Path

    @classmethod
    def create(cls, home: Path) -> "Repository":
        """Copy the working tree into a folder below `home`."""
        repository = cls(home / "repository", home)
        _copy_tree(repository.folder)
        _link_environment(repository.folder / ".venv")
        _init_stacks(repository.folder / "stacks")
        for path in repository.workflows():
            text = path.read_text()
            assert "defaults:" not in text, f"{path.name} has defaults; the tests add their own"
            text = text.replace(ONE_AT_A_TIME, STRATEGY).replace(STRATEGY, ONE_AT_A_TIME)
            path.write_text(text + GITHUB_SHELL)
        _commit(repository.folder)
        return repository

    def copy(self, home: Path) -> "Repository":
        """Return a copy below `home` that a test may change."""
        subprocess.run(["cp", "-a", self.folder, home / "repository"], check=True)
        return Repository(home / "repository", home)

    def changes(self) -> str:
        """Return the files that differ from the commit, as git lists them."""
        command = ["git", "status", "--porcelain"]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=True
        ).stdout

    @property
    def artifacts(self) -> Path:
        """The folder of the artifacts that jobs have uploaded."""
        return self.home / "artifacts"

    def workflows(self) -> list[Path]:
        """Return the workflow files."""
        return sorted((self.folder / ".github" / "workflows").glob("*.yaml"))

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace text in a file; it must occur."""
        text = (self.folder / path).read_text()
        assert old in text, f"{path} does not contain {old!r}"
        (self.folder / path).write_text(text.replace(old, new, 1))

    def write_program(self, path: str, script: str) -> None:
        """Replace a file with a shell script."""
        (self.folder / path).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / path).chmod(0o755)

    def run(
        self,
        workflow: str,
        event: str,
        *,
        payload: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        job: str | None = None,
        matrix: Mapping[str, str] | None = None,
    ) -> WorkflowRun:
        """Run a workflow, or one job of it with the jobs that it needs.

        Args:
            workflow: name of the file without its suffix.
            event: event that starts it.
            payload: the event's data.
            variables: the repository's variables.
            environment: variables of the stand-ins, such as the responses of the cloud.
            job: id of the only job to run.
            matrix: the only combination to run.
        """
        record = self.home / "record.jsonl"
        record.unlink(missing_ok=True)
        program_record(record).unlink(missing_ok=True)
        shutil.rmtree(self.artifacts, ignore_errors=True)
        (self.home / "event.json").write_text(json.dumps(_event(payload or {})))
        command = [
            str(program()),
            event,
            f"--workflows=.github/workflows/{workflow}.yaml",
            *self._fixed_flags(record),
            *(f"--local-repository={flag}" for flag in self._stand_ins()),
            *(f"--var={key}={value}" for key, value in (variables or {}).items()),
            *(f"--env={key}={value}" for key, value in (environment or {}).items()),
            *(f"--matrix={key}:{value}" for key, value in (matrix or {}).items()),
            *([f"--job={job}"] if job else []),
        ]
        return _results(self._run(command), record)

    def _fixed_flags(self, record: Path) -> list[str]:
        return [
            f"--platform={RUNNER}=-self-hosted",
            "--no-skip-checkout",
            "--no-cache-server",
            "--action-offline-mode",
            "--json",
            "--concurrent-jobs=1",
            "--defaultbranch=main",
            "--secret=GITHUB_TOKEN=none",
            f"--action-cache-path={self.home / 'work'}",
            f"--eventpath={self.home / 'event.json'}",
            f"--env=STAND_IN_REPOSITORY={self.folder}",
            f"--env=STAND_IN_RECORD={record}",
            f"--env=STAND_IN_ARTIFACTS={self.artifacts}",
        ]

    def _stand_ins(self) -> Iterator[str]:
        """Write a stand-in for each action that the workflows use, and yield the flags for them."""
        files = [*self.workflows(), *(self.folder / ".github" / "actions").glob("*/action.yaml")]
        for name, ref in sorted({use for path in files for use in USES.findall(path.read_text())}):
            folder = self.home / "actions" / name.replace("/", "_")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "action.yml").write_text(json.dumps(stand_ins.action(name)))  # JSON is YAML
            yield f"https://github.com/{name}@{ref}={folder}"

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        programs = self.home / "bin"
        programs.mkdir(exist_ok=True)
        stand_ins.write_programs(programs)
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )


@dataclass
class _Results:
    jobs: dict[str, str] = field(default_factory=dict)
    summary: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


def program_record(record: Path) -> Path:
    """Return the file in which programs record their calls, beside the record of the actions."""
    return record.with_name(f"{record.name}.programs")


def _results(process: subprocess.CompletedProcess[str], record: Path) -> WorkflowRun:
    """Read the results from the output of `act` and the record of the stand-ins."""
    results = _Results()
    for line in process.stdout.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            results.log.append(line)
            continue
        if "LocalRepositoryCache" not in entry.get("msg", ""):
            results.log.append(f"{entry.get('job', '')}: {entry.get('msg', '')}".rstrip())
        if "jobResult" in entry:
            results.jobs[entry["job"].strip()] = entry["jobResult"]
        if entry.get("command") == "summary":
            results.summary.append(entry["content"])
    programs = program_record(record)
    return WorkflowRun(
        results.jobs,
        list(_calls(record.read_text() if record.exists() else "")),
        programs.read_text().splitlines() if programs.exists() else [],
        "\n".join(results.summary),
        "\n".join(results.log),
        process.returncode,
    )


def _calls(record: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the calls in a record: for each, a line with the name of the action, and its inputs as JSON."""
    while record.strip():
        name, _, text = record.lstrip().partition("\n")
        inputs, end = json.JSONDecoder().raw_decode(text)
        yield name, {key.lower(): value for key, value in inputs.items()}
        record = text[end:]


def _event(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"repository": {"full_name": REPOSITORY, "default_branch": "main"}, **payload}


def _copy_tree(folder: Path) -> None:
    """Copy the tracked and untracked files with their times, which `make` compares."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, result.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(LEFT_OUT):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def _link_environment(folder: Path) -> None:
    """Link the virtual environment of the working tree, with every group of packages up to date."""
    folder.mkdir()
    for entry in (ROOT / ".venv").iterdir():
        if not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)
    for stamp in STAMPS:
        (folder / f".{stamp}").touch()


def _init_stacks(folder: Path) -> None:
    """Add the key of its secrets to the file of each stack that the workflows deploy."""
    for path in folder.glob("Pulumi.?ks-*.yaml"):
        path.write_text(f"{path.read_text().rstrip()}\n{STACK_KEY}")


def _commit(folder: Path) -> None:
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["remote", "add", "origin", f"https://github.com/{REPOSITORY}"],
        ["add", "."],
        ["commit", "--quiet", "--message=A copy"],
        ["update-ref", "refs/remotes/origin/main", "HEAD"],
        ["gc", "--quiet"],
    ):
        subprocess.run([*git, *command], cwd=folder, check=True, timeout=60)
