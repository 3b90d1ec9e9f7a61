"""Certificates and kubeconfigs of the control plane and of the programs that use it."""

import shutil
from ipaddress import IPv4Address
from pathlib import Path

from cloudtwin import files
from cloudtwin.nodes.control_plane import pki
from cloudtwin.nodes.control_plane.components import CONTROLLER_MANAGER, SCHEDULER
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.network import addressing


def write(layout: Layout) -> None:
    """Create the CA and all certificates of the control plane, once."""
    marker = layout.pki / "complete"
    if marker.exists():
        return
    shutil.rmtree(layout.pki, ignore_errors=True)
    layout.pki.mkdir(parents=True, mode=0o700)
    ca = pki.new_ca(f"{layout.identity}-ca")
    ca.save(layout.pki, "ca")
    signing_key = pki.new_key()
    files.write(layout.pki / "service-accounts.key", signing_key, files.PRIVATE)
    files.write(layout.pki / "service-accounts.pub", pki.public_key_of(signing_key))
    services = ["kubernetes", "default", "svc", "cluster", "local"]
    names = ["localhost", *(".".join(services[:length]) for length in (1, 2, 3, 5))]
    addresses = [
        addressing.KUBERNETES_SERVICE, addressing.CONTROL_PLANE, IPv4Address("127.0.0.1"),
    ]  # fmt: skip
    for name, pair in {
        "apiserver": pki.issue(ca, "kube-apiserver", names=names, addresses=addresses),
        "kubelet-client": pki.issue(ca, "kube-apiserver-kubelet-client", pki.MASTERS),
        "admin": pki.issue(ca, "cloudtwin-admin", pki.MASTERS),
        CONTROLLER_MANAGER: pki.issue(ca, f"system:{CONTROLLER_MANAGER}"),
        SCHEDULER: pki.issue(ca, f"system:{SCHEDULER}"),
        "kube-proxy": pki.issue(ca, "system:kube-proxy"),
    }.items():
        pair.save(layout.pki, name)
    for name in (CONTROLLER_MANAGER, SCHEDULER, "kube-proxy"):
        write_kubeconfig(layout, layout.pki / f"{name}.kubeconfig", load(layout, name))
    files.write(marker, "")


def load(layout: Layout, name: str) -> pki.KeyPair:
    """Return a key pair of the control plane."""
    contents = [(layout.pki / f"{name}.{suffix}").read_bytes() for suffix in ("crt", "key")]
    return pki.KeyPair(*contents)


def write_kubeconfig(
    layout: Layout, path: Path, client: pki.KeyPair, server: str = addressing.API_SERVER
) -> None:
    """Write the kubeconfig of a client of this cluster."""
    ca = (layout.pki / "ca.crt").read_bytes()
    name = f"cloudtwin-{layout.name}"
    files.write(path, pki.kubeconfig(server, ca, client, name), files.PRIVATE)
