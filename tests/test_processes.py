import os
import select
import signal
import subprocess
import sys
from functools import partial

from tests.processes import processes_in_session, processes_of, signal_all

WAIT_SECONDS = 100
GRANDCHILD_IN_A_SESSION_OF_ITS_OWN = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_launcher_is_killed_with_the_worker_that_has_a_session_of_its_own() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GRANDCHILD_IN_A_SESSION_OF_ITS_OWN],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as launcher:
        assert launcher.stdout
        worker = int(launcher.stdout.readline())

        assert processes_in_session(launcher.pid) == {launcher.pid}
        assert processes_of(launcher.pid) == {launcher.pid, worker}

        ended = os.pidfd_open(worker)
        signal_all(partial(processes_of, launcher.pid), signal.SIGKILL)

    assert select.select([ended], [], [], WAIT_SECONDS)[0], "it runs no more"
    os.close(ended)
