"""An etcd and its folder disappear with the launcher, whenever it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from everstep.elastic.launch import etcd_supervisor
from tests.waiting import wait_until

RUNNING_PROGRAM = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")
WAIT_SECONDS = 100  # for a busy machine; it usually takes 0.1 s


def start_supervisor(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    """Start the supervisor of a program. The test acts as the launcher: it holds the write end of the pipe on stdin."""
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-I", "-S", etcd_supervisor.__file__, str(folder), *command],
        stdin=subprocess.PIPE,
    )


def end_launcher(supervisor: subprocess.Popen[bytes]) -> int:
    """Close the pipe as the kernel does when the launcher ends; return the supervisor's exit code."""
    assert supervisor.stdin
    supervisor.stdin.close()
    return supervisor.wait(WAIT_SECONDS)


def wait_for_log(folder: Path) -> None:
    """Wait until the supervisor has opened the log, just before it starts its program."""
    wait_until(
        (folder / etcd_supervisor.LOG).exists,
        "the supervisor has opened the log",
        WAIT_SECONDS,
        interval_seconds=0.01,
    )


@pytest.mark.parametrize("attempt", range(5))
def test_the_folder_is_removed_when_the_launcher_ends_right_after_the_start(
    tmp_path: Path, attempt: int
) -> None:
    folder = tmp_path / str(attempt)
    process = start_supervisor(folder, *RUNNING_PROGRAM)
    wait_for_log(folder)

    assert end_launcher(process) == 0

    assert not folder.exists()


def test_the_folder_is_removed_when_the_launcher_has_ended_before_the_start(tmp_path: Path) -> None:
    process = start_supervisor(tmp_path / "etcd", *RUNNING_PROGRAM)

    assert end_launcher(process) == 0

    assert not (tmp_path / "etcd").exists()


def test_a_program_that_does_not_stay_up_ends_the_supervisor_and_leaves_its_log(
    tmp_path: Path,
) -> None:
    process = start_supervisor(tmp_path / "etcd", "sh", "-c", "echo no such option >&2; exit 7")

    assert process.wait(WAIT_SECONDS) == 7

    assert (tmp_path / "etcd" / etcd_supervisor.LOG).read_text() == "no such option\n"
    end_launcher(process)


SUPERVISOR_WITH_A_CLOCK = """
import sys, time
from pathlib import Path
from everstep.elastic.launch import etcd_supervisor
folder, starts, command = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
def clock():
    return 60.0 if starts.exists() else 0.0
time.monotonic, etcd_supervisor.PAUSE_SECONDS = clock, 0.01
sys.exit(etcd_supervisor.EtcdSupervisor(folder, command).run())
"""
"""The fake clock advances by a minute in the first run of the program, which writes a byte per run, and stops then."""


def test_a_program_that_crashes_later_is_started_after_each_crash(tmp_path: Path) -> None:
    folder, starts = tmp_path / "etcd", tmp_path / "starts"
    folder.mkdir()

    process = subprocess.Popen(
        [
            *(sys.executable, "-c", SUPERVISOR_WITH_A_CLOCK, str(folder), str(starts)),
            *("sh", "-c", f"echo >> {starts}; exit 7"),
        ],
        stdin=subprocess.PIPE,
    )

    wait_until(
        lambda: starts.exists() and starts.stat().st_size >= 4,
        "the program is started again after short runs, too",
        WAIT_SECONDS,
    )
    assert end_launcher(process) == 0
