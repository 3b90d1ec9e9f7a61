"""What a run does about a bad disk, a bad clock, a loss that is no number, another image, no etcd."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.trainer.nodes import REPOSITORY, Nodes, free_port, small_data, until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

STATE_MEGABYTES = 90  # ResNet-18 with momentum


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a disk of its own, too small for one checkpoint, where the job's checkpoints will lie."""
    folder = tmp_path / "runs" / "job" / "checkpoints"
    folder.mkdir(parents=True)
    size = f"size={STATE_MEGABYTES // 2}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "everstep-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Change a mounted disk; one that is being written to refuses to become read-only."""
    command = ["mount", "-o", f"remount,{options}", str(folder)]
    until(
        lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0,
        20,
        f"the disk is remounted {options}",
    )


def news(nodes: Nodes, kind: str, after: float):
    """The first journal line of a kind after a moment."""
    return until(
        lambda: next((e for e in nodes.journal(kind) if e["at"] > after), None),
        120,
        f"the journal says {kind!r}\n{nodes.logs()}",
    )


def test_a_full_and_then_a_read_only_disk_fail_saves_loudly_while_training_goes_on(
    small_disk, start
):
    nodes = start(names=("w0",))

    failed = news(nodes, "checkpoint_failed", 0)
    assert "No space left" in failed["reason"]
    assert f"checkpoint of step {failed['step']} FAILED" in nodes.logs()
    nodes.next_step(failed["at"], world_size=1)
    # Not at once: by now the next attempt may be under way.
    until(lambda: not list(small_disk.iterdir()), 30, "what did not fit is removed")

    remount(small_disk, f"size={STATE_MEGABYTES * 6}m")
    news(nodes, "checkpoint", time.time())

    remount(small_disk, "ro")
    failed = news(nodes, "checkpoint_failed", time.time())
    assert "Read-only file system" in failed["reason"]
    nodes.next_step(failed["at"], world_size=1)

    remount(small_disk, "rw")
    news(nodes, "checkpoint", time.time())


@pytest.mark.parametrize("mode", ["live", "exact"])
def test_a_loss_that_is_no_number_ends_the_run_and_names_the_step(start, mode):
    nodes = start("--mode", mode, "--learning-rate", "1e30", names=("w0",))

    assert nodes.exit_code("w0", 240) == 1
    steps = [entry["step"] for entry in nodes.journal("step")]
    assert f"the loss of step {max(steps, default=0) + 1} is nan" in nodes.logs()
    assert "Lower --learning-rate" in nodes.logs()


def test_steps_without_a_number_are_left_out_where_that_is_asked_for_but_not_for_ever(start):
    nodes = start("--nonfinite-loss", "skip", "--learning-rate", "1e30", names=("w0",))

    assert nodes.exit_code("w0", 240) == 1
    unsound = [entry["step"] for entry in nodes.journal("unsound_step")]
    assert len(unsound) >= 10
    assert "is left out of the model" in nodes.logs()
    assert f"the loss of step {unsound[-1]} is" in nodes.logs()


def changed(folder: Path, more: str) -> Path:
    """A copy of the trainer whose learning rate schedule ends in these lines; what to import it from."""
    other = folder / "other"
    for package in ("trainer", "everstep"):
        shutil.copytree(
            REPOSITORY / package, other / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    with (other / "trainer" / "schedule.py").open("a") as source:
        source.write(more)
    return other


FIRST_STEP_KILLS_ONE = """
import contextlib, os, signal
from pathlib import Path
_rate = Schedule.rate
def _rate_or_death(self, step):
    with contextlib.suppress(FileExistsError):
        (Path(os.environ["TMPDIR"]) / "one-has-died").touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)
    return _rate(self, step)
Schedule.rate = _rate_or_death
"""

EVERY_STEP_RAISES = """
def _fault(self, step):
    raise LookupError("a fault of the program")
Schedule.rate = _fault
"""


def test_a_worker_that_dies_in_the_very_first_step_leaves_its_neighbour_alive(start, tmp_path):
    program = {"PYTHONPATH": str(changed(tmp_path, FIRST_STEP_KILLS_ONE))}
    nodes = start(names=(), workers=2)
    nodes.start("w0", environment=program)

    nodes.next_step(0, world_size=2, seconds=240)

    assert (tmp_path / "one-has-died").exists()
    assert len(nodes.journal("start")) == 3


def test_a_program_that_only_crashes_ends_the_run_and_says_so(start, tmp_path):
    program = {"PYTHONPATH": str(changed(tmp_path, EVERY_STEP_RAISES))}
    nodes = start(names=())
    nodes.start("w0", environment=program)

    assert nodes.exit_code("w0", 240) == 1, nodes.logs()
    assert "the workers ended 3 times in a row before a step was done" in nodes.logs()
    assert "LookupError: a fault of the program" in nodes.logs()
    assert len(nodes.journal("start")) == 3


def test_a_worker_of_another_image_version_is_turned_away_and_the_others_train_on(start, tmp_path):
    nodes = start(names=("w0",))
    nodes.next_step(0, world_size=1, seconds=240)
    other = changed(tmp_path, "# one line more\n")

    nodes.start("w1", environment={"PYTHONPATH": str(other)})

    assert nodes.exit_code("w1", 240) == 1, nodes.logs()
    assert "is not like the others" in nodes.logs()
    nodes.next_step(time.time(), world_size=1)
    assert [e["file"] for e in nodes.journal("start")] == ["w0"]


CLOCK = """
import os, time
_true, _hours = time.time, float(os.environ["CLOCK_HOURS"])
time.time = lambda: _true() + 3600 * _hours * (1 if int(_true()) % 2 else -1)
"""


def test_clocks_that_are_wrong_and_jump_change_nothing(start, tmp_path):
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    nodes = start("--max-steps", "60", names=())
    for hours, name in enumerate(("w0", "w1", "w2")):
        path = f"{tmp_path / 'clock'}:{REPOSITORY}"
        nodes.start(name, environment={"PYTHONPATH": path, "CLOCK_HOURS": str(7 * hours)})

    assert [nodes.exit_code(name, 300) for name in ("w0", "w1", "w2")] == [0, 0, 0], nodes.logs()

    steps = [entry for entry in nodes.journal("step") if not entry.get("again")]
    assert {entry["step"] for entry in steps} == set(range(1, 61))
    times = [entry["at"] for entry in nodes.journal("generation")]
    assert max(times) - min(times) > 3600, "the clocks were not wrong at all"
    verified = subprocess.run(
        [sys.executable, "-m", "trainer.verify", str(nodes.run)],
        check=False,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert "every sample exactly once" in verified.stdout, verified


def test_an_etcd_that_does_not_answer_is_named_after_ten_seconds_and_tried_for_as_long_as_was_asked(
    tmp_path,
):
    endpoint = f"127.0.0.1:{free_port()}"
    data = small_data(tmp_path, samples=100)
    fixed = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    nodes = Nodes(tmp_path, endpoint, fixed, flags=("--rdzv_conf=patience_seconds=14",))
    try:
        nodes.start("w0")
        began = time.monotonic()
        until(lambda: "still trying, for 14 s in all" in nodes.logs(), 60, "it complains")
        complained = time.monotonic() - began
        assert nodes.exit_code("w0", 60) == 138, nodes.logs()
    finally:
        nodes.close()

    assert complained >= 10
    assert re.search(rf"etcd .*{endpoint}", nodes.logs())
