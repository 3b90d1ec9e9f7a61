import json
import tomllib
from pathlib import Path

import pytest
import yaml

from twin.nodes import machine_config
from twin.nodes.addressing import Address
from twin.nodes.machine_config import Host
from twin.nodes.model import MachineSpec, Role

GIBIBYTE = 1 << 30
GPU = MachineSpec("gpu-0", Role.GPU)
SYSTEM = MachineSpec("system-0", Role.SYSTEM)


def kubelet(spec=GPU, memory=24 * GIBIBYTE):
    return machine_config.kubelet(spec, Address(2), memory)


def test_only_a_gpu_machine_is_tainted_as_spot():
    assert kubelet(GPU)["registerWithTaints"] == [
        {"key": "everstep/spot", "value": "true", "effect": "NoSchedule"}
    ]
    assert kubelet(SYSTEM)["registerWithTaints"] == []
    assert machine_config.labels(GPU) == {"everstep/pool": "gpu-spot"}
    assert machine_config.labels(SYSTEM) == {"everstep/pool": "system"}


@pytest.mark.parametrize(("spec", "gibibytes"), [(GPU, 5), (SYSTEM, 3)])
def test_a_machine_offers_its_share_of_a_large_host_s_memory(spec, gibibytes):
    total = 24 * GIBIBYTE
    reserved = int(kubelet(spec, total)["kubeReserved"]["memory"].removesuffix("Mi")) << 20

    allocatable = total - reserved - machine_config.EVICTION_BYTES
    assert allocatable == gibibytes * GIBIBYTE


def test_a_machine_never_offers_more_than_half_of_a_small_host():
    total = 4 * GIBIBYTE
    reserved = int(kubelet(GPU, total)["kubeReserved"]["memory"].removesuffix("Mi")) << 20

    assert total - reserved <= 2 * GIBIBYTE + machine_config.EVICTION_BYTES


def test_the_kubelet_changes_nothing_of_the_host():
    config = kubelet()

    assert config["protectKernelDefaults"] is True, "it would set the host's sysctls"
    assert config["oomScoreAdj"] == 0, "lowering it takes a capability that may be missing"
    assert config["failCgroupV1"] is False
    assert config["imageGCHighThresholdPercent"] == 100, "a removed image cannot be pulled again"


def test_every_file_is_of_the_form_its_reader_wants():
    files = machine_config.files_of(GPU, Address(2), Host(24 * GIBIBYTE, Path("/usr/lib/cni")))

    containerd = tomllib.loads(files["containerd.toml"])
    assert containerd["plugins"]["io.containerd.grpc.v1.cri"]["cni"]["bin_dir"] == "/usr/lib/cni"
    assert containerd["plugins"]["io.containerd.grpc.v1.cri"]["restrict_oom_score_adj"] is True
    network = json.loads(files["cni/10-pods.conflist"])
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]
    assert yaml.safe_load(files["kubelet.yaml"])["kind"] == "KubeletConfiguration"
    assert files["resolv.conf"] == "nameserver 10.96.0.10\n"
