"""Configuration files of a machine, for containerd, CNI, kubelet and the agent, as pure functions of its spec."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from cloudtwin.nodes.metadata import instance
from cloudtwin.nodes.model import MachineSpec, Role
from cloudtwin.nodes.network import addressing
from cloudtwin.nodes.network.addressing import Address

CONFIG_FOLDER = Path("/cloudtwin")  # mount point of the configuration in a machine
ACCOUNT = CONFIG_FOLDER / "cloud"  # mount point of the account's contents in a cloud machine
CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
PAUSE_IMAGE = "localhost/cloudtwin/pause:local"
CREDENTIAL_PROVIDERS = {
    "aws": ("ecr-credential-provider", "*.dkr.ecr.*.amazonaws.com"),
    "azure": ("acr-credential-provider", "*.azurecr.io"),
}
"""Cloud -> program that fetches credentials of its registry, and pattern of the images that need them."""

# containerd 1.6 ignores the file without a `host` table.
REGISTRY_HOSTS = f"""\
server = "{addressing.REGISTRY}"
[host."{addressing.REGISTRY}"]
  capabilities = ["pull", "resolve"]
"""
PROVIDER_CONFIG, PROVIDER_FOLDER = "credential-provider.yaml", "credential-providers"
CREDENTIALS = "registry-credentials.json"
# Allocatable memory of a machine. Every kubelet detects the host's whole memory, so each must reserve most of it.
MEBIBYTE = 1 << 20
MEMORY_BYTES = {Role.SYSTEM: 3 << 30, Role.GPU: 5 << 30}
EVICTION_BYTES = 100 << 20  # kept free by the kubelet, in addition to the reserved memory


@dataclass(frozen=True)
class Host:
    """Properties of the host in a machine's configuration.

    Attributes:
        memory_bytes: its total memory, which the kubelet observes.
        usable_bytes: the part that a twin may use, because of the limit of a container.
        cni: the folder with the CNI plugins.
    """

    memory_bytes: int
    usable_bytes: int
    cni: Path


def files_of(spec: MachineSpec, address: Address, host: Host, shared_mount: Path) -> dict[str, str]:
    """Return the machine's configuration files by their names in its configuration folder."""
    facts = instance.facts(spec, str(address.ip)) | {"shared_mount": str(shared_mount)}
    cloud = {"instance.json": json.dumps(facts, indent=1)}
    return {
        "containerd.toml": containerd(host.cni),
        "cni/10-pods.conflist": json.dumps(cni(address), indent=1),
        "kubelet.yaml": yaml.safe_dump(kubelet(spec, address, host), sort_keys=False),
        "resolv.conf": f"nameserver {addressing.DNS_SERVICE}\n",
        # The twin's registry serves the images of all registry hosts; containerd adds the host to each request.
        "registries/_default/hosts.toml": REGISTRY_HOSTS,
        **(cloud | credential_provider(spec.cloud) if spec.cloud else {}),
    }


def credential_provider(cloud: str) -> dict[str, str]:
    """Return the files of the kubelet's credential provider, which returns the node's credentials for its registries.

    The program prints a file of the account. The file contains only registries from which the nodes may pull.
    """
    name, images = CREDENTIAL_PROVIDERS[cloud]
    api, kind = "credentialprovider.kubelet.k8s.io/v1", "CredentialProviderConfig"
    provider = {
        "name": name,
        "matchImages": [images],
        "defaultCacheDuration": "0s",
        "apiVersion": api,
    }
    config = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": kind, "providers": [provider]}
    return {
        PROVIDER_CONFIG: yaml.safe_dump(config, sort_keys=False),
        f"{PROVIDER_FOLDER}/{name}": f"#!/bin/sh\nexec cat {ACCOUNT / CREDENTIALS}\n",
    }


def containerd(cni_folder: Path) -> str:
    """Return containerd's configuration, with unused snapshotters and tracing disabled."""
    disabled_plugins = (
        "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
        "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
        "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
    )  # fmt: skip
    # oom_score and restrict_oom_score_adj: lowering a score needs CAP_SYS_RESOURCE, which a host that is
    # itself a container may not have.
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = {json.dumps(disabled_plugins)}
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{CONFIG_FOLDER / "registries"}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_folder}"
    conf_dir = "{CONFIG_FOLDER / "cni"}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
"""


def cni(address: Address) -> dict[str, object]:
    """Return the pod network of a machine: a bridge; routes lead to the pods of other machines."""
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
        "mtu": addressing.MTU,
        "ipam": addresses,
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, portmap]}


def kubelet(spec: MachineSpec, address: Address, host: Host) -> dict[str, object]:
    """Return the kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(CONFIG_FOLDER / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "address": str(address.ip),
        # The certificate in the kubeconfig is for the first request only, as after a bootstrap in a cloud.
        "rotateCertificates": True,
        "tlsCertFile": str(CONFIG_FOLDER / "kubelet.crt"),
        "tlsPrivateKeyFile": str(CONFIG_FOLDER / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "enforceNodeAllocatable": ["pods"],
        # Memory is divided among machines. CPUs are overcommitted on purpose: each machine offers all
        # the host's CPUs, so that several workers with two CPUs each fit on a small host.
        "kubeReserved": {"memory": f"{_reserved_bytes(spec.role, host) // MEBIBYTE}Mi"},
        "evictionHard": {
            "memory.available": f"{EVICTION_BYTES // MEBIBYTE}Mi",
            "nodefs.available": "200Mi",
            "imagefs.available": "200Mi",
        },
        "podPidsLimit": 4096,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # The kubelet would set sysctls of the whole host. Private files with its values are mounted over them.
        "protectKernelDefaults": True,
        "resolvConf": str(CONFIG_FOLDER / "resolv.conf"),
        "clusterDNS": [str(addressing.DNS_SERVICE)],
        "clusterDomain": "cluster.local",
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "1m",
        "nodeLeaseDurationSeconds": 8,  # renewed every 2 s; the controller manager waits 8
        "imageGCHighThresholdPercent": 100,  # never: a removed image could not be pulled again
        "volumeStatsAggPeriod": "-1s",
        "registerWithTaints": [asdict(taint) for taint in spec.taints],
        "providerID": instance.provider_id(spec),
        "logging": {"verbosity": 1},
    }


def labels(spec: MachineSpec) -> dict[str, str]:
    """Return the labels that the kubelet registers with."""
    cloud_labels = {
        "node.kubernetes.io/instance-type": spec.instance_type,
        "topology.kubernetes.io/zone": spec.zone,
        "topology.kubernetes.io/region": spec.region,
    }
    return {**spec.labels, **{label: value for label, value in cloud_labels.items() if value}}


def offered_bytes(role: Role, usable_bytes: int) -> int:
    """Return the bytes of memory that a machine offers to pods, given the bytes that a twin may use."""
    return min(MEMORY_BYTES[role], usable_bytes // 2)


def _reserved_bytes(role: Role, host: Host) -> int:
    """Return the bytes of the host's memory that are not for pods of this machine."""
    return host.memory_bytes - EVICTION_BYTES - offered_bytes(role, host.usable_bytes)
