"""Programs in their own namespaces: output, mounts, and the end of all children."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cloudtwin.images import confine

from twin.tests.waiting import wait_until

pytestmark = pytest.mark.twin
SCRIPT = 'mount -t tmpfs everstep "$0" && touch "$0/mounted" && echo ready && sleep 1000'


def processes_with(text: str) -> list[list[str]]:
    """Return the arguments of every other process that has a text among its arguments."""
    matches = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if text in arguments and int(folder.name) != os.getpid():
            matches.append(arguments)
    return matches


def wait_until_no_process_has(text: str) -> None:
    """Wait until no process has a text among its arguments."""
    wait_until(
        lambda: not processes_with(text),
        f"no process has the argument {text}",
        100,
        details=lambda: processes_with(text),
        interval_seconds=0.02,
    )


def test_the_output_and_the_exit_code_are_returned(tmp_path: Path) -> None:
    lines: list[str] = []

    result = confine.run(
        ["sh", "-c", 'echo "$WORD"; echo worse >&2; exit 3'], {"WORD": "bad"}, lines.append
    )

    assert result == confine.ProgramResult(3, ("bad", "worse"))
    assert lines == ["bad", "worse"]


def test_mounts_are_not_visible_outside(tmp_path: Path) -> None:
    result = confine.run(["sh", "-c", SCRIPT.replace("sleep 1000", "true"), str(tmp_path)], {})

    assert result.code == 0, result.output
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_program_ends_with_its_children(tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        confine.run(["sh", "-c", SCRIPT, str(tmp_path)], {}, interrupt)

    wait_until_no_process_has(str(tmp_path))


def test_a_program_ends_when_its_caller_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from cloudtwin.images import confine\n"
        "confine.run(['sh', '-c', sys.argv[1], sys.argv[2]], {}, lambda line: print(line, flush=True))"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code, SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == "ready\n"
    assert processes_with(str(tmp_path))

    caller.send_signal(signal.SIGKILL)
    caller.communicate()

    wait_until_no_process_has(str(tmp_path))
