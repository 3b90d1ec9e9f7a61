"""A simulated node with its metadata service and API server, on a simulated clock."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spot.annotation import WatchedNode
from spot.drain import DeadlineChange, Eviction, NodePod
from spot.http import RefusedError, UnavailableError
from spot.notice import Notice
from spot.watcher import Watcher

START = 1_795_249_200.0  # 2026-11-21T08:20:00Z


@dataclass
class Simulation:
    """The metadata service and the API server; tests set their responses and failures.

    Attributes:
        protected_pods: names of the pods whose disruption budget does not allow an eviction.
        refused_pods: names of the pods that the API server refuses to evict or to annotate.
        node_is_refused: True while the API server refuses to change the node.
        failure: what the API server does with these changes: it refuses them, or does not respond in time.
        refused_events: IDs of the events that the cloud refuses to start.
        evictions: time and eviction, in order.
        started_events: ID of each event that the watcher started, and the number of pods on the node at that time,
            without ignored pods.
    """

    now: float = START
    notices: tuple[Notice, ...] = ()
    metadata_available: bool = True
    api_available: bool = True
    current_node: WatchedNode = field(default_factory=WatchedNode)
    running_pods: dict[str, NodePod] = field(default_factory=dict)
    protected_pods: Collection[str] = ()
    refused_pods: Collection[str] = ()
    node_is_refused: bool = False
    failure: type[UnavailableError] = RefusedError
    refused_events: Collection[str] = ()
    evictions: list[tuple[float, Eviction]] = field(default_factory=list)
    started_events: list[tuple[str, int]] = field(default_factory=list)
    calls: int = 0

    def poll(self) -> tuple[Notice, ...] | None:
        return self.notices if self.metadata_available else None

    def start(self, identifier: str) -> None:
        if not self.metadata_available:
            raise UnavailableError("stalled")
        if identifier in self.refused_events:
            raise UnavailableError("HTTP 400")
        self.started_events.append(
            (identifier, sum(not pod.is_ignored for pod in self.running_pods.values()))
        )

    def node(self) -> WatchedNode:
        self._count_call()
        return self.current_node

    def pods(self) -> list[NodePod]:
        self._count_call()
        return list(self.running_pods.values())

    def patch_node(self, patch: Mapping[str, Any]) -> None:
        self._count_call()
        if self.node_is_refused:
            raise self.failure("forbidden")
        changes = patch.get("metadata", {}).get("annotations", {})
        annotations = {**self.current_node.annotations, **changes}
        spec = {"unschedulable": self.current_node.unschedulable, **patch.get("spec", {})}
        self.current_node = WatchedNode(
            unschedulable=bool(spec["unschedulable"]),
            annotations={key: value for key, value in annotations.items() if value is not None},
        )

    def set_deadline(self, change: DeadlineChange) -> None:
        self._count_call()
        name = change.pod.name
        if name in self.refused_pods:
            raise self.failure("forbidden")
        if name in self.running_pods:
            self.running_pods[name] = replace(self.running_pods[name], deadline=change.deadline)

    def evict(self, eviction: Eviction) -> bool:
        self._count_call()
        if eviction.pod.name in self.refused_pods:
            raise self.failure("more than one budget")
        if eviction.pod.name in self.protected_pods:
            return False
        self.evictions.append((self.now, eviction))
        ends_at = self.now + eviction.grace_seconds
        self.running_pods[eviction.pod.name] = replace(eviction.pod, ends_at=ends_at)
        return True

    def advance(self, seconds: float = 1.0) -> None:
        """Advance the clock; a terminating pod ends half of its own grace period before it would be killed."""
        self.now += seconds
        self.running_pods = {
            name: pod
            for name, pod in self.running_pods.items()
            if pod.ends_at is None or self.now < pod.ends_at - pod.grace_seconds / 2
        }

    def watcher(self, *, cloud_drains: bool = True) -> Watcher:
        return Watcher(self, self, lambda: self.now, cloud_drains=cloud_drains)

    def run(self, watcher: Watcher, seconds: int) -> None:
        for _ in range(seconds):
            watcher.step()
            self.advance()

    def _count_call(self) -> None:
        self.calls += 1
        if not self.api_available:
            raise UnavailableError("the API server is down")


def by_name(*pods: NodePod) -> dict[str, NodePod]:
    return {pod.name: pod for pod in pods}


def pod(name: str, **values: Any) -> NodePod:
    return NodePod(namespace="elastic-job", name=name, uid=f"uid-of-{name}", **values)
