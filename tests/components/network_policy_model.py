"""Evaluation of NetworkPolicies: which endpoints may connect to which.

The twin's network enforces no policies, so tests use this pure model instead. It follows the
definition of networking.k8s.io/v1. Of the behavior that the definition leaves to the network
plugin, it assumes only this: a pod with host networking is not subject to policies, and no selector
matches it.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NAME_LABEL = "kubernetes.io/metadata.name"  # set on each namespace by the API server


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One endpoint of a connection: a pod, or an address outside the cluster.

    Attributes:
        namespace: namespace of the pod; empty for an address outside the cluster.
        address: IPv4 address.
        host_network: whether the pod uses host networking.
    """

    name: str
    address: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    host_network: bool = False

    @property
    def is_selectable(self) -> bool:
        """True if policies and selectors apply to this endpoint."""
        return bool(self.namespace) and not self.host_network


@dataclass(frozen=True, kw_only=True)
class Network:
    """A cluster's policies, and the labels of its namespaces except NAME_LABEL."""

    policies: Sequence[Mapping[str, Any]]
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def allows(self, source: Endpoint, target: Endpoint, port: int, protocol: str = "TCP") -> bool:
        """Return True if `source` can open a connection to `target` on that port."""
        egress = self._allows_direction("Egress", source, target, port, protocol)
        return egress and self._allows_direction("Ingress", target, source, port, protocol)

    def _allows_direction(
        self, direction: str, subject: Endpoint, other: Endpoint, port: int, protocol: str
    ) -> bool:
        """Return True if the policies of `subject` allow traffic in one direction."""
        policies = [
            policy for policy in self.policies if self._applies_to(policy, direction, subject)
        ]
        if not policies:
            return True
        key = direction.lower()
        rules = (rule for policy in policies for rule in policy["spec"].get(key) or ())
        return any(self._matches(rule, key, subject, other, port, protocol) for rule in rules)

    def _applies_to(self, policy: Mapping[str, Any], direction: str, endpoint: Endpoint) -> bool:
        spec = policy["spec"]
        if not endpoint.is_selectable or policy["metadata"]["namespace"] != endpoint.namespace:
            return False
        default_types = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        types = spec.get("policyTypes") or default_types
        return direction in types and selects(spec.get("podSelector") or {}, endpoint.labels)

    def _matches(
        self,
        rule: Mapping[str, Any],
        direction: str,
        subject: Endpoint,
        other: Endpoint,
        port: int,
        protocol: str,
    ) -> bool:
        peers = rule.get("from" if direction == "ingress" else "to") or ()
        ports = rule.get("ports") or ()
        port_matches = not ports or any(
            _is_port(policy_port, port, protocol) for policy_port in ports
        )
        return port_matches and (
            not peers or any(self._is_peer(peer, subject, other) for peer in peers)
        )

    def _is_peer(self, peer: Mapping[str, Any], subject: Endpoint, other: Endpoint) -> bool:
        block = peer.get("ipBlock")
        if block is not None:
            return _is_within(other.address, block["cidr"], block.get("except") or ())
        if not other.is_selectable:
            return False
        namespace_selector = peer.get("namespaceSelector")
        if namespace_selector is None:
            matches = other.namespace == subject.namespace
        else:
            labels = {**self.namespaces.get(other.namespace, {}), NAME_LABEL: other.namespace}
            matches = selects(namespace_selector, labels)
        return matches and selects(peer.get("podSelector") or {}, other.labels)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return True if a label selector matches labels; an empty one matches all."""
    required = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return required.items() <= labels.items() and all(
        _is_satisfied(expression, labels) for expression in expressions
    )


def _is_satisfied(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    return {
        "In": value is not None and value in values,
        "NotIn": value is None or value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]


def _is_port(policy_port: Mapping[str, Any], port: int, protocol: str) -> bool:
    if policy_port.get("protocol", "TCP") != protocol:
        return False
    first = policy_port.get("port")
    if first is None:
        return True
    if not isinstance(first, int):
        raise ValueError(f"named port {first!r} is not supported: the container is unknown")
    return first <= port <= int(policy_port.get("endPort", first))


def _is_within(address: str, block: str, exceptions: Iterable[str]) -> bool:
    ip_address = ipaddress.ip_address(address)
    return ip_address in ipaddress.ip_network(block) and not any(
        ip_address in ipaddress.ip_network(excluded_block) for excluded_block in exceptions
    )
