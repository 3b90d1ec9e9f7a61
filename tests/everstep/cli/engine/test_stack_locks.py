"""Pulumi's locks on a stack, and whether the processes that hold them are alive."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from everstep.cli.engine.stack_locks import stack_locks
from everstep.cli.engine.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, "local", "test", tmp_path / "state")


def write_lock(workspace: Workspace, pid: int, host: str = "") -> None:
    write_file(workspace, {"pid": pid, "hostname": host or socket.gethostname()})


def write_file(workspace: Workspace, content: object) -> None:
    folder = (
        workspace.engine / "state" / ".pulumi" / "locks" / "organization" / "everstep" / "local"
    )
    folder.mkdir(parents=True)
    (folder / "a1b2.json").write_text(json.dumps(content))


def test_the_holder_of_a_lock_is_alive_while_its_process_runs(
    workspace: Workspace, tmp_path: Path
) -> None:
    program = tmp_path / "pulumi"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "60"])
    try:
        _await_command_line(process.pid)
        write_lock(workspace, process.pid)

        (lock,) = stack_locks(workspace)
        assert lock.holder_is_alive
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not lock.holder_is_alive, "a zombie process has ended"
    finally:
        process.kill()
        process.wait()


def _await_command_line(pid: int) -> None:
    """Wait until the kernel shows the command line of a new process: it is empty for a moment after execve."""
    deadline = time.monotonic() + 10
    while not Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_another_program_that_got_the_process_id_of_a_killed_holder_is_not_the_holder(
    workspace: Workspace,
) -> None:
    write_lock(workspace, os.getpid())

    (lock,) = stack_locks(workspace)
    assert not lock.holder_is_alive


def test_the_holder_of_a_lock_is_not_alive_after_its_process_ended(workspace: Workspace) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    write_lock(workspace, process.pid)

    (lock,) = stack_locks(workspace)
    assert not lock.holder_is_alive


def test_the_holder_of_a_lock_on_another_host_counts_as_alive(workspace: Workspace) -> None:
    write_lock(workspace, 1, host="elsewhere")

    assert stack_locks(workspace)[0].holder_is_alive


@pytest.mark.parametrize("content", [[], {}, "1", {"pid": None}, {"pid": "x"}])
def test_a_file_that_is_not_a_pulumi_lock_is_ignored(workspace: Workspace, content: object) -> None:
    write_file(workspace, content)

    assert stack_locks(workspace) == []
