"""Count of the further workers that the nodes could take, by the scheduler's main rules.

The functions are pure. The count considers a node's health, node selectors, excluded values of labels, taints,
resource requests, and required anti-affinity between pods by hostname. It ignores other node affinity, volumes and
pods of other namespaces, because the scheduler makes the decision about each pod (see `scaling`). It therefore needs
no permissions except to read nodes and the pods of the job's namespace.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from operator import add
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from controller.objects import Node
from controller.pods import REQUIRED
from controller.tolerations import tolerates_all
from everstep.catalog.names import FINISHED_PHASES, HOSTNAME_LABEL

Json = Mapping[str, Any]
Quantities = Mapping[str, Decimal]


def count_schedulable(pod: Json, nodes: Iterable[Node], pods: Sequence[Json]) -> int:
    """Return how many copies of a pod the nodes could take.

    Args:
        pod: a worker's pod as it would be created.
        nodes: nodes to consider.
        pods: pods of the same namespace, including pods without a node.
    """
    by_node: dict[str, list[Json]] = {}
    for other in pods:
        node_name = other["spec"].get("nodeName")
        if node_name and (other.get("status") or {}).get("phase") not in FINISHED_PHASES:
            by_node.setdefault(node_name, []).append(other)
    return sum(_count_on_node(node, pod, by_node.get(node.name, [])) for node in nodes)


def _count_on_node(node: Node, pod: Json, pods: Sequence[Json]) -> int:
    spec = pod["spec"]
    if not (
        node.schedulable
        and _matches_selectors(node, spec)
        and tolerates_all(spec.get("tolerations") or (), node.taints)
    ):
        return 0
    excluded_labels = _anti_affinity_labels(pod)
    if any(_has_labels(labels, other) for labels in excluded_labels for other in pods):
        return 0
    requested = {**requests(spec), "pods": Decimal(1)}
    pod_requests = [{**requests(other["spec"]), "pods": Decimal(1)} for other in pods]
    free_space = {
        name: _quantity(node.allocatable.get(name, "0"))
        - sum(quantities.get(name, Decimal(0)) for quantities in pod_requests)
        for name in requested
    }
    copies = min(int(free_space[name] // value) for name, value in requested.items() if value > 0)
    one_per_node = any(_has_labels(labels, pod) for labels in excluded_labels)
    return max(min(copies, 1) if one_per_node else copies, 0)


def requests(spec: Json) -> Quantities:
    """Return a pod's resource requests as the scheduler computes them; a limit without a request counts as a request.

    Init containers run one at a time before the others; a sidecar, an init container with `restartPolicy: Always`, runs
    beside all containers after it. The requests of the pod itself replace the sum of its containers. Sources:
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers, 2026-11;
    https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#pod-level-resource-specification.
    """
    running: Quantities = {}
    highest: Quantities = {}
    for container in spec.get("initContainers") or ():
        with_container = _combine(add, running, _container_requests(container))
        highest = _combine(max, highest, with_container)
        if container.get("restartPolicy") == "Always":
            running = with_container
    for container in spec.get("containers") or ():
        running = _combine(add, running, _container_requests(container))
    of_containers = _combine(max, running, highest)
    of_pod = spec.get("resources") or {}
    total = {
        **_quantities(of_pod.get("limits")),
        **of_containers,
        **_quantities(of_pod.get("requests")),
    }
    return _combine(add, total, _quantities(spec.get("overhead")))


def _combine(
    operation: Callable[[Decimal, Decimal], Decimal], first: Quantities, second: Quantities
) -> Quantities:
    """Combine the quantities of each resource; a missing one is 0."""
    return {
        name: operation(first.get(name, Decimal(0)), second.get(name, Decimal(0)))
        for name in (*first, *second)
    }


def _container_requests(container: Json) -> Quantities:
    resources = container.get("resources") or {}
    return {**_quantities(resources.get("limits")), **_quantities(resources.get("requests"))}


def _quantities(source: Json | None) -> dict[str, Decimal]:
    return {name: _quantity(text) for name, text in (source or {}).items()}


def _quantity(text: str) -> Decimal:
    return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]  # the package has no types


def _matches_selectors(node: Node, spec: Json) -> bool:
    selector = spec.get("nodeSelector") or {}
    matches = all(node.labels.get(key) == value for key, value in selector.items())
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
    return matches and (not terms or any(not _excludes(term, node) for term in terms))


def _excludes(term: Json, node: Node) -> bool:
    """Return True if a term excludes a value of one of the node's labels (NotIn)."""
    return any(
        item["operator"] == "NotIn" and node.labels.get(item["key"]) in item["values"]
        for item in term.get("matchExpressions") or ()
    )


def _anti_affinity_labels(pod: Json) -> list[Json]:
    """Return the labels of pods that cannot share a node with this pod; only terms with `matchLabels` count."""
    affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    terms = affinity.get(REQUIRED) or ()
    return [
        term["labelSelector"]["matchLabels"]
        for term in terms
        if term.get("topologyKey") == HOSTNAME_LABEL
        and (term.get("labelSelector") or {}).get("matchLabels")
    ]


def _has_labels(labels: Json, pod: Json) -> bool:
    pod_labels = pod["metadata"].get("labels") or {}
    return all(pod_labels.get(key) == value for key, value in labels.items())
