"""A machine, its cloud and its API server on a clock of their own: no second of a test is real."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spot.decide import Eviction, Node, Pod
from spot.notice import Notice
from spot.watcher import Watcher
from spot.wire import NoAnswer, Refused


@dataclass
class World:
    """Plays the metadata service and the API server; a test plays fate."""

    now: float = 1_795_249_200.0
    announced: tuple[Notice, ...] = ()
    metadata_answers: bool = True
    api_answers: bool = True
    node_now: Node = field(default_factory=Node)
    running: dict[str, Pod] = field(default_factory=dict)
    held_by_a_budget: Collection[str] = ()
    refused: Collection[str] = ()
    evictions: list[tuple[float, Eviction]] = field(default_factory=list)
    started: list[tuple[str, int]] = field(default_factory=list)
    calls: int = 0

    def poll(self) -> tuple[Notice, ...] | None:
        return self.announced if self.metadata_answers else None

    def start(self, identifier: str) -> None:
        if not self.metadata_answers:
            raise NoAnswer("stalled")
        self.started.append((identifier, sum(not pod.stays for pod in self.running.values())))

    def node(self) -> Node:
        self._called()
        return self.node_now

    def pods(self) -> list[Pod]:
        self._called()
        return list(self.running.values())

    def patch(self, patch: Mapping[str, Any]) -> None:
        self._called()
        changes = patch.get("metadata", {}).get("annotations", {})
        annotations = {**self.node_now.annotations, **changes}
        spec = {"unschedulable": self.node_now.unschedulable, **patch.get("spec", {})}
        self.node_now = Node(
            unschedulable=bool(spec["unschedulable"]),
            annotations={key: value for key, value in annotations.items() if value is not None},
        )

    def evict(self, eviction: Eviction) -> bool:
        self._called()
        if eviction.pod.name in self.refused:
            raise Refused("more than one budget")
        if eviction.pod.name in self.held_by_a_budget:
            return False
        self.evictions.append((self.now, eviction))
        ends = self.now + eviction.grace_seconds
        self.running[eviction.pod.name] = replace(eviction.pod, ends_at=ends)
        return True

    def pass_time(self, seconds: float = 1.0) -> None:
        """Let time go by; pods that were asked to go use half of their grace."""
        self.now += seconds
        self.running = {
            name: pod
            for name, pod in self.running.items()
            if pod.ends_at is None or self.now < pod.ends_at - pod.grace_seconds / 2
        }

    def watcher(self, *, cloud_drains: bool = True) -> Watcher:
        return Watcher(self, self, lambda: self.now, cloud_drains=cloud_drains)

    def run(self, watcher: Watcher, seconds: int) -> None:
        for _ in range(seconds):
            watcher.step()
            self.pass_time()

    def _called(self) -> None:
        self.calls += 1
        if not self.api_answers:
            raise NoAnswer("the API server is away")


def pods(*some: Pod) -> dict[str, Pod]:
    return {pod.name: pod for pod in some}


def pod(name: str, **changes: Any) -> Pod:
    return Pod(namespace="elastic-job", name=name, uid=f"uid-of-{name}", **changes)
