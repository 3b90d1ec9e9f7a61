"""The load of simulated GPUs: measurement and metrics."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from cloudtwin.nodes.metadata import gpu_load
from cloudtwin.nodes.metadata.gpu_load import Meter


def test_gpus_have_the_utilization_of_the_pods_and_equal_shares_of_their_memory() -> None:
    exposition = gpu_load.exposition("gpu-0", gpus=2, utilization=50.0, memory_bytes=2048 << 20)

    lines = [line for line in exposition.splitlines() if not line.startswith("#")]
    values = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines}
    assert len(lines) == 2 * len(gpu_load.FIELDS)
    assert values["DCGM_FI_DEV_GPU_UTIL"] == "50"
    assert values["DCGM_FI_DEV_FB_USED"] == "1024"
    assert values["DCGM_FI_DEV_GPU_TEMP"] == "52", "halfway from 34 to 71"
    assert values["DCGM_FI_DEV_POWER_USAGE"] == "87.500", "halfway from 27 to 148"
    assert values["DCGM_FI_DEV_XID_ERRORS"] == "0"


@pytest.mark.parametrize(
    ("usage", "memory", "content"),
    [
        ("cpuacct/kubepods/cpuacct.usage", "memory/kubepods/memory.usage_in_bytes", "5000000000"),
        ("kubepods/cpu.stat", "kubepods/memory.current", "usage_usec 5000000"),
    ],
    ids=["cgroup 1", "cgroup 2"],
)
def test_load_is_read_from_the_cgroup_of_all_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usage: str, memory: str, content: str
) -> None:
    times = iter([100.0, 102.0])
    monkeypatch.setattr(gpu_load, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(gpu_load, "os", SimpleNamespace(cpu_count=lambda: 4))
    for file in (usage, memory):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / usage).write_text(content)
    (tmp_path / memory).write_text("4096")
    meter = Meter(tmp_path)

    assert meter.utilization() == 0.0, (
        "the first measurement has no earlier measurement to compare with"
    )
    (tmp_path / usage).write_text(content.replace("5", "9", 1))

    assert meter.utilization() == 50.0, "4 CPU seconds on 4 CPUs in 2 s"
    assert meter.memory_bytes() == 4096


def test_a_machine_without_pods_has_no_load(tmp_path: Path) -> None:
    assert Meter(tmp_path).utilization() == 0.0
    assert Meter(tmp_path).memory_bytes() == 0
