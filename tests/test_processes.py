"""Processes and ports of tests."""

import os
import select
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.processes import free_port, free_ports, processes_in_session, processes_of, signal_all

WAIT_SECONDS = 100
GRANDCHILD_IN_SEPARATE_SESSION = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_launcher_is_killed_with_a_worker_in_another_session() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GRANDCHILD_IN_SEPARATE_SESSION],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as launcher:
        assert launcher.stdout
        worker = int(launcher.stdout.readline())

        assert processes_in_session(launcher.pid) == {launcher.pid}
        assert processes_of(launcher.pid) == {launcher.pid, worker}

        process_handle = os.pidfd_open(worker)
        signal_all(partial(processes_of, launcher.pid), signal.SIGKILL)

    assert select.select([process_handle], [], [], WAIT_SECONDS)[0], "the worker still runs"
    os.close(process_handle)


def test_a_port_is_given_to_one_process_only_and_no_connection_can_take_it() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [*free_ports(3), free_port()]

    assert len(set(ports)) == 4
    assert ports[:3] == list(range(ports[0], ports[0] + 3))
    assert max(ports) < lowest
    command = [
        sys.executable,
        "-c",
        f"from tests.processes import _reserve; print(_reserve({ports[0]}))",
    ]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    assert result.stdout == "False\n"
