"""The commands of docs/elastic-script.md as they are written: killed, interrupted, started again.

The endpoint of etcd and the shared folder of the second example are replaced; `pip install` is not run.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.elastic.launch.launcher import DONE, NOTICE
from tests.everstep.elastic.launch.launched import WAIT_SECONDS, LauncherProcess, run_launcher
from tests.examples.mnist import Journal, write_mnist
from tests.examples.script_page import PAGE, REPOSITORY
from tests.guides.guide import blocks
from tests.journals import completed_steps
from tests.trainer.elastic.nodes import running_etcd

PROGRAMS = Path(sys.executable).parent
SAMPLES, BATCH, EPOCHS = 60_000, 256, 3  # as MNIST has them, and as the example trains them
FEW_SAMPLES = 20_000

pytestmark = pytest.mark.timeout(6 * WAIT_SECONDS)


def command_of(section: str) -> str:
    """Return the only command with the launcher in a section of the page."""
    (command,) = (
        line
        for title, block in blocks(PAGE.read_text(encoding="utf-8"))
        if title == section
        for line in block.splitlines()
        if line.startswith("everstep launch ")
    )
    return command


def run(
    folder: Path, command: str, name: str
) -> contextlib.AbstractContextManager[LauncherProcess]:
    """Return a context manager that runs the command with a launcher."""
    program, *arguments = shlex.split(command)
    return run_launcher(folder, *arguments, name=name, program=[str(PROGRAMS / program)])


def clone_in(folder: Path, samples: int) -> Path:
    """Return a folder that has the examples and their data where a clone has them."""
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    write_mnist(folder / "data", samples)
    return folder


def steps_with(samples: int) -> int:
    """Return the number of steps of the example."""
    return -(-samples // BATCH) * EPOCHS


@pytest.mark.twin
def test_the_command_of_one_machine_continues_after_ctrl_c_and_after_a_kill(
    tmp_path: Path,
) -> None:
    clone, last_step = clone_in(tmp_path, SAMPLES), steps_with(SAMPLES)
    command, journal = command_of("On one machine"), Journal(clone / "run")
    with run(clone, command, "first") as first:
        reached_step = journal.wait(first, workers=2)
        first.process.send_signal(signal.SIGINT)

        assert first.wait() == NOTICE, first.log
    steps_before = [step["step"] for step in journal.steps()]
    assert reached_step <= max(steps_before) < last_step

    with run(clone, command, "second") as second:
        resumed_step = journal.wait(second, workers=2, after=max(steps_before))
        second.kill_worker()
        journal.wait(second, workers=2, after=resumed_step + 1)

        assert second.wait() == DONE, second.log
        assert "is gone" in second.log, "a worker was killed"
        assert f"epoch {EPOCHS}: accuracy 1.0000" in second.log
    steps = [step["step"] for step in journal.steps()]
    assert sorted(set(steps)) == list(range(1, last_step + 1)), "no step is lost"
    assert (clone / "run" / "model.pt").exists()


@pytest.mark.twin
def test_the_command_of_several_machines_continues_when_one_leaves(tmp_path: Path) -> None:
    clone = clone_in(tmp_path, FEW_SAMPLES)
    etcd_folder, journal = clone / "etcd", Journal(clone / "shared" / "mnist")
    etcd_folder.mkdir()
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(running_etcd(etcd_folder))
        command = command_of("On several machines")
        for text, value in (("etcd.example:2379", endpoint), ("/shared", str(clone / "shared"))):
            assert command.count(text) == 1
            command = command.replace(text, value)
        staying, leaving = (stack.enter_context(run(clone, command, name)) for name in ("n0", "n1"))
        reached_step = journal.wait(staying, workers=2)
        leaving.process.send_signal(signal.SIGTERM)

        assert leaving.wait() == NOTICE, leaving.log
        journal.wait(staying, workers=1, after=reached_step)
        assert staying.wait() == DONE, staying.log
    steps = completed_steps(journal.steps())
    assert steps == list(range(1, steps_with(FEW_SAMPLES) + 1)), "a drain costs no step"


def test_the_script_trains_in_one_process_without_a_launcher(tmp_path: Path) -> None:
    clone = clone_in(tmp_path, BATCH)
    (command,) = re.findall(r"`(python3 examples/mnist/elastic.py)`", PAGE.read_text())

    result = subprocess.run(
        shlex.split(command),
        cwd=clone,
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )

    assert f"epoch {EPOCHS}: accuracy" in result.stdout
