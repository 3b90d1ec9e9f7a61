"""The injected faults of networks and machines take effect."""

import contextlib
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from os import getpid
from pathlib import Path

import pytest
from cloudtwin.images.confine import KILLED_WITH_PARENT

from tests.chaos import slow_sync
from tests.chaos.control_group import ControlGroup
from tests.chaos.network import START_SECONDS, Network
from tests.waiting import wait_until

pytestmark = pytest.mark.twin

PORT, DATAGRAMS = 7000, 200  # fewer than fit in a socket buffer
COUNTER = 'i=0; while true; do i=$((i+1)); echo $i > "$0"; sleep 0.01; done'


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network({"a": "10.77.0.20", "b": "10.77.0.21"})
    yield network
    network.close()


def send_and_count(
    network: Network, sender: str, receiver: str, count: int = 1, seconds: float = 0.5
) -> int:
    """Send `count` datagrams; return how many arrive, each at most `seconds` after the previous one."""
    with contextlib.ExitStack() as stack:
        sockets = {
            name: stack.enter_context(network.machines[name].call(_datagram_socket))
            for name in (sender, receiver)
        }
        sockets[receiver].bind((network.addresses[receiver], PORT))
        sockets[receiver].settimeout(seconds)
        for _ in range(count):
            with contextlib.suppress(PermissionError):  # dropped by the sender's own rules
                sockets[sender].sendto(b"x", (network.addresses[receiver], PORT))
        count_received = 0
        with contextlib.suppress(TimeoutError):
            while count_received < count:
                sockets[receiver].recv(16)
                count_received += 1
    return count_received


def one_way_delay_seconds(network: Network) -> float:
    """Return the seconds until a datagram from `a` has arrived at `b`."""
    started_at = time.monotonic()
    assert send_and_count(network, "a", "b", seconds=100) == 1
    return time.monotonic() - started_at


def _datagram_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def test_a_cut_is_directional_and_overlapping_cuts_heal_one_by_one(network: Network) -> None:
    network.cut("first", [("a", "b")])
    assert send_and_count(network, "a", "b") == 0
    assert send_and_count(network, "b", "a", seconds=100) == 1, "the other direction is not cut"

    network.cut("second", [("a", "b"), ("b", "a")])
    network.heal("first")
    assert send_and_count(network, "a", "b") == send_and_count(network, "b", "a") == 0

    network.heal("second")
    assert send_and_count(network, "a", "b", seconds=100) == 1
    assert send_and_count(network, "b", "a", seconds=100) == 1


def test_a_lossy_link_loses_a_share_of_the_packets(network: Network) -> None:
    network.drop_packets("fault", "a", 50)
    assert 0.25 * DATAGRAMS < send_and_count(network, "a", "b", DATAGRAMS) < 0.75 * DATAGRAMS

    network.heal("fault")
    assert send_and_count(network, "a", "b", DATAGRAMS, seconds=100) == DATAGRAMS


def test_packets_are_delayed_until_the_delay_is_removed(network: Network) -> None:
    send_and_count(network, "a", "b")  # resolves the addresses
    network.delay("a", 300)
    assert one_way_delay_seconds(network) >= 0.3

    network.remove_delay("a")
    assert min(one_way_delay_seconds(network) for _ in range(10)) < 0.3
    assert send_and_count(network, "a", "b", DATAGRAMS, seconds=100) == DATAGRAMS


def test_a_slow_link_does_not_exceed_its_rate(network: Network) -> None:
    network.limit_rate("a", 512)
    listener = network.machines["b"].call(
        lambda: socket.create_server((network.addresses["b"], PORT))
    )
    client = network.machines["a"].call(
        lambda: socket.create_connection((network.addresses["b"], PORT), 100)
    )
    with listener, client, listener.accept()[0] as server:
        started_at = time.monotonic()
        client.sendall(bytes(64 << 10))
        client.shutdown(socket.SHUT_WR)
        while server.recv(1 << 16):
            pass
        seconds = time.monotonic() - started_at
    network.remove_rate_limit("a")

    assert seconds > 0.5, "64 KiB need a second at 512 kbit/s, less a burst of 16 KiB"


def test_a_frozen_group_makes_no_progress_and_a_killed_one_is_empty(tmp_path: Path) -> None:
    group, file = ControlGroup(f"everstep-chaos-test-{getpid()}"), tmp_path / "count"
    command = [*KILLED_WITH_PARENT, *group.enter_command, "sh", "-c", COUNTER, str(file)]
    with subprocess.Popen(command) as process:
        try:
            wait_until(file.exists, "the group counts", START_SECONDS, interval_seconds=0.01)
            group.freeze()
            wait_until(
                lambda: "frozen 1" in (group.folder / "cgroup.events").read_text(),
                "the group is frozen",
                START_SECONDS,
                interval_seconds=0.01,
            )
            count = file.read_text()
            time.sleep(0.3)
            assert file.read_text() == count

            group.kill()
            assert group.processes() == []
        finally:
            group.close()
    assert process.returncode == -signal.SIGKILL


SYNC_PROGRAM = """
import os, sys
file = open(sys.argv[1], "w")
print("begun", flush=True)
os.fsync(file.fileno())
print("synced", flush=True)
"""


@contextlib.contextmanager
def syncing_program(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a program that syncs a file on a disk that hangs; yield it and the file with the delay."""
    delay = folder / "delay"
    delay.write_text("1000000000")
    command = [*slow_sync.command(delay), sys.executable, "-c", SYNC_PROGRAM, str(folder / "f")]
    program = subprocess.Popen([*KILLED_WITH_PARENT, *command], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    with program, program.stdout:
        try:
            assert program.stdout.readline() == "begun\n"
            yield program, delay
        finally:
            program.kill()  # otherwise a failed test would wait for the end of the sync


def test_a_hung_disk_blocks_a_sync_until_the_disk_responds(tmp_path: Path) -> None:
    with syncing_program(tmp_path) as (program, delay):
        assert program.stdout is not None
        assert not select.select([program.stdout], [], [], 1)[0], "the call does not return"
        delay.write_text("0")
        assert program.stdout.readline() == "synced\n"


def test_a_program_on_a_hung_disk_can_be_killed(tmp_path: Path) -> None:
    with syncing_program(tmp_path) as (program, _):
        program.kill()
        assert program.wait(START_SECONDS) == -signal.SIGKILL
