"""Start of the control plane: etcd, API server, controller manager and scheduler, in the twin's network namespace."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cloudtwin.nodes.control_plane.components import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    SCHEDULER,
    process_in_network,
    running_components,
)
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.linux.processes import Process
from cloudtwin.nodes.network import addressing, links

ETCD_URL = "http://127.0.0.1:2379"  # loopback of the twin's network namespace, which only the control plane uses

# Not needed in a small cluster. Each costs an informer, memory and wake-ups.
UNUSED_CONTROLLERS = (
    "bootstrap-signer-controller", "token-cleaner-controller", "podcertificaterequest-cleaner-controller",
    "node-ipam-controller", "ttl-controller", "persistentvolume-expander-controller",
    "resourceclaim-controller", "device-taint-eviction-controller",
    "horizontal-pod-autoscaler-controller", "storageversion-garbage-collector-controller",
    "legacy-serviceaccount-token-cleaner-controller",
)  # fmt: skip


def start_missing(layout: Layout, tools: Mapping[str, Path], cgroups: CgroupHierarchies) -> None:
    """Start each of the four programs that is not running. The network holder must be running."""
    network_holder = process_in_network(layout)
    if network_holder is None:
        raise RuntimeError("the network holder must run before the control plane")
    running = running_components(layout)
    commands = {
        ETCD: _etcd(layout),
        API_SERVER: _api_server(layout),
        CONTROLLER_MANAGER: _controller_manager(layout),
        SCHEDULER: _scheduler(layout),
    }
    enter = ["nsenter", f"--net={links.namespace_of(network_holder.pid)}"]
    for component, arguments in commands.items():
        if not running[component]:
            command = [*enter, str(tools[component]), *arguments]
            start_component(layout, component, command, cgroups)


def start_component(
    layout: Layout, component: str, command: Sequence[str], cgroups: CgroupHierarchies
) -> Process:
    """Start one process of the control plane, in the twin's cgroup."""
    command_in_cgroup = [*cgroups.command_prefix(layout.control_plane_cgroup), *command]
    process = processes.start(command_in_cgroup, layout.log(component))
    process.save(layout.process(component))
    return process


def _etcd(layout: Layout) -> list[str]:
    return [
        f"--data-dir={layout.control_plane / 'etcd-data'}",
        f"--listen-client-urls={ETCD_URL}",
        f"--advertise-client-urls={ETCD_URL}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",  # after a power loss the twin is created again
        "--log-level=warn",
        "--auto-compaction-mode=revision",
        "--auto-compaction-retention=1000",
    ]


def _api_server(layout: Layout) -> list[str]:
    folder = layout.pki
    return [
        f"--etcd-servers={ETCD_URL}",
        f"--bind-address={addressing.CONTROL_PLANE}",
        f"--advertise-address={addressing.CONTROL_PLANE}",
        f"--secure-port={addressing.API_PORT}",
        f"--tls-cert-file={folder / 'apiserver.crt'}",
        f"--tls-private-key-file={folder / 'apiserver.key'}",
        f"--client-ca-file={folder / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",  # others, such as PodSecurity, are on by default
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={folder / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        f"--service-cluster-ip-range={addressing.SERVICES_NETWORK}",
        f"--kubelet-client-certificate={folder / 'kubelet-client.crt'}",
        f"--kubelet-client-key={folder / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={folder / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged",
        # Evict the pods of a lost node after five seconds; a cloud's default is five minutes.
        "--default-unreachable-toleration-seconds=5",
        "--default-not-ready-toleration-seconds=5",
        "--enable-aggregator-routing",  # reach webhooks at their pods: there is no kube-proxy here
        "--event-ttl=1h",
        "--profiling=false",
    ]


def _controller_manager(layout: Layout) -> list[str]:
    kubeconfig = layout.pki / f"{CONTROLLER_MANAGER}.kubeconfig"
    disabled_controllers = ",".join(f"-{name}" for name in UNUSED_CONTROLLERS)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={layout.pki / 'service-accounts.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={layout.pki / 'ca.crt'}",  # issues the kubelets' certificates
        f"--cluster-signing-key-file={layout.pki / 'ca.key'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=8s",
        f"--controllers=*,{disabled_controllers}",
        "--bind-address=127.0.0.1",
        "--profiling=false",
    ]


def _scheduler(layout: Layout) -> list[str]:
    kubeconfig = layout.pki / f"{SCHEDULER}.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--profiling=false",
    ]
