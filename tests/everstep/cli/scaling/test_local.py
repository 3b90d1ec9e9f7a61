"""A study on this machine: the CPUs of its processes, and the programs that it needs."""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep.cli.scaling import local
from everstep.cli.scaling.local import LocalStudy, TrainerSettings
from everstep.errors import EverstepError
from everstep.optional_packages import OptionalPackages
from everstep.progress import Silent

SETTINGS = TrainerSettings(model="resnet18", batch=16, steps=0, loader_workers=0)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Return the commands of a study, which do nothing instead of training."""
    commands: list[Sequence[str]] = []

    @contextmanager
    def run_in_session(command: Sequence[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
        commands.append(command)
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            yield process

    monkeypatch.setattr(local, "run_in_session", run_in_session)
    return commands


@pytest.mark.parametrize(("replicas", "expected"), [(1, "2"), (2, "2,3"), (4, "2,3")])
def test_each_process_has_one_cpu_if_there_are_enough(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: list[Sequence[str]],
    replicas: int,
    expected: str,
) -> None:
    """Otherwise one process would use all CPUs, and the efficiency of two processes would be too low."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 2})

    with pytest.raises(EverstepError, match="0 steps were recorded"):
        LocalStudy(SETTINGS, "fashion-mnist", tmp_path).measure(replicas, Silent())

    (command,) = commands
    assert list(command[:3]) == ["taskset", "--cpu-list", expected]
    assert f"--nproc-per-node={replicas}" in command


def test_the_launcher_starts_although_no_script_is_beside_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[Sequence[str]]
) -> None:
    """`pip install --user`, for example, writes the scripts into another folder."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(EverstepError, match="0 steps were recorded"):
        LocalStudy(SETTINGS, "fashion-mnist", tmp_path).measure(1, Silent())
    (command,) = commands
    launch = command[: list(command).index("launch") + 1]
    result = subprocess.run([*launch, "--help"], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stderr) == (0, "")
    assert "--nproc-per-node" in result.stdout


def test_the_cpus_of_a_process_are_limited() -> None:
    """The trainer uses as many threads as it may use CPUs."""
    program = [sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"]

    result = subprocess.run(
        [*local.pinned_to_cpus(1), *program], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "1"


def test_a_machine_without_taskset_is_refused_before_data_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OptionalPackages, "require", lambda *_: None)
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(EverstepError, match="taskset, which is not on PATH"):
        local.require_trainer()
