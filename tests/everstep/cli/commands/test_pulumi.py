"""`everstep pulumi` and Ctrl-C."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """#!/bin/sh
trap 'sleep 1; echo saved; exit 3' INT
echo ready
while :; do sleep 0.1; done
"""

COMMAND = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from everstep.cli.commands import pulumi
from everstep.cli.engine.driver import Engine
from everstep.cli.engine.workspace import Workspace

folder = Path(sys.argv[1])
engine = Engine(Workspace(folder, "local", "test", folder), folder / "pulumi", dict(os.environ))
pulumi.open_running_stack = lambda stack: SimpleNamespace(engine=lambda progress: engine)
pulumi.pulumi(SimpleNamespace(args=["stack", "ls"]))
"""


@pytest.mark.usefixtures("interruptible")
def test_after_ctrl_c_pulumi_has_time_to_save_its_state(tmp_path: Path) -> None:
    program = tmp_path / "pulumi"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"

        os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it

        assert process.communicate(timeout=60)[0] == "saved\n"
        assert process.returncode == 3
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
