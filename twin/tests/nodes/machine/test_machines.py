"""Machines with real kubelets: their faults, and operations on them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import MachineSpec, Power, Role, Taint, Twin, node_objects
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.machine.configuration import PAUSE_IMAGE
from cloudtwin.nodes.model import MachineStatus
from cloudtwin.progress import Lines

from twin.tests.nodes.conftest import api_of, kill_everything, leftovers_of, wait_until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]  # the first test may build the images

POOL, SPOT = "example.com/pool", Taint("example.com/spot", "true")
MACHINES = [
    MachineSpec("system-0", Role.SYSTEM, labels={POOL: "system"}),
    MachineSpec("gpu-0", Role.GPU, labels={POOL: "gpu-spot"}, taints=(SPOT,)),
    MachineSpec("gpu-1", Role.GPU, 2, labels={POOL: "gpu-spot"}, taints=(SPOT,)),
]
HOST_SYSCTLS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "net/ipv4/ip_forward",
)


@pytest.fixture(scope="module")
def host_before() -> dict[str, object]:
    return host()


@pytest.fixture(scope="module")
def twin(nodes_twin: Twin, host_before: dict[str, object]) -> Twin:
    nodes_twin.up(MACHINES, Lines())
    deploy(nodes_twin)
    return nodes_twin


@pytest.fixture
def api(twin: Twin) -> KubernetesClient:
    return api_of(twin)


def is_disk_of_a_test(line: str) -> bool:
    """Return True for a line of mountinfo about a tmpfs that another test mounts meanwhile."""
    return "/pytest-of-" in line and " - tmpfs " in line


def host() -> dict[str, object]:
    """Return the settings of the host that a twin could change by mistake."""
    links = json.loads(subprocess.check_output(["ip", "-json", "link"]))
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    return {
        "sysctls": {name: Path("/proc/sys", name).read_text() for name in HOST_SYSCTLS},
        "links": {link["ifname"] for link in links},
        "routes": subprocess.check_output(["ip", "route"], text=True),
        "rules": [line for line in rules.splitlines() if not line.startswith("#")],
        "mounts": {
            line.split()[4]
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if not is_disk_of_a_test(line)
        },
        "folders": {
            p: Path(p).exists() for p in ("/var/lib/kubelet", "/var/lib/cni", "/run/netns")
        },
    }


def deploy(twin: Twin) -> None:
    """Run two pods, each with one GPU, on the spot machines."""
    labels = {"app": "two"}
    pod = {
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": "example.com/spot", "operator": "Exists"}],
        "nodeSelector": {"example.com/pool": "gpu-spot"},
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


def is_ready(api: KubernetesClient, name: str) -> bool:
    return node_objects.is_ready(node_objects.nodes(api).get(name, {}))


def pods(api: KubernetesClient, name: str) -> list[str]:
    return [
        p["metadata"]["name"]
        for p in node_objects.pods_on(api, name)
        if p["metadata"]["namespace"] == "default"
    ]


def running_pods(api: KubernetesClient) -> list[dict[str, Any]]:
    items = api.get("/api/v1/namespaces/default/pods")["items"]
    return [
        p
        for p in items
        if p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]
    ]


def client_certificates(api: KubernetesClient) -> Counter[str]:
    """Return the number of client certificates that the cluster has issued to each machine's kubelet."""
    requests = api.get("/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]
    return Counter(
        request["spec"]["username"].removeprefix("system:node:")
        for request in requests
        if request.get("status", {}).get("certificate")
    )


def machine(twin: Twin, name: str) -> MachineStatus:
    return next(status for status in twin.status().machines if status.spec.name == name)


def events(twin: Twin) -> list[tuple[str, str]]:
    return [
        (entry["kind"], entry["node"])
        for entry in map(json.loads, twin.events.read_text().splitlines())
    ]


def test_nodes_are_ready_with_the_labels_taints_and_gpus_of_their_role(
    twin: Twin, api: KubernetesClient
) -> None:
    nodes = node_objects.nodes(api)

    assert {
        name: node["metadata"]["labels"]["example.com/pool"] for name, node in nodes.items()
    } == {
        "system-0": "system",
        "gpu-0": "gpu-spot",
        "gpu-1": "gpu-spot",
    }
    assert nodes["gpu-1"]["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    assert nodes["gpu-0"]["spec"]["taints"][0]["key"] == "example.com/spot"
    assert "taints" not in nodes["system-0"]["spec"]
    assert all(status.ready and status.connected for status in twin.status().machines)


def test_every_kubelet_has_a_certificate_that_the_cluster_signed_and_exports_its_remaining_lifetime(
    twin: Twin, api: KubernetesClient
) -> None:
    names = {spec.name for spec in MACHINES}
    wait_until(lambda: names <= set(client_certificates(api)), 20, "the requests are signed")
    for name in names:
        metrics = api.text(f"/api/v1/nodes/{name}/proxy/metrics")
        (line,) = [
            line
            for line in metrics.splitlines()
            if line.startswith("kubelet_certificate_manager_client_ttl_seconds ")
        ]
        assert 300 * 86400 < float(line.split()[1]) < 366 * 86400


def test_pods_run_and_their_logs_can_be_read_through_the_api_server(api: KubernetesClient) -> None:
    wait_until(lambda: len(running_pods(api)) == 2, 30, "both pods run")
    dns = api.get("/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dkube-dns")["items"][
        0
    ]
    wait_until(
        lambda: api.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns")["status"].get(
            "readyReplicas"
        ),
        30,
        "CoreDNS is ready",
    )

    log = api.text(f"/api/v1/namespaces/kube-system/pods/{dns['metadata']['name']}/log")
    assert "CoreDNS-" in log
    assert dns["spec"]["nodeName"] == "system-0"


def test_an_unused_service_address_refuses_connections_immediately(twin: Twin) -> None:
    # If its packets were dropped, a program that starts before the service would hang for half a minute.
    script = "import socket; socket.create_connection(('10.96.200.200', 443), timeout=20)"
    network_namespace = f"--net=/proc/{kubelet_pid(twin, 'gpu-0')}/ns/net"
    result = subprocess.run(
        ["nsenter", network_namespace, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "ConnectionRefusedError" in result.stderr


def test_the_host_is_unchanged(twin: Twin, host_before: dict[str, object]) -> None:
    assert host() == host_before


def test_a_drained_machine_is_empty_and_schedulable_again_on_return(
    twin: Twin, api: KubernetesClient
) -> None:
    wait_until(lambda: len(running_pods(api)) == 2, 30, "both pods run")
    twin.drain("gpu-0")

    assert pods(api, "gpu-0") == []
    assert machine(twin, "gpu-0").schedulable is False
    wait_until(lambda: len(running_pods(api)) == 2, 30, "gpu-1, with two GPUs, takes both")
    twin.drain("gpu-0")
    twin.return_node("gpu-0")
    twin.return_node("gpu-0")
    assert machine(twin, "gpu-0").schedulable is True
    assert events(twin)[-2:] == [("drain", "gpu-0"), ("return", "gpu-0")], (
        "a repeated command must not be recorded as an event"
    )


def test_a_vanished_machine_loses_its_node_and_comes_back_empty_with_its_address(
    twin: Twin, api: KubernetesClient
) -> None:
    wait_until(lambda: len(running_pods(api)) == 2, 30, "both pods run")
    address, old_pods = machine(twin, "gpu-1").ip, set(pods(api, "gpu-1"))
    assert old_pods
    twin.vanish("gpu-1")
    assert machine(twin, "gpu-1").power is Power.GONE
    assert is_ready(api, "gpu-1"), "Kubernetes has not been informed"

    wait_until(lambda: "gpu-1" not in node_objects.nodes(api), 15, "the cloud deletes the Node")
    wait_until(
        lambda: not old_pods & {p["metadata"]["name"] for p in running_pods(api)},
        20,
        "its pods are deleted",
    )
    twin.return_node("gpu-1", Lines())

    assert is_ready(api, "gpu-1")
    assert machine(twin, "gpu-1").ip == address
    wait_until(lambda: len(running_pods(api)) == 2, 30, "new pods run")
    with pytest.raises(TwinError, match="no machine 'gpu1'") as error:
        twin.vanish("gpu1")
    assert "gpu-1" in error.value.fix


def test_frozen_and_disconnected_machines_are_not_ready_until_they_return(
    twin: Twin, api: KubernetesClient
) -> None:
    twin.freeze("gpu-0")
    twin.cut("gpu-1")
    with pytest.raises(TwinError, match="frozen and cannot be drained"):
        twin.drain("gpu-0")

    assert machine(twin, "gpu-0").power is Power.FROZEN
    assert not machine(twin, "gpu-1").connected
    wait_until(
        lambda: not is_ready(api, "gpu-0") and not is_ready(api, "gpu-1"), 20, "neither is ready"
    )
    # Longer than the grace period of the cloud controller: existing machines keep their Nodes.
    time.sleep(6)
    assert {"gpu-0", "gpu-1"} <= set(node_objects.nodes(api))
    twin.thaw("gpu-0")
    twin.reconnect("gpu-1")
    wait_until(
        lambda: is_ready(api, "gpu-0") and is_ready(api, "gpu-1"), 20, "both are ready again"
    )


def test_a_frozen_machine_can_vanish(twin: Twin, api: KubernetesClient) -> None:
    twin.freeze("gpu-0")
    twin.vanish("gpu-0")

    assert machine(twin, "gpu-0").power is Power.GONE
    with pytest.raises(TwinError, match="gone and cannot be thawed"):
        twin.thaw("gpu-0")
    twin.return_node("gpu-0", Lines())
    assert is_ready(api, "gpu-0")


def test_machines_are_added_and_removed(twin: Twin, api: KubernetesClient) -> None:
    twin.add(MachineSpec("gpu-2", Role.GPU), Lines())
    assert is_ready(api, "gpu-2")
    with pytest.raises(TwinError, match="'gpu-2' exists as gpu"):
        twin.add(MachineSpec("gpu-2", Role.SYSTEM), Lines())

    twin.remove("gpu-2")

    assert "gpu-2" not in node_objects.nodes(api)
    assert not twin.layout.machine("gpu-2").folder.exists()
    assert events(twin)[-2:] == [("add", "gpu-2"), ("remove", "gpu-2")]


def test_a_killed_kubelet_is_started_again_finds_its_gpus_and_requests_a_certificate(
    twin: Twin, api: KubernetesClient
) -> None:
    wait_until(lambda: client_certificates(api)["gpu-0"], 20, "the first request is signed")
    old_pid, old_certificates = kubelet_pid(twin, "gpu-0"), client_certificates(api)["gpu-0"]
    assert old_pid is not None
    os.kill(old_pid, signal.SIGKILL)

    wait_until(
        lambda: kubelet_pid(twin, "gpu-0") not in {None, old_pid}, 10, "another kubelet runs"
    )
    wait_until(
        lambda: node_objects.is_usable(node_objects.nodes(api)["gpu-0"], MACHINES[1]),
        30,
        "it offers the GPU",
    )
    wait_until(
        lambda: client_certificates(api)["gpu-0"] > old_certificates,
        20,
        "the new kubelet has a client certificate",
    )


def kubelet_pid(twin: Twin, name: str) -> int | None:
    """Return the PID on the host of a machine's kubelet; None if it does not run."""
    for pid in CgroupHierarchies.detect().processes(twin.layout.machine_cgroup(name)):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "kubelet":
                return pid
    return None


def test_up_rebuilds_after_everything_was_killed_and_down_leaves_nothing(
    twin: Twin, host_before: dict[str, object]
) -> None:
    kill_everything(twin)
    twin.up([], Lines())

    api = api_of(twin)
    assert all(status.ready for status in twin.status().machines), (
        "`up` starts all machines of the twin, even if its arguments do not name them"
    )
    wait_until(lambda: len(running_pods(api)) == 2, 30, "both pods run")
    kill_everything(twin)
    twin.down(Lines())
    assert leftovers_of(twin) == []
    assert host() == host_before
