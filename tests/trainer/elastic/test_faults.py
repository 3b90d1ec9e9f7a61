"""Runs with a full disk, wrong clocks, a non-finite loss, different images, and without etcd."""

import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journals import completed_steps
from tests.processes import free_port
from tests.trainer.elastic.conftest import PACED, StartNodes, workers_started
from tests.trainer.elastic.nodes import REPOSITORY, JournalEntry, Nodes, small_data
from tests.trainer.verification import run_verify
from tests.waiting import wait_until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

STATE_MEBIBYTES = 90  # parameters and momentum of ResNet-18


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk that is too small for one checkpoint at the folder of the checkpoints."""
    folder = tmp_path / "runs" / "job" / "checkpoints"
    folder.mkdir(parents=True)
    size = f"size={STATE_MEBIBYTES // 2}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "everstep-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Remount the disk with other options; during a write the kernel refuses to make it read-only."""
    command = ["mount", "-o", f"remount,{options}", str(folder)]
    wait_until(
        lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0,
        f"the disk is remounted {options}",
        100,
    )


def journal_entry(nodes: Nodes, kind: str, after: float) -> JournalEntry:
    """Return the first journal entry of a kind after a time."""
    return wait_until(
        lambda: next((e for e in nodes.journal(kind) if e["at"] > after), None),
        f"the journal contains {kind!r}",
        120,
        details=nodes.logs,
    )


def test_failed_saves_are_reported_on_a_full_or_read_only_disk_while_training_continues(
    small_disk: Path, start_nodes: StartNodes
) -> None:
    nodes = start_nodes(names=("w0",), program=PACED)

    failure = journal_entry(nodes, "checkpoint_failed", 0)
    assert "No space left" in failure["reason"]
    assert f"checkpoint of step {failure['step']} FAILED" in nodes.logs()
    nodes.next_step(failure["at"], world_size=1)
    # The folder is polled, because the next attempt may be in progress.
    wait_until(lambda: not list(small_disk.iterdir()), "incomplete files are removed", 100)

    remount(small_disk, f"size={STATE_MEBIBYTES * 6}m")
    journal_entry(nodes, "checkpoint", time.time())

    remount(small_disk, "ro")
    failure = journal_entry(nodes, "checkpoint_failed", time.time())
    assert "Read-only file system" in failure["reason"]
    nodes.next_step(failure["at"], world_size=1)

    remount(small_disk, "rw")
    journal_entry(nodes, "checkpoint", time.time())


def test_a_non_finite_loss_ends_the_run_and_names_the_step(start_nodes: StartNodes) -> None:
    """Also in mode `exact`: tests/trainer/test_classifier.py."""
    nodes = start_nodes("--learning-rate", "1e30", names=("w0",))

    assert nodes.exit_code("w0", 240) == 1
    steps = [entry["step"] for entry in nodes.journal("step")]
    assert f"the loss of step {max(steps, default=0) + 1} is nan" in nodes.logs()
    assert "training has diverged" in nodes.logs()
    assert "Lower the learning rate" in nodes.logs()
    assert "--learning-rate, --warmup-fraction" in nodes.logs(), "the fix names the options"


def test_steps_with_a_non_finite_loss_are_skipped_a_limited_number_of_times_if_configured(
    start_nodes: StartNodes,
) -> None:
    nodes = start_nodes("--nonfinite-loss", "skip", "--learning-rate", "1e30", names=("w0",))

    assert nodes.exit_code("w0", 240) == 1
    skipped_steps = [entry["step"] for entry in nodes.journal("nonfinite_step")]
    assert len(skipped_steps) >= 10
    assert "is not applied to the model" in nodes.logs()
    assert f"the loss of step {skipped_steps[-1]} is" in nodes.logs()


