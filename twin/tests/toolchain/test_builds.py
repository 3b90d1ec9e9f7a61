"""Real builds of the smallest module, in separate caches."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from twin.tests.waiting import wait_until

pytestmark = pytest.mark.twin
COMMAND = [sys.executable, "-m", "cloudtwin.toolchain", "pause"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return variables with a new cache for results and the usual cache of Go, for fast builds."""
    result = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True)
    return os.environ | {
        "CLOUDTWIN_CACHE": str(tmp_path / "cache"),
        "GOCACHE": result.stdout.strip(),
    }


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        COMMAND, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    output, errors = process.communicate(timeout=250)
    assert process.returncode == 0, errors
    return output.split()[-1], errors


def test_a_killed_build_leaves_no_partial_program_and_the_next_run_completes_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "cache" / "toolchain"
    build = start(environment)
    wait_until(
        lambda: list(folder.glob(".staging-pause-*")),
        "the build has begun",
        100,
        interval_seconds=0.01,
    )
    build.send_signal(signal.SIGKILL)
    build.communicate()
    assert not list(folder.glob("pause-*"))

    program, _ = finish(start(environment))

    process = subprocess.Popen([program])
    process.terminate()
    assert process.wait(100) in {0, -signal.SIGTERM}
    assert sorted(path.name for path in folder.iterdir()) == [
        Path(program).parent.name,
        "pause.lock",
    ]


def test_concurrent_runs_share_one_build(tmp_path: Path, environment: dict[str, str]) -> None:
    runs = [finish(run) for run in [start(environment), start(environment)]]

    (first, first_output), (second, second_output) = runs
    assert first == second
    output = first_output + second_output
    assert output.count("done  Building pause") == 1
    assert output.count("... Building pause") == 1


def test_a_second_run_builds_nothing(environment: dict[str, str]) -> None:
    finish(start(environment))

    _, output = finish(start(environment))

    assert output == ""


def test_a_full_disk_is_reported_and_leaves_only_the_lock_file(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    in_small_tmpfs = f'mount -t tmpfs -o size=1m everstep {cache} && "$@"; code=$?'
    list_files = f"find {cache} -type f; exit $code"
    script = f"{in_small_tmpfs}; {list_files}"

    result = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", *COMMAND],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert result.returncode == 1
    assert "Error: The disk filled up while" in result.stderr
    assert "Traceback" not in result.stderr
    assert [line.rpartition("/")[2] for line in result.stdout.split()] == ["pause.lock"]


def test_a_failed_download_of_modules_is_reported(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    environment |= {
        "GOPROXY": "off",
        "GOMODCACHE": str(tmp_path / "empty"),
        "GOFLAGS": "-modcacherw",
    }

    result = subprocess.run(
        [*COMMAND[:-1], "etcd"], env=environment, capture_output=True, text=True, check=False
    )

    assert result.returncode == 1
    assert "The Go modules of etcd could not be downloaded" in result.stderr
    assert "GOPROXY" in result.stderr
