"""A study on this machine: the CPUs of its processes, and the programs that it needs."""

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


@pytest.mark.parametrize(("replicas", "expected"), [(1, "2"), (2, "2,3"), (4, "2,3")])
def test_each_process_has_one_cpu_if_there_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicas: int, expected: str
) -> None:
    """Otherwise one process would use all CPUs, and the efficiency of two processes would be too low."""
    commands: list[Sequence[str]] = []

    @contextmanager
    def run_in_session(command: Sequence[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
        commands.append(command)
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            yield process

    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 2})
    monkeypatch.setattr(local, "run_in_session", run_in_session)

    with pytest.raises(EverstepError, match="0 steps were recorded"):
        LocalStudy(SETTINGS, "fashion-mnist", tmp_path).measure(replicas, Silent())

    (command,) = commands
    assert list(command[:3]) == ["taskset", "--cpu-list", expected]
    assert f"--nproc-per-node={replicas}" in command


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
