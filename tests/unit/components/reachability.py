"""Who can reach whom, by Kubernetes' own rules about NetworkPolicies. Pure.

The twin's network enforces no policies, so this stands in for one that does. It follows the API's
definition (networking.k8s.io/v1) and takes nothing for granted that the definition leaves to the
network plugin, but for one thing on which all agree: a pod in its node's network is not subject to
policies, and no selector finds it.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NAME_LABEL = "kubernetes.io/metadata.name"  # the API server puts it on each namespace


@dataclass(frozen=True, kw_only=True)
class End:
    """One end of a conversation: a pod, or an address outside of the cluster.

    Attributes:
        namespace: the pod's; empty for an address outside.
        address: IPv4.
        host_network: whether the pod stands in its node's network.
    """

    name: str
    address: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    host_network: bool = False

    @property
    def is_selectable(self) -> bool:
        """Whether policies are about it and selectors find it."""
        return bool(self.namespace) and not self.host_network


@dataclass(frozen=True, kw_only=True)
class Network:
    """A cluster's policies, and the labels of its namespaces beside their names."""

    policies: Sequence[Mapping[str, Any]]
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def lets(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        """Say whether `source` can begin a conversation with `target` on that port."""
        out = self._allows("Egress", source, target, port, protocol)
        return out and self._allows("Ingress", target, source, port, protocol)

    def _allows(self, direction: str, whose: End, other: End, port: int, protocol: str) -> bool:
        """Say whether the policies about `whose` let traffic in one direction pass."""
        about = [one for one in self.policies if self._is_about(one, direction, whose)]
        if not about:
            return True
        key = direction.lower()
        rules = (rule for one in about for rule in one["spec"].get(key) or ())
        return any(self._matches(rule, key, whose, other, port, protocol) for rule in rules)

    def _is_about(self, policy: Mapping[str, Any], direction: str, end: End) -> bool:
        spec = policy["spec"]
        if not end.is_selectable or policy["metadata"]["namespace"] != end.namespace:
            return False
        implied = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        types = spec.get("policyTypes") or implied
        return direction in types and selects(spec.get("podSelector") or {}, end.labels)

    def _matches(
        self,
        rule: Mapping[str, Any],
        direction: str,
        whose: End,
        other: End,
        port: int,
        protocol: str,
    ) -> bool:
        peers = rule.get("from" if direction == "ingress" else "to") or ()
        ports = rule.get("ports") or ()
        right_port = not ports or any(_is_port(one, port, protocol) for one in ports)
        return right_port and (not peers or any(self._is_peer(one, whose, other) for one in peers))

    def _is_peer(self, peer: Mapping[str, Any], whose: End, other: End) -> bool:
        block = peer.get("ipBlock")
        if block is not None:
            return _within(other.address, block["cidr"], block.get("except") or ())
        if not other.is_selectable:
            return False
        spaces = peer.get("namespaceSelector")
        if spaces is None:
            near = other.namespace == whose.namespace
        else:
            labels = {**self.namespaces.get(other.namespace, {}), NAME_LABEL: other.namespace}
            near = selects(spaces, labels)
        return near and selects(peer.get("podSelector") or {}, other.labels)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Say whether a label selector finds labels; an empty one finds all."""
    wanted = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return wanted.items() <= labels.items() and all(_holds(one, labels) for one in expressions)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    return {
        "In": value is not None and value in values,
        "NotIn": value is None or value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]


def _is_port(said: Mapping[str, Any], port: int, protocol: str) -> bool:
    if said.get("protocol", "TCP") != protocol:
        return False
    first = said.get("port")
    if first is None:
        return True
    if not isinstance(first, int):
        raise ValueError(f"port {first!r} has a name; that of which container is not known here")
    return first <= port <= int(said.get("endPort", first))


def _within(address: str, block: str, but: Iterable[str]) -> bool:
    found = ipaddress.ip_address(address)
    return found in ipaddress.ip_network(block) and not any(
        found in ipaddress.ip_network(one) for one in but
    )
