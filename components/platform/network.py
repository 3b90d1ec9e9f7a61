"""Network policies: default deny plus allow rules.

Policies are additive: one denies all traffic of all pods of a namespace, and each further policy allows one
connection. Pods on the host network (the spot watcher, the EFA plugin) and the kubelet with its probes and
mounts are not subject to them. Only these pods can therefore reach the metadata service, which no policy allows, and
no pod needs a rule for the storage.

The API server is not a pod and its address depends on the cloud, so only its port can be
restricted. The rules for it name no addresses at all: Cilium does not apply a range of addresses to the nodes of the
cluster, on which the API server of kubeadm or kind runs (cilium #20550, cert-manager #8285). The metadata service of
both clouds uses another port, 80.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import meta, networking

from components.component import Component
from components.platform import elastic_controller, etcd, etcd_access
from components.platform.observability import NAME as EXPORTER
from components.platform.pods import (
    DATA_PREPARATION,
    MAX_PROCESSES_PER_POD,
    WORKER,
    labels,
)
from everstep.catalog.names import (
    CONTROLLER_METRICS_PORT,
    ETCD_CLIENT_PORT,
    ETCD_PEER_PORT,
    GPU_METRICS_PORT,
    WORKER_METRICS_PORT,
)

METADATA_SERVICE = "169.254.169.254/32"  # the address in both clouds
POD_IDENTITY_AGENT = "169.254.170.23/32"
"""Address, on each node, of the agent from which pods of EKS get the credentials of their role."""

POD_IDENTITY_PORT = 80
HTTPS_PORT = 443
API_PORTS = (443, 6443)  # 443 in the clouds; 6443 with kubeadm, kind and the twin
DNS_PORT = 53
ALL_PODS: dict[str, str] = {}
CONTROLLER = elastic_controller.LABELS

UNUSED_UPSTREAM = ("controller-to-etcd", "controller-to-worker-metrics")
"""Rules that the upstream controller does not need."""

Peer = networking.v1.NetworkPolicyPeerArgs
Port = networking.v1.NetworkPolicyPortArgs


@dataclass(frozen=True, kw_only=True)
class AllowRule:
    """A connection that is allowed at one of its ends; the other end needs a rule too.

    Attributes:
        name: name of the policy.
        pods: labels of the pods to which it applies; empty: all pods of the namespace.
        egress: True for connections from these pods, False for connections to them.
        peers: pods or addresses at the other end; empty: any.
        ports: ports of the destination; empty: all.
    """

    name: str
    pods: Mapping[str, str]
    egress: bool
    peers: Sequence[Peer] = ()
    ports: Sequence[Port] = ()

    def spec(self) -> networking.v1.NetworkPolicySpecArgs:
        """Return the spec of the policy."""
        selector = _selector(self.pods)
        peers, ports = list(self.peers) or None, list(self.ports) or None
        if self.egress:
            rule = networking.v1.NetworkPolicyEgressRuleArgs(to=peers, ports=ports)
            return networking.v1.NetworkPolicySpecArgs(
                pod_selector=selector, policy_types=["Egress"], egress=[rule]
            )
        ingress = networking.v1.NetworkPolicyIngressRuleArgs(from_=peers, ports=ports)
        return networking.v1.NetworkPolicySpecArgs(
            pod_selector=selector, policy_types=["Ingress"], ingress=[ingress]
        )


@dataclass(frozen=True, kw_only=True)
class NetworkPoliciesArgs:
    """Arguments of NetworkPolicies.

    Attributes:
        namespace: namespace of the policies.
        rules: connections to allow.
    """

    namespace: pulumi.Input[str]
    rules: Sequence[AllowRule]


class NetworkPolicies(Component):
    """Default deny for a namespace, plus allow rules."""

    def __init__(
        self, name: str, args: NetworkPoliciesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:NetworkPolicies", name, opts)
        deny = networking.v1.NetworkPolicySpecArgs(
            pod_selector=_selector(ALL_PODS), policy_types=["Ingress", "Egress"]
        )
        self._declare("default-deny", args.namespace, deny)
        for rule in args.rules:
            self._declare(rule.name, args.namespace, rule.spec())
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


def job_rules(
    *,
    with_controller: bool = True,
    with_etcd_users: bool = False,
    with_staging: bool = False,
    store_readers: Mapping[str, str] | None = None,
    with_pod_identity_agent: bool = True,
    proxy_port: int | None = None,
) -> list[AllowRule]:
    """Return the rules of the job's namespace.

    Args:
        with_controller: whether the controller runs there rather than in the system namespace.
        with_etcd_users: whether a Job creates the credentials of etcd.
        with_staging: whether a Job copies a data set and exports its progress.
        store_readers: labels of the pods that read an object store; None if none does.
        with_pod_identity_agent: whether these pods may get credentials from the Pod Identity agent.
        proxy_port: port of the proxy of these pods; None without one.
    """
    rules = [
        *_job_rules(),
        *([_credentials_rule()] if with_etcd_users else []),
        *([_staging_rule()] if with_staging else []),
        *([store_rule(store_readers, proxy_port)] if store_readers else []),
        *([_agent_rule(store_readers)] if store_readers and with_pod_identity_agent else []),
    ]
    return rules if with_controller else [rule for rule in rules if rule.pods != CONTROLLER]


def _credentials_rule() -> AllowRule:
    """Return the rule of the Job that writes the credentials of etcd into Secrets."""
    return AllowRule(
        name="etcd-credentials-to-api-server",
        pods=etcd_access.LABELS,
        egress=True,
        ports=[_tcp(port) for port in API_PORTS],
    )


def _staging_rule() -> AllowRule:
    """Return the rule for the metrics of the data-preparation Job."""
    return AllowRule(
        name="data-metrics",
        pods=DATA_PREPARATION,
        egress=False,
        peers=[_any_pod()],
        ports=[_tcp(WORKER_METRICS_PORT)],
    )


def store_rule(
    pods: Mapping[str, str], proxy_port: int | None = None, *, name: str = "data-to-source"
) -> AllowRule:
    """Return the rule of pods that read a store, which has no fixed address."""
    ports = dict.fromkeys([HTTPS_PORT, *([proxy_port] if proxy_port else [])])
    return AllowRule(
        name=name,
        pods=pods,
        egress=True,
        peers=[_all_but_metadata_service()],
        ports=[_tcp(port) for port in ports],
    )


def _agent_rule(pods: Mapping[str, str]) -> AllowRule:
    """Return the rule of pods that get credentials from the Pod Identity agent."""
    agent = Peer(ip_block=networking.v1.IPBlockArgs(cidr=POD_IDENTITY_AGENT))
    return AllowRule(
        name="data-to-identity-agent",
        pods=pods,
        egress=True,
        peers=[agent],
        ports=[_tcp(POD_IDENTITY_PORT)],
    )


def _job_rules() -> list[AllowRule]:
    return [*_etcd_rules(), *_worker_rules(), *_controller_rules(), *_dns_rules()]


def _etcd_rules() -> list[AllowRule]:
    """Return the rules of etcd: between its members, and from its clients."""
    members = [_pods(etcd.LABELS)]
    client = [_tcp(ETCD_CLIENT_PORT)]
    between_members = [_tcp(ETCD_CLIENT_PORT), _tcp(ETCD_PEER_PORT)]
    clients = {"workers": WORKER, "controller": CONTROLLER}
    return [
        AllowRule(
            name="etcd-from-clients",
            pods=etcd.LABELS,
            egress=False,
            peers=[_pods(pods) for pods in clients.values()],
            ports=client,
        ),
        AllowRule(
            name="etcd-from-members",
            pods=etcd.LABELS,
            egress=False,
            peers=members,
            ports=between_members,
        ),
        AllowRule(
            name="etcd-to-members",
            pods=etcd.LABELS,
            egress=True,
            peers=members,
            ports=between_members,
        ),
        *(
            AllowRule(name=f"{name}-to-etcd", pods=pods, egress=True, peers=members, ports=client)
            for name, pods in clients.items()
        ),
    ]


def _worker_rules() -> list[AllowRule]:
    """Return the rules of workers: among them, all ports are allowed; other pods may only read their metrics.

    Each process group chooses its own ports.
    """
    peers = [_pods(WORKER)]
    metrics = Port(
        protocol="TCP",
        port=WORKER_METRICS_PORT,
        end_port=WORKER_METRICS_PORT + MAX_PROCESSES_PER_POD - 1,
    )
    return [
        AllowRule(name="workers-from-workers", pods=WORKER, egress=False, peers=peers),
        AllowRule(name="workers-to-workers", pods=WORKER, egress=True, peers=peers),
        AllowRule(
            name="worker-metrics", pods=WORKER, egress=False, peers=[_any_pod()], ports=[metrics]
        ),
    ]


def _controller_rules() -> list[AllowRule]:
    return [
        AllowRule(
            name="controller-to-api-server",
            pods=CONTROLLER,
            egress=True,
            ports=[_tcp(port) for port in API_PORTS],
        ),
        AllowRule(
            name="controller-metrics",
            pods=CONTROLLER,
            egress=False,
            peers=[_any_pod()],
            ports=[_tcp(CONTROLLER_METRICS_PORT)],
        ),
        AllowRule(
            name="controller-to-worker-metrics",
            pods=CONTROLLER,
            egress=True,
            peers=[_pods(WORKER)],
            ports=[_tcp(WORKER_METRICS_PORT)],
        ),
    ]


def _dns_rules() -> list[AllowRule]:
    clients = {
        "workers": WORKER,
        "controller": CONTROLLER,
        "etcd": etcd.LABELS,
        "data": DATA_PREPARATION,
    }
    return [
        AllowRule(name=f"{name}-to-dns", pods=pods, egress=True, peers=[_dns()], ports=_dns_ports())
        for name, pods in clients.items()
    ]


def system_rules(*, with_controller: bool = False) -> list[AllowRule]:
    """Return the rules of the system namespace; the only ingress is to ports of metrics.

    Args:
        with_controller: whether the controller of the jobs runs there.
    """
    controller = [rule for rule in _job_rules() if rule.pods == CONTROLLER]
    return [
        *(rule for rule in controller if with_controller and rule.name not in UNUSED_UPSTREAM),
        AllowRule(
            name="gpu-metrics",
            pods=labels(EXPORTER),
            egress=False,
            peers=[_any_pod()],
            ports=[_tcp(GPU_METRICS_PORT)],
        ),
    ]


def _selector(match: Mapping[str, str]) -> meta.v1.LabelSelectorArgs:
    return meta.v1.LabelSelectorArgs(match_labels=dict(match) or None)


def _pods(match: Mapping[str, str]) -> Peer:
    """Return the pods of the same namespace with these labels."""
    return Peer(pod_selector=_selector(match))


def _any_pod() -> Peer:
    """Return all pods of the cluster, since Prometheus may run in any namespace."""
    return Peer(namespace_selector=_selector(ALL_PODS))


def _dns() -> Peer:
    """Return the DNS of the cluster by its labels, which are the same in both clouds and with kubeadm."""
    return Peer(
        namespace_selector=_selector({"kubernetes.io/metadata.name": "kube-system"}),
        pod_selector=_selector({"k8s-app": "kube-dns"}),
    )


def _dns_ports() -> list[Port]:
    return [Port(protocol="UDP", port=DNS_PORT), _tcp(DNS_PORT)]


def _all_but_metadata_service() -> Peer:
    block = networking.v1.IPBlockArgs(cidr="0.0.0.0/0", except_=[METADATA_SERVICE])
    return Peer(ip_block=block)


def _tcp(port: int) -> Port:
    return Port(protocol="TCP", port=port)
