"""The autoscaler's hands: reads the cluster now and then, and says what the decision was.

Nothing that it remembers matters: after a restart a machine's idle time counts from nought, so that it goes later.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twin.clouds.capacity import autoscaler, watcher
from twin.clouds.capacity.autoscaler import Decision, Room, Template
from twin.clouds.capacity.pools import Pool
from twin.clouds.capacity.watcher import Autoscaler, Object
from twin.nodes import cluster, machine_config
from twin.nodes.api import Api, ApiError

SCAN_SECONDS = 3.0  # theirs: 10
PODS_OF_A_NODE = 110


@dataclass
class Scaling:
    """The autoscaler of one twin.

    Attributes:
        api: how the cluster is read.
    """

    api: Api
    _next: float = 0.0
    _idle_since: dict[str, float] = field(default_factory=dict)

    def decide(
        self,
        pools: Sequence[Pool],
        groups: Mapping[str, str],
        short: Mapping[str, int],
        factor: float,
    ) -> Decision | None:
        """Decide how pools are to be sized; None between two scans, and where the cluster does not answer.

        Args:
            pools: all there are.
            groups: the pools of the machines that stay, by machine.
            short: the pools that the cloud has no capacity for.
            factor: how fast time passes.
        """
        now = time.monotonic()
        if now < self._next or not any(pool.minimum < pool.maximum for pool in pools):
            return None
        self._next = now + SCAN_SECONDS
        try:
            pods: list[Object] = self.api.get("/api/v1/pods")["items"]
            found = watcher.find_autoscaler(pods)
            if not found and not any(pool.autoscaled for pool in pools):
                return None
            nodes = {name: n for name, n in cluster.nodes(self.api).items() if name in groups}
            priorities = self._priorities(found, pools)
        except (ApiError, OSError):
            return None
        rooms = {p.name: watcher.fresh_room(p, groups, nodes, pods, nominal(p)) for p in pools}
        sized = watcher.templates(pools, rooms, found, priorities, short, factor)
        return self._judge(sized, groups, nodes, pods)

    def _judge(
        self,
        sized: Sequence[Template],
        groups: Mapping[str, str],
        nodes: Mapping[str, Object],
        pods: Sequence[Object],
    ) -> Decision:
        by_name = {template.pool.name: template.pool for template in sized}
        idle = self._idle(nodes, pods)
        seen = watcher.machines(by_name, groups, nodes, pods, idle)
        return autoscaler.decide(sized, seen, watcher.waiting(pods))

    def _idle(self, nodes: Mapping[str, Object], pods: Sequence[Object]) -> dict[str, float]:
        now = time.monotonic()
        quiet = {n for n in nodes if cluster.is_ready(nodes[n]) and not watcher.busy(n, pods)}
        self._idle_since = {name: self._idle_since.get(name, now) for name in quiet}
        return {name: now - since for name, since in self._idle_since.items()}

    def _priorities(self, found: Autoscaler | None, pools: Sequence[Pool]) -> dict[str, int]:
        namespace = found.namespace if found else "kube-system"
        path = f"/api/v1/namespaces/{namespace}/configmaps/{watcher.PRIORITIES}"
        try:
            return watcher.priorities_of(self.api.get(path), pools)
        except ApiError:
            return {}  # without it all are equal


def nominal(pool: Pool) -> Room:
    """Return what a machine of a pool offers where none has been seen yet."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Room(
        milli_cpu=1000 * (os.cpu_count() or 1),
        memory=machine_config.offered_bytes(pool.role, memory),
        gpus=pool.gpus,
        pods=PODS_OF_A_NODE,
    )
