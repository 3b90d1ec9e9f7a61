"""The control plane: etcd, API server, controller manager and scheduler, as processes beside the switch."""

import shutil
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from twin.nodes import addressing, files, network, pki, processes
from twin.nodes.cgroups import Tree
from twin.nodes.components import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    SCHEDULER,
    holder,
    running,
)
from twin.nodes.layout import Layout
from twin.nodes.processes import Process

ETCD_URL = "http://127.0.0.1:2379"  # the loopback of the twin's namespace: nobody else is there

# The Go runtime keeps less garbage: a quarter less memory for a few per cent of processor time.
GO_ENVIRONMENT = {"GOGC": "50"}
# What a twin of some machines has no use for. Each costs an informer, memory and wake-ups.
UNUSED_CONTROLLERS = (
    "bootstrap-signer-controller", "token-cleaner-controller",
    "certificatesigningrequest-approving-controller", "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller", "podcertificaterequest-cleaner-controller",
    "node-ipam-controller", "ttl-controller", "persistentvolume-expander-controller",
    "resourceclaim-controller", "device-taint-eviction-controller",
    "horizontal-pod-autoscaler-controller", "storageversion-garbage-collector-controller",
    "legacy-serviceaccount-token-cleaner-controller",
)  # fmt: skip


def write_certificates(layout: Layout) -> None:
    """Make the authority and everything it signs for the control plane, once."""
    done = layout.pki / "complete"
    if done.exists():
        return
    shutil.rmtree(layout.pki, ignore_errors=True)
    layout.pki.mkdir(parents=True, mode=0o700)
    authority = pki.new_authority(f"{layout.identity}-ca")
    authority.save(layout.pki, "ca")
    signing = pki.new_key()
    files.write(layout.pki / "service-accounts.key", signing, files.PRIVATE)
    files.write(layout.pki / "service-accounts.pub", pki.public_half(signing))
    services = ["kubernetes", "default", "svc", "cluster", "local"]
    names = ["localhost", *(".".join(services[:length]) for length in (1, 2, 3, 5))]
    addresses = [
        addressing.KUBERNETES_SERVICE, addressing.CONTROL_PLANE, IPv4Address("127.0.0.1"),
    ]  # fmt: skip
    for name, pair in {
        "apiserver": pki.issue(authority, "kube-apiserver", names=names, addresses=addresses),
        "kubelet-client": pki.issue(authority, "kube-apiserver-kubelet-client", pki.MASTERS),
        "admin": pki.issue(authority, "everstep-admin", pki.MASTERS),
        CONTROLLER_MANAGER: pki.issue(authority, f"system:{CONTROLLER_MANAGER}"),
        SCHEDULER: pki.issue(authority, f"system:{SCHEDULER}"),
        "kube-proxy": pki.issue(authority, "system:kube-proxy"),
    }.items():
        pair.save(layout.pki, name)
    for name in (CONTROLLER_MANAGER, SCHEDULER, "kube-proxy"):
        write_kubeconfig(layout, layout.pki / f"{name}.kubeconfig", load_pair(layout, name))
    files.write(done, "")


def load_pair(layout: Layout, name: str) -> pki.Pair:
    """Return a pair of the control plane's folder."""
    read = [(layout.pki / f"{name}.{ending}").read_bytes() for ending in ("crt", "key")]
    return pki.Pair(*read)


def write_kubeconfig(
    layout: Layout, path: Path, client: pki.Pair, server: str = addressing.API_SERVER
) -> None:
    """Write the kubeconfig of a client of this cluster."""
    authority = (layout.pki / "ca.crt").read_bytes()
    name = f"everstep-{layout.name}"
    files.write(path, pki.kubeconfig(server, authority, client, name), files.PRIVATE)


def start_missing(layout: Layout, tools: Mapping[str, Path], tree: Tree) -> None:
    """Start what of the four programs does not run; the keeper must."""
    beside = holder(layout)
    if beside is None:
        raise RuntimeError("the keeper must run before the control plane")
    alive = running(layout)
    commands = {
        ETCD: _etcd(layout),
        API_SERVER: _api_server(layout),
        CONTROLLER_MANAGER: _controller_manager(layout),
        SCHEDULER: _scheduler(layout),
    }
    inside = ["nsenter", f"--net={network.namespace_of(beside.pid)}"]
    for component, arguments in commands.items():
        if not alive[component]:
            command = [*inside, str(tools[component]), *arguments]
            start_component(layout, component, command, tree)


def start_component(layout: Layout, component: str, command: Sequence[str], tree: Tree) -> Process:
    """Start one process of the control plane, in the twin's cgroup."""
    enclosed = [*tree.enclosing(layout.control_plane_cgroup), *command]
    process = processes.start(enclosed, layout.log(component), GO_ENVIRONMENT)
    process.save(layout.process(component))
    return process


def _etcd(layout: Layout) -> list[str]:
    return [
        f"--data-dir={layout.control_plane / 'etcd-data'}",
        f"--listen-client-urls={ETCD_URL}",
        f"--advertise-client-urls={ETCD_URL}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",  # a twin whose machine loses power is built anew
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
        "--enable-admission-plugins=NodeRestriction",  # PodSecurity and its kind are on by default
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={folder / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        f"--service-cluster-ip-range={addressing.SERVICES_NETWORK}",
        f"--kubelet-client-certificate={folder / 'kubelet-client.crt'}",
        f"--kubelet-client-key={folder / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={folder / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged",
        # Pods of a lost node are given up after seconds, where a cloud's default is five minutes.
        "--default-unreachable-toleration-seconds=5",
        "--default-not-ready-toleration-seconds=5",
        "--enable-aggregator-routing",  # webhooks are reached at pods: no kube-proxy stands beside us
        "--event-ttl=1h",
        "--profiling=false",
    ]


def _controller_manager(layout: Layout) -> list[str]:
    kubeconfig = layout.pki / f"{CONTROLLER_MANAGER}.kubeconfig"
    off = ",".join(f"-{name}" for name in UNUSED_CONTROLLERS)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={layout.pki / 'service-accounts.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=8s",
        f"--controllers=*,{off}",
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
