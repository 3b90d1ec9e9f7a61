"""Processes, identified by PID and start time."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.processes import Process


def existing_process(pid: int) -> Process:
    process = Process.of(pid)
    assert process is not None
    return process


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.communicate()


def test_a_saved_process_is_loaded_and_ends_when_killed(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    process = existing_process(sleeper.pid)
    process.save(tmp_path / "p.json")

    assert processes.load(tmp_path / "p.json") == process
    assert process.alive
    process.kill()
    assert process.wait_gone(100)


def test_a_later_process_with_the_same_id_is_not_killed(
    sleeper: subprocess.Popen[bytes],
) -> None:
    earlier_process = Process(sleeper.pid, existing_process(sleeper.pid).started - 1)

    assert not earlier_process.alive
    earlier_process.kill()
    sleeper.communicate(b"\n")  # after this input it ends
    assert sleeper.returncode == 0, "an unrelated process was killed"


def test_a_zombie_process_is_dead(
    sleeper: subprocess.Popen[bytes],
) -> None:
    process = existing_process(sleeper.pid)
    os.kill(sleeper.pid, signal.SIGKILL)

    assert processes.wait_until(lambda: not process.alive, 100)


@pytest.mark.parametrize("content", ["", "{", "[1]", "{}", '{"pid": "x", "started": 1}'])
def test_a_damaged_record_loads_as_none_because_its_cgroup_has_the_process(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "p.json").write_text(content)

    assert processes.load(tmp_path / "p.json") is None


def test_programs_do_not_inherit_proxies_or_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    process = processes.start(["env"], tmp_path / "log", {"GOGC": "50"})

    assert process.wait_gone(100)
    environment = dict(line.split("=", 1) for line in (tmp_path / "log").read_text().splitlines())
    assert environment == {**processes.ENVIRONMENT, "GOGC": "50"}


def test_the_name_of_a_program_need_not_be_valid_text(tmp_path: Path) -> None:
    program = tmp_path / os.fsdecode(b"sleep-\xff")
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([program, "60"])
    try:
        assert existing_process(child.pid).alive
    finally:
        child.kill()
        child.wait()
