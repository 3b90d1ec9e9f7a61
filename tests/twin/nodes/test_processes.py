import os
import subprocess
import sys

import pytest

from twin.nodes import files, processes
from twin.nodes.processes import Process


@pytest.fixture
def sleeper():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.communicate()


def test_a_process_is_remembered_until_it_ends(sleeper, tmp_path):
    process = Process.of(sleeper.pid)
    process.save(tmp_path / "p.json")

    assert processes.load(tmp_path / "p.json") == process
    assert process.alive
    process.kill()
    assert process.wait_gone(5)


def test_a_later_process_of_the_same_id_is_another_one_and_is_not_killed(sleeper):
    earlier = Process(sleeper.pid, Process.of(sleeper.pid).started - 1)

    assert not earlier.alive
    earlier.kill()
    assert sleeper.poll() is None, "somebody else's process was killed"


def test_a_process_that_ended_and_was_not_collected_is_dead(sleeper):
    process = Process.of(sleeper.pid)
    os.kill(sleeper.pid, 9)

    assert processes.wait_until(lambda: not process.alive, 5)


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"pid": "x", "started": 1}'])
def test_a_record_that_is_not_whole_remembers_nobody(tmp_path, content):
    (tmp_path / "p.json").write_text(content)

    assert processes.load(tmp_path / "p.json") is None


def test_programs_see_neither_proxy_nor_credentials_of_who_starts_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    process = processes.start(["env"], tmp_path / "log", {"GOGC": "50"})

    assert process.wait_gone(5)
    seen = dict(line.split("=", 1) for line in (tmp_path / "log").read_text().splitlines())
    assert seen == {**processes.ENVIRONMENT, "GOGC": "50"}


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    files.write(tmp_path / "f", "old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))

    with pytest.raises(OSError, match="disk full"):
        files.write(tmp_path / "f", "new")

    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_text() == "old"
