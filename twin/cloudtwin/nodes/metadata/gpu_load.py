"""Metrics of the simulated GPUs under DCGM's names, from the real load that pods put on the machine.

The machine's CPUs do the work of a GPU, so their utilization by pods is the GPU's. Temperature and power are
linear functions of it and measure nothing.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

PODS = "kubepods"  # the cgroup that the kubelet puts all pods in
MEBIBYTE = 1 << 20
IDLE_CELSIUS, BUSY_CELSIUS = 34.0, 71.0
IDLE_WATTS, BUSY_WATTS = 27.0, 148.0
MODEL = "Simulated GPU"
FIELDS = {
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %).",
    "DCGM_FI_DEV_FB_USED": "Framebuffer memory used (in MiB).",
    "DCGM_FI_DEV_GPU_TEMP": "GPU temperature (in C).",
    "DCGM_FI_DEV_POWER_USAGE": "Power draw (in W).",
    "DCGM_FI_DEV_XID_ERRORS": "Value of the last XID error encountered.",
}


@dataclass
class Meter:
    """Meter of the load of all pods.

    Attributes:
        root: folder of the machine's cgroups.
    """

    root: Path = Path("/sys/fs/cgroup")
    _last_sample: tuple[float, float] = field(default=(0.0, 0.0))

    def utilization(self) -> float:
        """Return the percentage of CPU time that pods used since the previous call; 0 at the first call."""
        now, seconds = time.monotonic(), self._cpu_seconds()
        (last_time, last_seconds), self._last_sample = self._last_sample, (now, seconds)
        if not last_time or now <= last_time:
            return 0.0
        share = (seconds - last_seconds) / (now - last_time) / (os.cpu_count() or 1)
        return max(0.0, min(100.0, 100 * share))

    def memory_bytes(self) -> int:
        """Return the memory in use by pods, in bytes."""
        for file in (f"memory/{PODS}/memory.usage_in_bytes", f"{PODS}/memory.current"):
            if (path := self.root / file).exists():
                return int(path.read_text())
        return 0

    def _cpu_seconds(self) -> float:
        version_1 = self.root / "cpuacct" / PODS / "cpuacct.usage"
        if version_1.exists():
            return int(version_1.read_text()) / 1e9
        version_2 = self.root / PODS / "cpu.stat"
        if version_2.exists():
            return int(version_2.read_text().split()[1]) / 1e6  # usage_usec comes first
        return 0.0


def exposition(host: str, gpus: int, utilization: float, memory_bytes: int) -> str:
    """Return the metrics in Prometheus' text format.

    A machine's GPUs have the same utilization and equal shares of the memory in use.

    Args:
        host: name of the machine.
        gpus: number of its GPUs.
        utilization: percentage of the CPUs that pods use.
        memory_bytes: memory in use by pods, in bytes.
    """
    share = utilization / 100
    values = {
        "DCGM_FI_DEV_GPU_UTIL": f"{utilization:.0f}",
        "DCGM_FI_DEV_FB_USED": f"{memory_bytes // MEBIBYTE // max(gpus, 1)}",
        "DCGM_FI_DEV_GPU_TEMP": f"{IDLE_CELSIUS + share * (BUSY_CELSIUS - IDLE_CELSIUS):.0f}",
        "DCGM_FI_DEV_POWER_USAGE": f"{IDLE_WATTS + share * (BUSY_WATTS - IDLE_WATTS):.3f}",
        "DCGM_FI_DEV_XID_ERRORS": "0",
    }
    lines = []
    for name, value in values.items():
        lines += [f"# HELP {name} {FIELDS[name]}", f"# TYPE {name} gauge"]
        for gpu in range(gpus):
            labels = {
                "gpu": gpu,
                "UUID": f"GPU-{host}-{gpu}",
                "device": f"nvidia{gpu}",
                "modelName": MODEL,
                "Hostname": host,
            }
            label_text = ",".join(f'{label}="{text}"' for label, text in labels.items())
            lines.append(f"{name}{{{label_text}}} {value}")
    return "\n".join(lines) + "\n"
