"""What a machine boots with: its own files for containerd, CNI, kubelet and kube-proxy. Pure: text from facts."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from twin.nodes import addressing, instance
from twin.nodes.addressing import Address
from twin.nodes.model import MachineSpec, Role, Taint

INSIDE = Path("/everstep")  # where a machine sees its configuration
ACCOUNT = INSIDE / "cloud"  # where a machine of a cloud sees what the cloud's account holds
SHARED = Path("/mnt/everstep")  # where a machine sees the folder all of them share
CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
PAUSE_IMAGE = "localhost/everstep/pause:local"
GPU = "nvidia.com/gpu"
POOL_LABEL = "everstep/pool"
POOLS = {Role.SYSTEM: "system", Role.GPU: "gpu-spot"}
SPOT_TAINT = Taint("everstep/spot", "true")
# What pods may ask for on one machine. The kubelets all see the same host, so each must leave out most of it.
MEBIBYTE = 1 << 20
MEMORY_BYTES = {Role.SYSTEM: 3 << 30, Role.GPU: 5 << 30}
EVICTION_BYTES = 100 << 20  # kept free by the kubelet, on top of what is reserved


@dataclass(frozen=True)
class Host:
    """What of the host shows in a machine's configuration.

    Attributes:
        memory_bytes: all its memory.
        cni: the folder with the CNI plugins.
    """

    memory_bytes: int
    cni: Path


def files_of(spec: MachineSpec, address: Address, host: Host) -> dict[str, str]:
    """Return the machine's configuration files by their names in its configuration folder."""
    cloud = {"instance.json": json.dumps(instance.facts(spec, str(address.ip)), indent=1)}
    return {
        "containerd.toml": containerd(host.cni),
        "cni/10-pods.conflist": json.dumps(cni(address), indent=1),
        "kubelet.yaml": yaml.safe_dump(kubelet(spec, address, host.memory_bytes), sort_keys=False),
        "resolv.conf": f"nameserver {addressing.DNS_SERVICE}\n",
        **(cloud if spec.cloud else {}),
    }


def containerd(cni_folder: Path) -> str:
    """Return containerd's configuration: no snapshotter but overlayfs, nothing that must be root on the host."""
    unused = (
        "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
        "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
        "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
    )  # fmt: skip
    # oom_score and restrict_oom_score_adj: lowering a score takes CAP_SYS_RESOURCE, which a host that is
    # itself a container may not have.
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = {json.dumps(unused)}
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_folder}"
    conf_dir = "{INSIDE / "cni"}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
"""


def cni(address: Address) -> dict[str, object]:
    """Return the pod network of a machine: a bridge of its own; other machines' pods are a route away."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": str(address.pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": addresses,
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, portmap]}


def kubelet(spec: MachineSpec, address: Address, memory_bytes: int) -> dict[str, object]:
    """Return the kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(INSIDE / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "address": str(address.ip),
        "tlsCertFile": str(INSIDE / "kubelet.crt"),
        "tlsPrivateKeyFile": str(INSIDE / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "enforceNodeAllocatable": ["pods"],
        # Memory is shared out; processors are not: each machine offers all of the host's, overcommitted on
        # purpose, since three workers with two processors each are what a stack asks for.
        "kubeReserved": {"memory": f"{_reserved_bytes(spec.role, memory_bytes) // MEBIBYTE}Mi"},
        "evictionHard": {
            "memory.available": f"{EVICTION_BYTES // MEBIBYTE}Mi",
            "nodefs.available": "200Mi",
            "imagefs.available": "200Mi",
        },
        "podPidsLimit": 4096,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # The sysctls that the kubelet would set for the whole host are private files here, set right.
        "protectKernelDefaults": True,
        "resolvConf": str(INSIDE / "resolv.conf"),
        "clusterDNS": [str(addressing.DNS_SERVICE)],
        "clusterDomain": "cluster.local",
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "1m",
        "nodeLeaseDurationSeconds": 8,  # renewed every 2 s; the controller manager waits 8
        "imageGCHighThresholdPercent": 100,  # never: an image that was removed could not be pulled again
        "volumeStatsAggPeriod": "-1s",
        "registerWithTaints": [asdict(taint) for taint in taints(spec)],
        "providerID": instance.provider_id(spec),
        "logging": {"verbosity": 1},
    }


def labels(spec: MachineSpec) -> dict[str, str]:
    """Return the labels a kubelet registers with."""
    if not spec.cloud:
        return {POOL_LABEL: POOLS[spec.role]}
    known = {
        "node.kubernetes.io/instance-type": spec.instance_type,
        "topology.kubernetes.io/zone": spec.zone,
        "topology.kubernetes.io/region": spec.region,
    }
    return {**spec.labels, **{label: value for label, value in known.items() if value}}


def taints(spec: MachineSpec) -> tuple[Taint, ...]:
    """Return the taints a kubelet registers with."""
    if spec.cloud:
        return spec.taints
    return (SPOT_TAINT,) if spec.role is Role.GPU else ()


def offered_bytes(role: Role, memory_bytes: int) -> int:
    """Return how much memory a machine has for pods, of so much that the host has."""
    return min(MEMORY_BYTES[role], memory_bytes // 2)


def _reserved_bytes(role: Role, memory_bytes: int) -> int:
    """Return how much of the host's memory pods of this machine may not have."""
    return memory_bytes - EVICTION_BYTES - offered_bytes(role, memory_bytes)
