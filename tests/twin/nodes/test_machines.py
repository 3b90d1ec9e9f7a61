"""Machines: real kubelets, and everything that can happen to them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from everstep.errors import EverstepError
from everstep.progress import Lines
from tests.twin.nodes.conftest import api_of, eventually, kill_everything, left_of
from twin.nodes import MachineSpec, Power, Role, cluster
from twin.nodes.cgroups import Tree
from twin.nodes.machine_config import PAUSE_IMAGE

pytestmark = [
    pytest.mark.twin,
    pytest.mark.timeout(300),
]  # the first one may have to build the images

MACHINES = [
    MachineSpec("system-0", Role.SYSTEM),
    MachineSpec("gpu-0", Role.GPU),
    MachineSpec("gpu-1", Role.GPU, 2),
]
HOST_SYSCTLS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "net/ipv4/ip_forward",
)


@pytest.fixture(scope="module")
def host_before():
    return host()


@pytest.fixture(scope="module")
def twin(nodes_twin, host_before):
    nodes_twin.up(MACHINES, Lines())
    deploy(nodes_twin)
    return nodes_twin


@pytest.fixture
def api(twin):
    return api_of(twin)


def host():
    """Return what of the host a twin might change and must not."""
    links = json.loads(subprocess.check_output(["ip", "-json", "link"]))
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    return {
        "sysctls": {name: Path("/proc/sys", name).read_text() for name in HOST_SYSCTLS},
        "links": {link["ifname"] for link in links},
        "routes": subprocess.check_output(["ip", "route"], text=True),
        "rules": [line for line in rules.splitlines() if not line.startswith("#")],
        "mounts": {
            line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()
        },
        "folders": {
            p: Path(p).exists() for p in ("/var/lib/kubelet", "/var/lib/cni", "/run/netns")
        },
    }


def deploy(twin):
    """Run two pods that may go to any spot machine, one on each."""
    labels = {"app": "two"}
    pod = {
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": "everstep/spot", "operator": "Exists"}],
        "nodeSelector": {"everstep/pool": "gpu-spot"},
        "containers": [
            {"name": "c", "image": PAUSE_IMAGE, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ],
    }
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "two"},
        "spec": spec,
    }
    api_of(twin).apply("/apis/apps/v1/namespaces/default/deployments/two", document)


def is_ready(api, name):
    return cluster.is_ready(cluster.nodes(api).get(name, {}))


def pods(api, name):
    return [
        p["metadata"]["name"]
        for p in cluster.pods_on(api, name)
        if p["metadata"]["namespace"] == "default"
    ]


def running(api):
    items = api.get("/api/v1/namespaces/default/pods")["items"]
    return [
        p
        for p in items
        if p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]
    ]


def machine(twin, name):
    return next(status for status in twin.status().machines if status.spec.name == name)


def kinds(twin):
    return [
        (entry["kind"], entry["node"])
        for entry in map(json.loads, twin.events.read_text().splitlines())
    ]


def test_nodes_are_ready_with_the_labels_taints_and_gpus_of_their_role(twin, api):
    nodes = cluster.nodes(api)

    assert {name: node["metadata"]["labels"]["everstep/pool"] for name, node in nodes.items()} == {
        "system-0": "system",
        "gpu-0": "gpu-spot",
        "gpu-1": "gpu-spot",
    }
    assert nodes["gpu-1"]["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    assert nodes["gpu-0"]["spec"]["taints"][0]["key"] == "everstep/spot"
    assert "taints" not in nodes["system-0"]["spec"]
    assert all(status.ready and status.connected for status in twin.status().machines)


def test_pods_run_and_their_logs_can_be_read_through_the_api_server(api):
    eventually(lambda: len(running(api)) == 2, 30, "both pods run")
    dns = api.get("/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dkube-dns")["items"][
        0
    ]
    eventually(
        lambda: api.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns")["status"].get(
            "readyReplicas"
        ),
        30,
        "the DNS is ready",
    )

    api.request("GET", f"/api/v1/namespaces/kube-system/pods/{dns['metadata']['name']}/log")
    assert dns["spec"]["nodeName"] == "system-0"


def test_a_service_that_nobody_serves_refuses_at_once(twin):
    """A packet that vanished would let a program hang for half a minute that only came too early."""
    asked = "import socket; socket.create_connection(('10.96.200.200', 443), timeout=20)"
    inside = f"--net=/proc/{kubelet(twin, 'gpu-0')}/ns/net"
    done = subprocess.run(
        ["nsenter", inside, sys.executable, "-c", asked],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "ConnectionRefusedError" in done.stderr


def test_the_host_is_as_it_was(twin, host_before):
    assert host() == host_before


def test_a_drained_machine_is_empty_and_opens_again_on_return(twin, api):
    eventually(lambda: len(running(api)) == 2, 30, "both pods run")
    twin.drain("gpu-0")

    assert pods(api, "gpu-0") == []
    assert machine(twin, "gpu-0").schedulable is False
    eventually(lambda: len(running(api)) == 2, 30, "gpu-1, with two GPUs, takes both")
    twin.drain("gpu-0")
    twin.come_back("gpu-0")
    twin.come_back("gpu-0")
    assert machine(twin, "gpu-0").schedulable is True
    assert kinds(twin)[-2:] == [("drain", "gpu-0"), ("return", "gpu-0")], (
        "a repeated verb is no event"
    )


def test_a_vanished_machine_loses_its_node_and_comes_back_empty_with_its_address(twin, api):
    eventually(lambda: len(running(api)) == 2, 30, "both pods run")
    address, former = machine(twin, "gpu-1").ip, set(pods(api, "gpu-1"))
    assert former
    twin.vanish("gpu-1")
    assert machine(twin, "gpu-1").power is Power.GONE
    assert is_ready(api, "gpu-1"), "nobody has told Kubernetes"

    eventually(lambda: "gpu-1" not in cluster.nodes(api), 15, "the cloud deletes the Node")
    eventually(
        lambda: not former & {p["metadata"]["name"] for p in running(api)},
        20,
        "its pods are forgotten",
    )
    twin.come_back("gpu-1", Lines())

    assert is_ready(api, "gpu-1")
    assert machine(twin, "gpu-1").ip == address
    eventually(lambda: len(running(api)) == 2, 30, "new pods run")
    with pytest.raises(EverstepError, match="no machine 'gpu1'") as caught:
        twin.vanish("gpu1")
    assert "gpu-1" in caught.value.remedy


def test_frozen_and_cut_machines_are_missed_and_welcomed_again(twin, api):
    twin.freeze("gpu-0")
    twin.cut("gpu-1")
    with pytest.raises(EverstepError, match="frozen and cannot be drained"):
        twin.drain("gpu-0")

    assert machine(twin, "gpu-0").power is Power.FROZEN
    assert not machine(twin, "gpu-1").connected
    eventually(
        lambda: not is_ready(api, "gpu-0") and not is_ready(api, "gpu-1"), 20, "both are missed"
    )
    time.sleep(6)  # longer than the cloud's patience: machines that exist keep their Nodes
    assert {"gpu-0", "gpu-1"} <= set(cluster.nodes(api))
    twin.thaw("gpu-0")
    twin.mend("gpu-1")
    eventually(lambda: is_ready(api, "gpu-0") and is_ready(api, "gpu-1"), 20, "both are back")


def test_a_frozen_machine_can_vanish(twin, api):
    twin.freeze("gpu-0")
    twin.vanish("gpu-0")

    assert machine(twin, "gpu-0").power is Power.GONE
    with pytest.raises(EverstepError, match="gone and cannot be thawed"):
        twin.thaw("gpu-0")
    twin.come_back("gpu-0", Lines())
    assert is_ready(api, "gpu-0")


def test_machines_are_added_and_removed(twin, api):
    twin.add(MachineSpec("gpu-2", Role.GPU), Lines())
    assert is_ready(api, "gpu-2")
    with pytest.raises(EverstepError, match="'gpu-2' is there as gpu"):
        twin.add(MachineSpec("gpu-2", Role.SYSTEM), Lines())

    twin.remove("gpu-2")

    assert "gpu-2" not in cluster.nodes(api)
    assert not twin.layout.machine("gpu-2").folder.exists()
    assert kinds(twin)[-2:] == [("add", "gpu-2"), ("remove", "gpu-2")]


def test_a_killed_kubelet_is_started_again_and_finds_its_gpus(twin, api):
    before = kubelet(twin, "gpu-0")
    os.kill(before, signal.SIGKILL)

    eventually(lambda: kubelet(twin, "gpu-0") not in {None, before}, 10, "another one runs")
    eventually(
        lambda: cluster.offers(cluster.nodes(api)["gpu-0"], MACHINES[1]), 30, "it offers the GPU"
    )


def kubelet(twin, name):
    """Return the host's id of a machine's kubelet."""
    for pid in Tree.here().processes(twin.layout.machine_cgroup(name)):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "kubelet":
                return pid
    return None


def test_up_rebuilds_after_everything_was_killed_and_down_leaves_nothing(twin, host_before):
    kill_everything(twin)
    twin.up([], Lines())

    api = api_of(twin)
    assert all(status.ready for status in twin.status().machines), (
        "they belong to the twin, named or not"
    )
    eventually(lambda: len(running(api)) == 2, 30, "both pods run")
    kill_everything(twin)
    twin.down(Lines())
    assert left_of(twin) == []
    assert host() == host_before
