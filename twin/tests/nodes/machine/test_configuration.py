"""Configuration files of a machine's kubelet, containerd, network and DNS."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from cloudtwin.images.recipes import all_recipes
from cloudtwin.nodes.machine import configuration
from cloudtwin.nodes.machine.configuration import Host
from cloudtwin.nodes.model import MachineSpec, Role, Taint
from cloudtwin.nodes.network.addressing import Address

GIBIBYTE = 1 << 30
LABELS = {"example.com/pool": "gpu"}
GPU = MachineSpec("gpu-0", Role.GPU, labels=LABELS, taints=(Taint("example.com/spot", "true"),))
SYSTEM = MachineSpec("system-0", Role.SYSTEM)


def kubelet(
    spec: MachineSpec = GPU, memory: int = 24 * GIBIBYTE, usable: int | None = None
) -> dict[str, Any]:
    return configuration.kubelet(
        spec, Address(2), Host(memory, usable or memory, Path("/usr/lib/cni"))
    )


def test_a_node_registers_with_the_labels_and_taints_of_its_spec() -> None:
    assert kubelet(GPU)["registerWithTaints"] == [
        {"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}
    ]
    assert kubelet(SYSTEM)["registerWithTaints"] == []
    assert configuration.labels(GPU) == LABELS
    assert configuration.labels(SYSTEM) == {}


def test_a_cloud_labels_its_machines_with_their_location() -> None:
    machine = MachineSpec("t4-12", Role.GPU, region="eastus", cloud="azure")

    assert configuration.labels(machine) == {"topology.kubernetes.io/region": "eastus"}


@pytest.mark.parametrize(("spec", "gibibytes"), [(GPU, 5), (SYSTEM, 3)])
def test_a_machine_offers_its_share_of_the_memory_of_a_large_host(
    spec: MachineSpec, gibibytes: int
) -> None:
    total_bytes = 24 * GIBIBYTE
    reserved_bytes = (
        int(kubelet(spec, total_bytes)["kubeReserved"]["memory"].removesuffix("Mi")) << 20
    )

    allocatable = total_bytes - reserved_bytes - configuration.EVICTION_BYTES
    assert allocatable == gibibytes * GIBIBYTE


def test_a_machine_never_offers_more_than_half_of_a_small_host() -> None:
    total_bytes = 4 * GIBIBYTE
    reserved_bytes = (
        int(kubelet(GPU, total_bytes)["kubeReserved"]["memory"].removesuffix("Mi")) << 20
    )

    assert total_bytes - reserved_bytes <= 2 * GIBIBYTE + configuration.EVICTION_BYTES


def test_a_machine_in_a_container_offers_half_of_the_containers_memory() -> None:
    reserved = kubelet(GPU, 64 * GIBIBYTE, 4 * GIBIBYTE)["kubeReserved"]["memory"]
    reserved_bytes = int(reserved.removesuffix("Mi")) << 20

    # The kubelet subtracts both from the memory of the host, which it sees in the container.
    offered = 64 * GIBIBYTE - reserved_bytes - configuration.EVICTION_BYTES
    assert offered == 2 * GIBIBYTE


def test_the_kubelet_does_not_change_the_host() -> None:
    config = kubelet()

    assert config["protectKernelDefaults"] is True, "it would set the host's sysctls"
    assert config["oomScoreAdj"] == 0, "lowering it takes a capability that may be missing"
    assert config["failCgroupV1"] is False
    assert config["imageGCHighThresholdPercent"] == 100, "a removed image cannot be pulled again"


def test_every_file_has_the_format_of_its_reader() -> None:
    files = configuration.files_of(
        GPU,
        Address(2),
        Host(24 * GIBIBYTE, 24 * GIBIBYTE, Path("/usr/lib/cni")),
        Path("/mnt/shared"),
    )

    containerd = tomllib.loads(files["containerd.toml"])
    assert containerd["plugins"]["io.containerd.grpc.v1.cri"]["cni"]["bin_dir"] == "/usr/lib/cni"
    assert containerd["plugins"]["io.containerd.grpc.v1.cri"]["restrict_oom_score_adj"] is True
    network = json.loads(files["cni/10-pods.conflist"])
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]
    assert yaml.safe_load(files["kubelet.yaml"])["kind"] == "KubeletConfiguration"
    assert files["resolv.conf"] == "nameserver 10.96.0.10\n"


def test_the_sandbox_image_is_the_image_that_the_twin_builds() -> None:
    # The module does not import the recipes, because every process of a machine loads it.
    assert all_recipes(())["pause"].reference == configuration.PAUSE_IMAGE
