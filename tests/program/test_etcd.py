"""The etcd members with the flags of the stack, as processes on loopback."""

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.images.confine import KILLED_WITH_PARENT
from cloudtwin.toolchain import ensure_tools

from everstep.progress import Silent
from tests.components.existing.existing_stack import maintained_stack, pod_of
from tests.processes import free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.twin

MEMBERS = 3
HEALTH_TIMEOUT_SECONDS = 200.0


@dataclass
class Members:
    """Three etcd processes; each has a local folder in place of its folder on the shared volume."""

    program: Path
    folder: Path
    client_ports: list[int]
    peer_ports: list[int]
    processes: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def flags(self, index: int) -> list[str]:
        """Return the flags with variables expanded, and loopback addresses instead of pod names."""
        (container,) = pod_of(maintained_stack()["training-etcd-members"])["containers"]
        flags = []
        for flag in container["args"]:
            value = flag.replace("$(POD_NAME)", f"etcd-{index}")
            value = value.replace("/var/lib/etcd", str(self.folder / f"etcd-{index}"))
            for member in range(MEMBERS):
                host = f"http://etcd-{member}.etcd.elastic-job.svc.cluster.local"
                value = value.replace(
                    f"{host}:2379", f"http://127.0.0.1:{self.client_ports[member]}"
                )
                value = value.replace(f"{host}:2380", f"http://127.0.0.1:{self.peer_ports[member]}")
            value = value.replace("0.0.0.0:2379", f"127.0.0.1:{self.client_ports[index]}")
            flags.append(value.replace("0.0.0.0:2380", f"127.0.0.1:{self.peer_ports[index]}"))
        return flags

    def start(self, index: int) -> "subprocess.Popen[bytes]":
        (self.folder / f"etcd-{index}").mkdir(exist_ok=True)
        with (self.folder / f"etcd-{index}.log").open("ab") as log:
            command = [*KILLED_WITH_PARENT, str(self.program), *self.flags(index)]
            self.processes[index] = subprocess.Popen(command, stdout=log, stderr=log)
        return self.processes[index]

    def stop(self, index: int) -> None:
        process = self.processes.pop(index)
        process.terminate()
        process.wait()

    def request(
        self, index: int, path: str, body: str | None = None, method: str | None = None
    ) -> Any:
        data = None if body is None else body.encode()
        url = f"http://127.0.0.1:{self.client_ports[index]}{path}"
        with urllib.request.urlopen(
            urllib.request.Request(url, data, method=method), timeout=30
        ) as response:
            return json.load(response)

    def wait_until_healthy(self, index: int) -> None:
        def is_healthy() -> bool:
            with contextlib.suppress(OSError):
                return bool(self.request(index, "/health")["health"] == "true")
            return False

        wait_until(
            is_healthy,
            f"etcd-{index} is healthy",
            HEALTH_TIMEOUT_SECONDS,
            details=(self.folder / f"etcd-{index}.log").read_text,
        )


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    program = ensure_tools(["etcd"], Silent())["etcd"]
    ports = free_ports(2 * MEMBERS)
    result = Members(program, tmp_path, ports[:MEMBERS], ports[MEMBERS:])
    try:
        for index in range(MEMBERS):
            result.start(index)
        for index in range(MEMBERS):
            result.wait_until_healthy(index)
        yield result
    finally:
        for index in list(result.processes):
            result.stop(index)


def test_the_members_serve_the_apis_that_torch_and_everstep_need(members: Members) -> None:
    response = members.request(0, "/v2/keys/torchelastic?value=1", "", "PUT")
    lease = members.request(1, "/v3/lease/grant", json.dumps({"TTL": 2}))

    assert response["node"]["value"] == "1", "torch's own etcd backends use only v2"
    assert lease["TTL"] == "2", "a longer lease would delay the detection of a lost worker"


def test_a_member_that_restarts_with_its_data_rejoins(members: Members) -> None:
    members.request(0, "/v3/kv/put", json.dumps({"key": "YQ==", "value": "MQ=="}))

    members.stop(2)
    # Two members are a quorum.
    members.request(0, "/v3/kv/put", json.dumps({"key": "Yg==", "value": "Mg=="}))
    members.start(2)
    members.wait_until_healthy(2)

    response = members.request(2, "/v3/kv/range", json.dumps({"key": "Yg=="}))
    assert response["kvs"][0]["value"] == "Mg==", "it must have caught up"


def test_a_member_that_restarts_without_its_data_is_refused(members: Members) -> None:
    # This is why members keep their data on the shared volume and not in an emptyDir.
    members.stop(2)
    (members.folder / "etcd-2").rename(members.folder / "lost")

    process = members.start(2)

    assert process.wait(timeout=HEALTH_TIMEOUT_SECONDS) != 0
    assert "already been bootstrapped" in (members.folder / "etcd-2.log").read_text()
