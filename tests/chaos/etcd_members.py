"""The etcd of a chaos test: one or three members, each on its own machine."""

import base64
import http.client
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cloudtwin.images.confine import KILLED_WITH_PARENT
from cloudtwin.toolchain import ensure_tools

from everstep.progress import Silent
from tests.chaos import slow_sync
from tests.chaos.network import Network
from tests.waiting import wait_until

ETCDUTL_MODULE = Path(__file__).with_name("etcdutl")
CLIENT_PORT, PEER_PORT = 2379, 2380
START_SECONDS = 200.0
REQUEST_SECONDS = 2.0


class EtcdMembers:
    """The processes of one etcd.

    Args:
        network: network with a machine for each member.
        names: names of the members, which are the names of their machines.
        folder: folder of their data and logs.
    """

    def __init__(self, network: Network, names: Sequence[str], folder: Path) -> None:
        self._network, self.names, self._folder = network, tuple(names), folder
        self._program = ensure_tools(["etcd"], Silent())["etcd"]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._cluster_count = 1

    @property
    def endpoints(self) -> str:
        """The endpoints of all members, separated by commas."""
        return ",".join(f"{self._network.addresses[name]}:{CLIENT_PORT}" for name in self.names)

    def start(self, name: str) -> None:
        """Start a member; it continues with its data if it has any."""
        address = self._network.addresses[name]
        options = {
            "listen-client-urls": f"http://{address}:{CLIENT_PORT}",
            "advertise-client-urls": f"http://{address}:{CLIENT_PORT}",
            "listen-peer-urls": f"http://{address}:{PEER_PORT}",
        }
        arguments = [f"--{option}={value}" for option, value in options.items()]
        arguments += self._identity_arguments(name)
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [
                    *KILLED_WITH_PARENT,
                    *self._network.machines[name].enter_command,
                    *slow_sync.command(self._delay_file(name)),
                    str(self._program),
                    *arguments,
                ],
                stdout=log,
                stderr=log,
            )

    def _identity_arguments(self, name: str) -> list[str]:
        """Return the options that identify a member of a new cluster; etcd and etcdutl share them."""
        urls = {n: f"http://{self._network.addresses[n]}:{PEER_PORT}" for n in self.names}
        options = {
            "name": name,
            "data-dir": str(self._folder / name),
            "initial-advertise-peer-urls": urls[name],
            "initial-cluster": ",".join(f"{n}={url}" for n, url in urls.items()),
            "initial-cluster-token": f"chaos-{self._cluster_count}",
        }
        return [f"--{option}={value}" for option, value in options.items()]

    def wait_until_ready(self) -> None:
        """Wait until a majority of the members is up: without one, no member answers a linearizable read."""
        wait_until(
            lambda: any(self.revision(name) for name in self.names), "etcd responds", START_SECONDS
        )

    def kill(self, name: str) -> None:
        """Kill a member."""
        self._processes[name].kill()
        self._processes[name].wait()

    def freeze(self, name: str) -> None:
        """Suspend a member's process."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Resume a member's process."""
        self._processes[name].send_signal(signal.SIGCONT)

    def slow_disk(self, name: str, milliseconds: int) -> None:
        """Delay each sync of a member's files."""
        self._delay_file(name).write_text(str(milliseconds))

    def _delay_file(self, name: str) -> Path:
        return self._folder / f"{name}.delay"

    def back_up(self) -> None:
        """Copy the files of all members at one moment, like a snapshot of their volumes."""
        for name in self.names:
            self.freeze(name)
        for name in self.names:
            shutil.copytree(self._folder / name, self._folder / f"{name}.backup")
        for name in self.names:
            self.thaw(name)

    def kill_and_restore(self) -> None:
        """Kill all members and restore the copies of their files; `start` continues from them."""
        for name in self.names:
            self.kill(name)
        for name in self.names:
            shutil.rmtree(self._folder / name)
            (self._folder / f"{name}.backup").rename(self._folder / name)

    def kill_and_wipe(self) -> None:
        """Kill all members and remove their files; `start` makes a new, empty cluster with another identity."""
        for name in self.names:
            self.kill(name)
        for name in self.names:
            shutil.rmtree(self._folder / name)
        self._cluster_count += 1

    def save_snapshot(self) -> None:
        """Save a snapshot of the store, as `etcdctl snapshot save` does."""
        etcdutl()  # built here, while etcd still serves
        address = self._network.addresses[self.names[0]]
        content = self._network.switch.call(lambda: _snapshot(address))
        self._snapshot_path.write_bytes(content)

    def kill_and_restore_snapshot(self) -> None:
        """Kill all members and restore the snapshot: `start` makes a cluster with another identity."""
        self.kill_and_wipe()
        for name in self.names:
            command = [etcdutl(), "snapshot", "restore", str(self._snapshot_path)]
            with (self._folder / f"{name}.log").open("ab") as log:
                subprocess.run([*command, *self._identity_arguments(name)], check=True, stderr=log)
        self._snapshot_path.unlink()

    @property
    def _snapshot_path(self) -> Path:
        return self._folder / "etcd.snapshot"

    def revision(self, name: str) -> int:
        """Return the store's revision according to a member; 0 if it does not respond."""
        try:
            response = self._request(name, "kv/range", {"key": encode_key("/")})
            return int(response["header"]["revision"])
        except (OSError, KeyError, ValueError, http.client.HTTPException):
            return 0

    def compact(self, revision: int) -> None:
        """Compact the history before a revision, so that no watch can resume from an earlier one."""
        for name in self.names:
            try:
                self._request(name, "kv/compaction", {"revision": str(revision), "physical": True})
            except (OSError, ValueError, http.client.HTTPException):
                continue
            return

    def _request(self, name: str, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        def send() -> dict[str, Any]:
            address = self._network.addresses[name]
            connection = http.client.HTTPConnection(address, CLIENT_PORT, timeout=REQUEST_SECONDS)
            try:
                connection.request("POST", f"/v3/{path}", json.dumps(body))
                return dict(json.loads(connection.getresponse().read()))
            finally:
                connection.close()

        return self._network.switch.call(send)

    def close(self) -> None:
        """Kill all members."""
        for process in self._processes.values():
            process.kill()
            process.wait()


@cache
def etcdutl() -> str:
    """Return the path of etcdutl, which Go builds on first use."""
    command = ["go", "-C", str(ETCDUTL_MODULE), "tool", "-n", "etcdutl"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _snapshot(address: str) -> bytes:
    """Return a snapshot of a member's store: its database and a checksum, which etcdutl verifies."""
    connection = http.client.HTTPConnection(address, CLIENT_PORT, timeout=REQUEST_SECONDS)
    try:
        connection.request("POST", "/v3/maintenance/snapshot", "{}")
        blobs = [json.loads(line)["result"].get("blob", "") for line in connection.getresponse()]
        return b"".join(map(base64.b64decode, blobs))
    finally:
        connection.close()


def encode_key(text: str) -> str:
    """Return a key in Base64, as etcd's JSON gateway requires."""
    return base64.b64encode(text.encode()).decode()


def log_tail(path: Path, characters: int = 1500) -> str:
    """Return the end of a log."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - characters))
        return file.read().decode(errors="replace")
