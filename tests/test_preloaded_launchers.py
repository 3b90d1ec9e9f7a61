"""Launchers that start as forks of a process with their modules."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.elastic.launch.launcher import HUGE_PAGES, MALLOC_VARIABLE
from tests.preloaded_launchers import REPOSITORY, Command, PreloadedLauncher
from tests.processes import all_processes, processes_in_session
from tests.waiting import wait_until

pytestmark = pytest.mark.twin

SECONDS = 100
DESCRIBE = """
import json, os, sys, tempfile
descriptors = {int(name): os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
json.dump({
    "name": __name__,
    "arguments": sys.argv,
    "command": sys.orig_argv,
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "import_path": sys.path,
    "temporary": tempfile.gettempdir(),
    "descriptors": {n: path for n, path in descriptors.items() if not path.startswith("/proc/")},
    "is_preloaded": "torch" in sys.modules,
    "session": os.getsid(0),
    "threads": len(os.listdir("/proc/self/task")),
}, sys.stdout)
"""
PARENT = """
import sys, time
from pathlib import Path
from tests.preloaded_launchers import Command, PreloadedLauncher

folder = Path(sys.argv[1])
environment = {"PATH": "/usr/bin", "PYTHONPATH": str(folder)}
print(PreloadedLauncher(Command("program", [], environment, folder, folder / "log")).pid, flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def running(
    folder: Path, program: str, *arguments: str, **variables: str
) -> Iterator[PreloadedLauncher]:
    (folder / "program.py").write_text(program)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **variables}
    launcher = PreloadedLauncher(Command("program", arguments, environment, folder, folder / "log"))
    try:
        yield launcher
    finally:
        launcher.kill()
        launcher.wait()


@pytest.mark.parametrize(
    ("program", "code", "output"),
    [
        ("print('end', end='')", 0, "end"),
        ("import sys; print('x', end=''); sys.exit(138)", 138, "x"),
        ("import sys; sys.exit('error: no such file')", 1, "error: no such file\n"),
        ("import os; os._exit(3)", 3, ""),
        ("import atexit; atexit.register(print, 'at exit')", 0, "at exit\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
    ],
)
def test_a_program_ends_as_in_an_interpreter_of_its_own(
    tmp_path: Path, program: str, code: int, output: str
) -> None:
    with running(tmp_path, program) as launcher:
        assert launcher.wait(SECONDS) == launcher.poll() == launcher.returncode == code
        assert launcher.pid not in all_processes(), "a process that has ended counts no more"

    assert (tmp_path / "log").read_text() == output


def test_an_exception_ends_a_program_with_its_traceback(tmp_path: Path) -> None:
    with running(tmp_path, "print('before')\n1 / 0") as launcher:
        assert launcher.wait(SECONDS) == 1

    log = (tmp_path / "log").read_text()
    assert "before\n" in log
    assert f'File "{tmp_path}/program.py", line 2, in <module>' in log
    assert "ZeroDivisionError: division by zero\n" in log


def test_a_program_gets_what_a_new_interpreter_would_give_it(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    other_path = f"{tmp_path / 'other'}:{REPOSITORY}"
    variables = {"PYTHONPATH": other_path, "TMPDIR": str(temporary), "POD_NAME": "w0"}

    with running(tmp_path, DESCRIBE, "--lr", "1", **variables) as launcher:
        assert launcher.wait(SECONDS) == 0
    preloaded = json.loads((tmp_path / "log").read_text())
    command = [sys.executable, "-m", "program", "--lr", "1"]
    environment = {"PATH": os.environ["PATH"], MALLOC_VARIABLE: HUGE_PAGES, **variables}
    with (tmp_path / "log").open("w") as log:
        subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
        )
    real = json.loads((tmp_path / "log").read_text())

    assert preloaded.pop("is_preloaded") is not real.pop("is_preloaded")
    assert preloaded.pop("session") == launcher.pid != real.pop("session")
    assert preloaded == real


def test_programs_draw_different_random_numbers(tmp_path: Path) -> None:
    program = "import numpy, random; print(random.random(), numpy.random.random())"
    for _ in range(2):
        with running(tmp_path, program) as launcher:
            assert launcher.wait(SECONDS) == 0

    assert len(set((tmp_path / "log").read_text().split())) == 4


def test_a_signal_reaches_a_running_program_and_its_code_is_kept(tmp_path: Path) -> None:
    with running(tmp_path, "import time; print('began', flush=True); time.sleep(600)") as launcher:
        wait_until(lambda: (tmp_path / "log").read_text() == "began\n", "it runs", SECONDS)
        assert launcher.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            launcher.wait(0.01)
        assert processes_in_session(launcher.pid) == {launcher.pid}

        launcher.send_signal(signal.SIGTERM)

        assert launcher.wait(SECONDS) == -signal.SIGTERM
        launcher.send_signal(signal.SIGTERM)
        assert launcher.returncode == -signal.SIGTERM


def test_a_launcher_ends_with_the_process_of_its_tests(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import time; time.sleep(600)")
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, cwd=REPOSITORY
    ) as parent:
        try:
            assert parent.stdout
            process_handle = os.pidfd_open(int(parent.stdout.readline()))
        finally:
            parent.kill()

    has_ended = select.select([process_handle], [], [], SECONDS)[0]
    os.close(process_handle)
    assert has_ended
