"""How many more workers of a job its machines could take: the scheduler's rules, as far as they matter here.

Pure. Looked at are a machine's health, the node selector, taints, what the pods ask for, and the
rule that no two workers share a machine. Node affinity, volumes, other namespaces' pods and the
rest are not: the scheduler's answer to the pod itself decides (`scaling`). So no right is needed
to read anything beyond the nodes and this namespace's pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from controller.observed import Node, Taint

Json = Mapping[str, Any]
Amounts = Mapping[str, Decimal]

HOSTNAME = "kubernetes.io/hostname"
OVER = frozenset({"Succeeded", "Failed"})
KEEPING_OFF = frozenset({"NoSchedule", "NoExecute"})  # PreferNoSchedule only prefers


def room(pod: Json, nodes: Iterable[Node], others: Sequence[Json]) -> int:
    """Count the further copies of a pod that the nodes could take.

    Args:
        pod: a worker's pod as it would be created.
        nodes: the machines to look at.
        others: the pods of the same namespace, those without a machine included.
    """
    there: dict[str, list[Json]] = {}
    for other in others:
        node = other["spec"].get("nodeName")
        if node and (other.get("status") or {}).get("phase") not in OVER:
            there.setdefault(node, []).append(other)
    return sum(_room_on(node, pod, there.get(node.name, [])) for node in nodes)


def _room_on(node: Node, pod: Json, there: Sequence[Json]) -> int:
    if not (node.takes_pods and _selected(node, pod["spec"]) and _tolerated(node, pod["spec"])):
        return 0
    apart = _kept_apart_from(pod)
    if any(_matches(labels, other) for labels in apart for other in there):
        return 0
    asked = requests(pod["spec"]) | {"pods": Decimal(1)}
    used = [requests(other["spec"]) | {"pods": Decimal(1)} for other in there]
    free = {
        name: _number(node.allocatable.get(name, "0"))
        - sum(amounts.get(name, Decimal(0)) for amounts in used)
        for name in asked
    }
    fits = min(int(free[name] // amount) for name, amount in asked.items() if amount > 0)
    alone = any(_matches(labels, pod) for labels in apart)
    return max(min(fits, 1) if alone else fits, 0)


def requests(spec: Json) -> dict[str, Decimal]:
    """Return what a pod asks of its machine; a limit without a request is one, as the API server has it."""
    total: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        for name, amount in _of_container(container).items():
            total[name] = total.get(name, Decimal(0)) + amount
    for container in spec.get("initContainers") or ():  # these run before, one at a time
        for name, amount in _of_container(container).items():
            total[name] = max(total.get(name, Decimal(0)), amount)
    for name, amount in _amounts(spec.get("overhead")).items():
        total[name] = total.get(name, Decimal(0)) + amount
    return total


def _of_container(container: Json) -> Amounts:
    resources = container.get("resources") or {}
    return {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}


def _amounts(source: Json | None) -> dict[str, Decimal]:
    return {name: _number(text) for name, text in (source or {}).items()}


def _number(quantity: str) -> Decimal:
    return Decimal(parse_quantity(quantity))  # type: ignore[no-untyped-call]  # the package has no types


def _selected(node: Node, spec: Json) -> bool:
    wanted = spec.get("nodeSelector") or {}
    return all(node.labels.get(key) == value for key, value in wanted.items())


def _tolerated(node: Node, spec: Json) -> bool:
    tolerations = spec.get("tolerations") or ()
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in node.taints
        if taint.effect in KEEPING_OFF
    )


def _tolerates(toleration: Json, taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.key)
    return toleration.get("key") == taint.key and (toleration.get("value") or "") == taint.value


def _kept_apart_from(pod: Json) -> list[Json]:
    """Return the labels of pods that this one shares no machine with; rules by labels alone."""
    affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return [
        term["labelSelector"]["matchLabels"]
        for term in terms
        if term.get("topologyKey") == HOSTNAME
        and (term.get("labelSelector") or {}).get("matchLabels")
    ]


def _matches(labels: Json, pod: Json) -> bool:
    own = pod["metadata"].get("labels") or {}
    return all(own.get(key) == value for key, value in labels.items())
