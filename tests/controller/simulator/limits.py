"""The in-memory cluster with spot and on-demand machines: they have prices, and workers make progress on them."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from controller.objects import Node
from controller.timestamps import format_time, parse_time
from everstep.catalog.names import CAPACITY_LABEL, ON_DEMAND
from tests.controller.simulator.model import ModelCluster

SPOT_USD, ON_DEMAND_USD = 1.0, 3.0
BOOT_SECONDS = 300.0
"""Seconds from the request of a machine until its pod runs; less than `START_SECONDS`, which the policy assumes."""

ADDRESS = "10.0.0.1"


class LimitedCluster(ModelCluster):
    """A cluster that has as many on-demand machines as requested, and some spot machines.

    Attributes:
        spot_machines: number of spot machines that the market offers.
        work: machine-seconds that the training takes.
        completed_work: machine-seconds that the training has completed.
        usd: cost of all machines so far.
    """

    def __init__(self, replicas: int, work: float, **spending: Any) -> None:
        super().__init__(replicas)
        self.nodes_up = {}
        self.spot_machines, self.work, self.completed_work, self.usd = 0, work, 0.0, 0.0
        self.source["metadata"]["creationTimestamp"] = format_time(self.now)
        self.source["spec"]["maxReplicas"] = replicas
        pools = [
            {"capacity": "spot", "usdPerHour": SPOT_USD},
            {"capacity": "onDemand", "usdPerHour": ON_DEMAND_USD},
        ]
        self.source["spec"]["spending"] = {"pools": pools, **spending}

    # Used by the controller.

    def nodes(self, names: Iterable[str]) -> dict[str, Node | None]:
        labels = {True: {CAPACITY_LABEL: ON_DEMAND}, False: {}}
        return {
            name: Node(name=name, labels=labels[name.startswith(ON_DEMAND)])
            if name in self.nodes_up
            else None
            for name in names
        }

    def scrape(self, address: str) -> str:
        assert address == ADDRESS
        share = min(self.completed_work / self.work, 1.0)
        return f"everstep_step {share * 1e6:.0f}\neverstep_planned_steps 1000000\n"

    # Used by the model and the tests.

    @property
    def desired_replicas(self) -> int:
        return 2 * self.replicas  # spot and on-demand workers

    def set_spot_machines(self, machines: int) -> None:
        """Set the number of spot machines; pods of lost machines are lost, too."""
        self.spot_machines = machines
        for pod in self._bound_pods(on_demand=False)[machines:]:
            self.nodes_up.pop(pod["spec"]["nodeName"], None)

    def advance(self, seconds: float) -> None:
        """Advance the clock: machines are billed, workers train, new machines start."""
        self.now += timedelta(seconds=seconds)
        self.usd += seconds / 3600 * sum(
            ON_DEMAND_USD if on_demand else SPOT_USD
            for on_demand in (False, True)
            for _ in self._bound_pods(on_demand=on_demand)
        )  # fmt: skip
        self.completed_work += seconds * min(len(self.training()), self.replicas)
        self.finish_deletions()
        for pod in self.pods.values():
            self._start(pod)

    def training(self) -> list[str]:
        """Return the names of the workers that run."""
        return [
            name
            for name, pod in self.pods.items()
            if pod["status"]["phase"] == "Running"
            and self.has_live_node(pod)
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def on_demand_pods(self) -> list[str]:
        return [name for name, pod in self.pods.items() if is_on_demand(pod)]

    def _bound_pods(self, *, on_demand: bool) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.pods.values()
            if self.has_live_node(pod) and is_on_demand(pod) is on_demand
        ]

    def _start(self, pod: dict[str, Any]) -> None:
        spec, metadata = pod["spec"], pod["metadata"]
        if "deletionTimestamp" in metadata:
            return
        if "nodeName" not in spec:
            is_full = len(self._bound_pods(on_demand=False)) >= self.spot_machines
            if is_full and not is_on_demand(pod):
                return
            spec["nodeName"] = f"{ON_DEMAND if is_on_demand(pod) else 'spot'}-{metadata['uid']}"
            self.nodes_up[spec["nodeName"]] = True
            now = format_time(self.now)
            condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
            pod["status"]["conditions"] = [condition]
        elif pod["status"]["phase"] == "Pending":
            conditions = pod["status"]["conditions"]
            bound_at = parse_time(conditions[0]["lastTransitionTime"])
            assert bound_at is not None
            if self.now - bound_at < timedelta(seconds=BOOT_SECONDS):
                return
            self._report(pod, "Running", {"running": {"startedAt": format_time(self.now)}})
            pod["status"] |= {"podIP": ADDRESS, "conditions": conditions}


def is_on_demand(pod: dict[str, Any]) -> bool:
    selector = pod["spec"].get("nodeSelector") or {}
    return bool(selector.get(CAPACITY_LABEL) == ON_DEMAND)
