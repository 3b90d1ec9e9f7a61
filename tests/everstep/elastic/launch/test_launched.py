"""The launchers that tests, and scripts that draw pictures, run as processes."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.everstep.elastic.launch.launched import REPOSITORY, WAIT_SECONDS
from tests.waiting import wait_until

PARENT = """
import sys, time
from pathlib import Path
from tests.everstep.elastic.launch.launched import LauncherProcess

launcher = LauncherProcess(Path(sys.argv[1]), "600", program=["sleep"])
print(launcher.process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.twin
def test_a_launcher_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, cwd=REPOSITORY
    ) as parent:
        try:
            assert parent.stdout
            launcher = int(parent.stdout.readline())
            name = Path(f"/proc/{launcher}/comm")
            wait_until(lambda: name.read_text() == "sleep\n", "the launcher runs", WAIT_SECONDS)
            process_handle = os.pidfd_open(launcher)
        finally:
            parent.terminate()

    has_ended = select.select([process_handle], [], [], WAIT_SECONDS)[0]
    os.close(process_handle)
    assert has_ended, "SIGTERM to a script that draws pictures would leave the launcher behind"