def copy_with_addition(folder: Path, addition: str) -> Path:
    """Copy the packages of the trainer, append code to its classifier module, and return the import path."""
    import_path = folder / "other"
    for package in ("trainer", "everstep"):
        shutil.copytree(
            REPOSITORY / package,
            import_path / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    with (import_path / "trainer" / "classifier.py").open("a") as source:
        source.write(addition)
    return import_path


KILL_ONE_IN_FIRST_STEP = """
import contextlib, os, signal
from everstep.elastic.accounting.journal import flush_all
_train = Classifier.train
def _train_or_kill(self, batch):
    if not batch.is_warm_up:
        with contextlib.suppress(FileExistsError):
            (Path(os.environ["TMPDIR"]) / "killed-once").touch(exist_ok=False)
            flush_all()  # SIGKILL would lose buffered journal entries
            os.kill(os.getpid(), signal.SIGKILL)
    _train(self, batch)
Classifier.train = _train_or_kill
"""

RAISE_IN_EVERY_STEP = """
_train = Classifier.train
def _train_or_raise(self, batch):
    if not batch.is_warm_up:
        raise LookupError("a fault of the program")
    _train(self, batch)
Classifier.train = _train_or_raise
"""

RAISE_BEFORE_JOINING = """
def _fault(self, batch):
    raise LookupError("a fault of the program")
Classifier.train = _fault
"""


def test_a_worker_killed_in_the_first_step_does_not_end_the_other_workers(
    start_nodes: StartNodes, tmp_path: Path
) -> None:
    program = {"PYTHONPATH": str(copy_with_addition(tmp_path, KILL_ONE_IN_FIRST_STEP))}
    nodes = start_nodes(names=(), workers=2)
    nodes.start("w0", environment=program)

    nodes.next_step(0, world_size=2, seconds=240)

    assert (tmp_path / "killed-once").exists()
    # The journal is polled, because each worker writes its own file of it.
    wait_until(lambda: len(nodes.journal("start")) == 3, "three starts are recorded", 100)
    starts = Counter(entry["worker"] for entry in nodes.journal("start"))
    assert sorted(starts.values()) == [1, 2], "only the killed worker starts again"


def test_a_program_that_always_crashes_ends_the_run_with_its_error(
    start_nodes: StartNodes, tmp_path: Path
) -> None:
    program = {"PYTHONPATH": str(copy_with_addition(tmp_path, RAISE_IN_EVERY_STEP))}
    nodes = start_nodes(names=())
    nodes.start("w0", environment=program)

    assert nodes.exit_code("w0", 240) == 1, nodes.logs()
    assert "the workers ended 3 consecutive times before completing a new step" in nodes.logs()
    assert "LookupError: a fault of the program" in nodes.logs()
    assert len(nodes.journal("start")) == 3


def test_a_program_that_crashes_before_it_joins_ends_the_run_with_its_error(
    start_nodes: StartNodes, tmp_path: Path
) -> None:
    program = {"PYTHONPATH": str(copy_with_addition(tmp_path, RAISE_BEFORE_JOINING))}
    nodes = start_nodes(names=())
    nodes.start("w0", environment=program)

    assert nodes.exit_code("w0", 240) == 1, nodes.logs()
    assert "the workers ended 4 consecutive times before they joined the run" in nodes.logs()
    assert "LookupError: a fault of the program" in nodes.logs()
    assert not nodes.journal("start"), "the worker must not have joined a group"


def test_workers_of_another_model_or_image_version_are_refused_and_the_others_continue(
    start_nodes: StartNodes, tmp_path: Path
) -> None:
    nodes = start_nodes(names=("w0",), program=PACED)
    nodes.next_step(0, world_size=1, seconds=240)
    other_import_path = copy_with_addition(tmp_path, "# an added line\n")

    nodes.start("w1", "--model", "resnet34")
    nodes.start("w2", environment={"PYTHONPATH": f"{other_import_path}:{REPOSITORY}"})

    for name, difference in (("w1", "setting model is resnet34 here"), ("w2", "program is ")):
        assert nodes.exit_code(name, 240) == 1, nodes.logs()
        log = (tmp_path / f"{name}.log").read_text()
        assert "is incompatible with the others" in log
        assert difference in log
    nodes.next_step(time.time(), world_size=1)
    assert [e["file"] for e in nodes.journal("start")] == ["w0"]
    assert workers_started(nodes, "w0") == 1


CLOCK = """
import os, time
_real_time, _hours = time.time, float(os.environ["CLOCK_HOURS"])
time.time = lambda: _real_time() + 3600 * _hours * (1 if int(_real_time()) % 2 else -1)
"""


def test_wrong_and_jumping_clocks_have_no_effect(start_nodes: StartNodes, tmp_path: Path) -> None:
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    nodes = start_nodes("--max-steps", "24", names=())
    for hours, name in enumerate(("w0", "w1", "w2")):
        path = f"{tmp_path / 'clock'}:{REPOSITORY}"
        nodes.start(name, environment={"PYTHONPATH": path, "CLOCK_HOURS": str(7 * hours)})

    assert [nodes.exit_code(name, 300) for name in ("w0", "w1", "w2")] == [0, 0, 0], nodes.logs()

    assert set(completed_steps(nodes.journal("step"))) == set(range(1, 25))
    times = [entry["at"] for entry in nodes.journal("generation")]
    assert max(times) - min(times) > 3600, "the test must have shifted the clocks"
    verification = run_verify(nodes.run)
    assert "every sample exactly once" in verification.stdout, verification


def test_an_unreachable_etcd_is_reported_after_ten_seconds_and_retried_until_the_timeout(
    tmp_path: Path,
) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    data = small_data(tmp_path, samples=100)
    options = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    nodes = Nodes(
        tmp_path, endpoint, options, flags=("--rdzv_conf=retry_seconds=14",), preloaded=True
    )
    try:
        nodes.start("w0")
        started_at = time.monotonic()
        wait_until(
            lambda: "still trying, for 14 s in total" in nodes.logs(), "the outage is reported", 200
        )
        seconds_until_report = time.monotonic() - started_at
        assert nodes.exit_code("w0", 200) == 138, nodes.logs()
    finally:
        nodes.close()

    assert seconds_until_report >= 10
    assert re.search(rf"etcd .*{endpoint}", nodes.logs())
