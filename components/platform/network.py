"""Who may speak to whom: nobody, but for the lines drawn here.

Policies add up: one denies everything to every pod of a namespace, and each further one opens one
line. What stands in the node's own network (the watcher of spot nodes, the kubelet with its probes
and mounts) is not subject to them; that is why the metadata service, which no policy opens, is the
watcher's alone, and why no pod needs a way to the storage.

The API server is no pod and its address is the cloud's affair, so that only its port can be named;
of the addresses behind it, the metadata service is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import meta, networking

from components.part import Part
from components.platform import elastic_controller, etcd
from components.platform.observability import NAME as EXPORTER
from components.platform.observability import PORT as EXPORTER_PORT
from components.platform.pods import (
    DATA_PREPARATION,
    MOST_WORKERS,
    WORKER,
    WORKER_METRICS_PORT,
    labels,
)

METADATA_SERVICE = "169.254.169.254/32"  # in both clouds
API_PORTS = (443, 6443)  # the clouds'; kubeadm's, kind's and the twin's
DNS_PORT = 53
EVERYWHERE: dict[str, str] = {}

Peer = networking.v1.NetworkPolicyPeerArgs
Port = networking.v1.NetworkPolicyPortArgs


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line that is opened, written down at both of its ends.

    Attributes:
        name: of the policy.
        pods: labels of the pods that it is about; none: all of the namespace.
        out: whether they may begin a conversation; else they may be spoken to.
        peers: the other end; none: anybody.
        ports: of whoever is spoken to; none: all.
    """

    name: str
    pods: Mapping[str, str]
    out: bool
    peers: Sequence[Peer] = ()
    ports: Sequence[Port] = ()

    def spec(self) -> networking.v1.NetworkPolicySpecArgs:
        """Give the policy's spec."""
        selector = _selector(self.pods)
        peers, ports = list(self.peers) or None, list(self.ports) or None
        if self.out:
            rule = networking.v1.NetworkPolicyEgressRuleArgs(to=peers, ports=ports)
            return networking.v1.NetworkPolicySpecArgs(
                pod_selector=selector, policy_types=["Egress"], egress=[rule]
            )
        came = networking.v1.NetworkPolicyIngressRuleArgs(from_=peers, ports=ports)
        return networking.v1.NetworkPolicySpecArgs(
            pod_selector=selector, policy_types=["Ingress"], ingress=[came]
        )


@dataclass(frozen=True, kw_only=True)
class NetworkPoliciesArgs:
    """What to open in which namespace."""

    namespace: pulumi.Input[str]
    lines: Sequence[Line]


class NetworkPolicies(Part):
    """Silence in a namespace, and the lines that break it."""

    def __init__(
        self, name: str, args: NetworkPoliciesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:NetworkPolicies", name, opts)
        silence = networking.v1.NetworkPolicySpecArgs(
            pod_selector=_selector(EVERYWHERE), policy_types=["Ingress", "Egress"]
        )
        self._declare("default-deny", args.namespace, silence)
        for line in args.lines:
            self._declare(line.name, args.namespace, line.spec())
        self.register_outputs({})

    def _declare(
        self,
        policy: str,
        namespace: pulumi.Input[str],
        spec: networking.v1.NetworkPolicySpecArgs,
    ) -> None:
        networking.v1.NetworkPolicy(
            f"{self.name}-{policy}",
            metadata=meta.v1.ObjectMetaArgs(name=policy, namespace=namespace),
            spec=spec,
            opts=self.child(delete_before_replace=True),
        )


def job_lines() -> list[Line]:
    """Give the lines of the job's namespace."""
    members, workers, controller = etcd.LABELS, WORKER, elastic_controller.LABELS
    client = [_tcp(etcd.CLIENT_PORT)]
    between_members = [_tcp(etcd.CLIENT_PORT), _tcp(etcd.PEER_PORT)]
    return [
        Line(
            name="etcd-from-clients",
            pods=members,
            out=False,
            peers=[_pods(workers), _pods(controller)],
            ports=client,
        ),
        Line(
            name="etcd-from-members",
            pods=members,
            out=False,
            peers=[_pods(members)],
            ports=between_members,
        ),
        Line(
            name="etcd-to-members",
            pods=members,
            out=True,
            peers=[_pods(members)],
            ports=between_members,
        ),
        *(
            Line(name=f"{name}-to-etcd", pods=pods, out=True, peers=[_pods(members)], ports=client)
            for name, pods in (("workers", workers), ("controller", controller))
        ),
        # All ports: each process group listens on ports of its own choosing.
        Line(name="workers-from-workers", pods=workers, out=False, peers=[_pods(workers)]),
        Line(name="workers-to-workers", pods=workers, out=True, peers=[_pods(workers)]),
        Line(
            name="worker-metrics",
            pods=workers,
            out=False,
            peers=[_any_pod()],
            ports=[
                Port(
                    protocol="TCP",
                    port=WORKER_METRICS_PORT,
                    end_port=WORKER_METRICS_PORT + MOST_WORKERS - 1,
                )
            ],
        ),
        Line(
            name="controller-to-api-server",
            pods=controller,
            out=True,
            peers=[_anywhere_but_metadata()],
            ports=[_tcp(port) for port in API_PORTS],
        ),
        Line(
            name="controller-metrics",
            pods=controller,
            out=False,
            peers=[_any_pod()],
            ports=[_tcp(elastic_controller.METRICS_PORT)],
        ),
        *(
            Line(name=f"{name}-to-dns", pods=pods, out=True, peers=[_dns()], ports=_dns_ports())
            for name, pods in (
                ("workers", workers),
                ("controller", controller),
                ("etcd", members),
                ("data", DATA_PREPARATION),
            )
        ),
    ]


def system_lines() -> list[Line]:
    """Give the lines of the namespace of the node services: only metrics can be read there."""
    return [
        Line(
            name="gpu-metrics",
            pods=labels(EXPORTER),
            out=False,
            peers=[_any_pod()],
            ports=[_tcp(EXPORTER_PORT)],
        )
    ]


def _selector(chosen: Mapping[str, str]) -> meta.v1.LabelSelectorArgs:
    return meta.v1.LabelSelectorArgs(match_labels=dict(chosen) or None)


def _pods(chosen: Mapping[str, str]) -> Peer:
    """Give the pods of the same namespace with these labels."""
    return Peer(pod_selector=_selector(chosen))


def _any_pod() -> Peer:
    """Give all pods of the cluster: where its Prometheus runs is the cluster's affair."""
    return Peer(namespace_selector=_selector(EVERYWHERE))


def _dns() -> Peer:
    """Give the cluster's DNS by the labels that all of Kubernetes gives it."""
    return Peer(
        namespace_selector=_selector({"kubernetes.io/metadata.name": "kube-system"}),
        pod_selector=_selector({"k8s-app": "kube-dns"}),
    )


def _dns_ports() -> list[Port]:
    return [Port(protocol="UDP", port=DNS_PORT), _tcp(DNS_PORT)]


def _anywhere_but_metadata() -> Peer:
    block = networking.v1.IPBlockArgs(cidr="0.0.0.0/0", except_=[METADATA_SERVICE])
    return Peer(ip_block=block)


def _tcp(port: int) -> Port:
    return Port(protocol="TCP", port=port)
