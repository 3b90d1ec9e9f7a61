"""The start of a twin's control plane and machines, without programs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import MachineSpec, Role, bring_up
from cloudtwin.nodes.control_plane.components import NETWORK_HOLDER
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.linux.processes import Process
from cloudtwin.nodes.machine.machine import Machine
from cloudtwin.nodes.records import MachineRecord
from cloudtwin.progress import Silent


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "twin")


@pytest.fixture
def cgroups(tmp_path: Path) -> CgroupHierarchies:
    return CgroupHierarchies(tmp_path / "cgroup", 2)


def own_process() -> Process:
    process = Process.of(os.getpid())
    assert process is not None
    return process


@pytest.fixture
def registry(layout: Layout, cgroups: CgroupHierarchies) -> Iterator[Process]:
    """Yield a process in the control plane's cgroup with the record of the registry."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process.of(child.pid)
    assert process is not None
    process.save(layout.process("registry"))
    (folder,) = cgroups.folders(layout.control_plane_cgroup)
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text(f"{child.pid}\n")
    yield process
    child.kill()
    child.communicate()


def test_the_registry_survives_a_repair_of_the_control_plane(
    layout: Layout, cgroups: CgroupHierarchies, registry: Process
) -> None:
    own_process().save(layout.process("etcd"))

    bring_up._end_strays(layout, cgroups)

    assert registry.alive, "machines could not pull images until the next `pulumi up`"


def test_a_registry_whose_network_is_gone_is_stopped(
    layout: Layout, cgroups: CgroupHierarchies, registry: Process
) -> None:
    bring_up._end_strays(layout, cgroups)

    assert not registry.alive


def test_a_network_holder_that_runs_but_does_not_report_in_time_is_an_error(
    layout: Layout, cgroups: CgroupHierarchies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bring_up, "NETWORK_HOLDER_SECONDS", 0.0)
    monkeypatch.setattr(processes, "start", lambda *_: own_process())
    monkeypatch.setattr(Process, "kill", lambda _: None)

    with pytest.raises(TwinError, match=f"control plane's {NETWORK_HOLDER} did not become ready"):
        bring_up._start_network_holder(layout, cgroups)


class EmptyCluster(KubernetesClient):
    """A cluster without Nodes."""

    def get(self, path: str) -> dict[str, Any]:
        return {"items": []}


def test_a_machine_that_ends_while_starting_is_reported_immediately_with_its_log(
    layout: Layout, cgroups: CgroupHierarchies
) -> None:
    record = MachineRecord(MachineSpec("gpu-0", Role.GPU), 1, {}, "key")
    machine = Machine(layout, cgroups, record)
    machine.folder.folder.mkdir(parents=True)
    machine.folder.log.write_text("no cgroup\n")
    client = EmptyCluster(layout.pki, "admin", "127.0.0.1", 1)

    with pytest.raises(TwinError, match=r"'gpu-0' ended while starting(?s:.*)no cgroup") as error:
        bring_up.wait_nodes_ready(client, [machine], Silent())

    assert str(machine.folder.log) in error.value.fix
