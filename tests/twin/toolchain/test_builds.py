"""Real builds of the smallest module, in caches of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.twin
COMMAND = [sys.executable, "-m", "twin.toolchain", "pause"]


@pytest.fixture
def environment(tmp_path):
    """A cache of our own for results; Go keeps its usual one, so that builds take no time."""
    asked = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True)
    return os.environ | {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "GOCACHE": asked.stdout.strip(),
    }


def start(environment):
    return subprocess.Popen(
        COMMAND, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process):
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    return out.split()[-1], err


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_killed_build_leaves_no_half_program_and_the_next_run_builds_it(tmp_path, environment):
    folder = tmp_path / "cache" / "everstep" / "toolchain"
    build = start(environment)
    wait_for(lambda: list(folder.glob(".staging-pause-*")))
    build.send_signal(signal.SIGKILL)
    build.communicate()
    assert not list(folder.glob("pause-*"))

    program, _ = finish(start(environment))

    running = subprocess.Popen([program])
    running.terminate()
    assert running.wait(5) in {0, -signal.SIGTERM}
    assert sorted(path.name for path in folder.iterdir()) == [
        Path(program).parent.name,
        "pause.lock",
    ]


def test_two_runs_at_once_share_one_build(tmp_path, environment):
    runs = [finish(run) for run in [start(environment), start(environment)]]

    (first, first_said), (second, second_said) = runs
    assert first == second
    said = first_said + second_said
    assert said.count("done  Building pause") == 1
    assert said.count("... Building pause") == 1


def test_a_second_run_builds_nothing(environment):
    finish(start(environment))

    _, said = finish(start(environment))

    assert said == ""


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, environment):
    cache = tmp_path / "cache"
    cache.mkdir()
    in_little_space = f'mount -t tmpfs -o size=1m everstep {cache} && "$@"; code=$?'
    and_look = f"find {cache} -type f; exit $code"
    script = f"{in_little_space}; {and_look}"

    run = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", *COMMAND],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert run.returncode == 1
    assert "Error: The disk ran full while" in run.stderr
    assert "Traceback" not in run.stderr
    assert [line.rpartition("/")[2] for line in run.stdout.split()] == ["pause.lock"]


def test_a_network_that_is_not_there_is_named(tmp_path, environment):
    environment |= {
        "GOPROXY": "off",
        "GOMODCACHE": str(tmp_path / "empty"),
        "GOFLAGS": "-modcacherw",
    }

    run = subprocess.run(
        [*COMMAND[:-1], "etcd"], env=environment, capture_output=True, text=True, check=False
    )

    assert run.returncode == 1
    assert "The Go modules of etcd could not be downloaded" in run.stderr
    assert "GOPROXY" in run.stderr
