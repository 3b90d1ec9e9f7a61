import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from twin.images import confine

pytestmark = pytest.mark.twin
FOREVER = 'mount -t tmpfs everstep "$0" && touch "$0/mounted" && echo ready && sleep 1000'


def processes_with(text):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if text in words and int(folder.name) != os.getpid():
            found.append(words)
    return found


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_printed_and_the_exit_code_come_back(tmp_path):
    heard = []

    done = confine.run(
        ["sh", "-c", 'echo "$WORD"; echo worse >&2; exit 3'], {"WORD": "bad"}, heard.append
    )

    assert done == confine.Finished(3, ("bad", "worse"))
    assert heard == ["bad", "worse"]


def test_mounts_are_not_seen_outside(tmp_path):
    done = confine.run(["sh", "-c", FOREVER.replace("sleep 1000", "true"), str(tmp_path)], {})

    assert done.code == 0, done.output
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_program_ends_with_its_children(tmp_path):
    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        confine.run(["sh", "-c", FOREVER, str(tmp_path)], {}, interrupt)

    wait_for(lambda: not processes_with(str(tmp_path)))


def test_a_program_ends_when_we_are_killed(tmp_path):
    code = (
        "import sys; from twin.images import confine\n"
        "confine.run(['sh', '-c', sys.argv[1], sys.argv[2]], {}, lambda line: print(line, flush=True))"
    )
    ours = subprocess.Popen(
        [sys.executable, "-c", code, FOREVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert ours.stdout.readline() == "ready\n"
    assert processes_with(str(tmp_path))

    ours.send_signal(signal.SIGKILL)
    ours.communicate()

    wait_for(lambda: not processes_with(str(tmp_path)))
