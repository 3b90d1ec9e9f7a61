"""What one pass looks at, and what it decides: the values that go into and come out of the rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controller import ledger
from controller.api import ElasticJob
from controller.observed import Node, Pod
from controller.scaling import Asked, Capacity, Patience, follow
from controller.status import ConditionType, Status

STANDARD_PATIENCE = Patience()
NODE_GRACE_SECONDS = 30  # on top of the 40 s after which Kubernetes calls a silent node not Ready


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """A pod to delete, and why.

    Attributes:
        force: whether to remove the object at once, without its kubelet's word that the processes
            are gone.
    """

    pod: Pod
    why: str
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something to tell whoever looks at the job."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one pass should change.

    Attributes:
        status: to be written first: what it remembers must not be lost with a pod that is deleted
            after it.
        tell_bounds: pods that are to be told the bounds of the group as they are now.
        ends: workers' ends that are new in this status.
        wake: when to look again though nothing happens; None: only the safety net's turn.
    """

    status: Status
    create_pods: tuple[int, ...] = ()
    delete_pods: tuple[Deletion, ...] = ()
    create_services: tuple[int, ...] = ()
    delete_services: tuple[str, ...] = ()
    tell_bounds: tuple[Pod, ...] = ()
    delete_job: bool = False
    events: tuple[Event, ...] = ()
    ends: tuple[ledger.End, ...] = ()
    wake: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A job and all that was seen of it in one pass.

    Attributes:
        services: names of the job's Services.
        lost: pods whose node is gone; they are no longer counted as anything.
        trouble: why the last attempt to act failed; empty where it did not.
        status: the job's status with the workers' records brought up to what is seen.
        wakes: moments at which something falls due by itself.
    """

    job: ElasticJob
    pods: tuple[Pod, ...]
    services: frozenset[str]
    lost: tuple[Pod, ...]
    now: datetime
    trouble: str
    status: Status
    ends: tuple[ledger.End, ...]
    wakes: tuple[datetime, ...]

    @property
    def present(self) -> list[Pod]:
        """Pods that may still run, or have run, on a machine that is there; by index."""
        return [pod for pod in self.pods if pod not in self.lost]

    @property
    def running(self) -> list[Pod]:
        """Pods whose trainer runs and that nobody asked to go."""
        return [pod for pod in self.present if pod.phase == "Running" and not pod.deleting]

    @property
    def starting(self) -> list[Pod]:
        """Pods that run, or will once they have a machine; nobody asked them to go."""
        return [pod for pod in self.present if not pod.over and not pod.deleting]

    def following(self, room: int, patience: Patience) -> "Situation":
        """Return the situation of a job whose spec asks for as many workers as there are machines.

        All rules then do for this number what they do for one that somebody wrote into the spec.
        """
        spec = self.job.spec
        if spec is None or spec.suspended or self.status.training_ended is not None:
            return self
        asked = Asked(replicas=spec.replicas, least=spec.min_replicas, most=spec.max_replicas)
        waiting = tuple(pod.created for pod in self.starting if pod.node is None)
        placed = len(self.starting) - len(waiting)
        seen = Capacity(placed=placed, waiting=waiting, room=room)
        memory, wake = follow(asked, seen, self.job.status.scaling, self.now, patience)
        job = replace(self.job, spec=replace(spec, replicas=memory.wanted))
        return replace(self, job=job, status=replace(self.status, scaling=memory)).waking(wake)

    def sweep(self) -> tuple[Deletion, ...]:
        """Return the removal of all pods whose machine is lost.

        Kubernetes waits for the kubelet's word that a pod's processes ended, and a lost machine's
        kubelet never gives it. Removing the object regardless is safe for certain where the Node is
        gone or tainted as out of service. Where the node is only silent its processes may live on;
        a StatefulSet would have to wait, but membership here is fenced in etcd: a worker whose
        lease has lapsed is no member, and what it computes reaches nobody. So a silent node is
        given some seconds and then held to be lost as well.
        """
        return tuple(
            Deletion(pod=pod, why=f"its node {pod.node} is lost", force=True) for pod in self.lost
        )

    def said(self, kind: ConditionType, *, holds: bool, reason: str, message: str) -> "Situation":
        """Return the situation with a condition said in its status."""
        status = self.status.saying(kind, holds=holds, reason=reason, message=message, now=self.now)
        return replace(self, status=status)

    def ceased(self, kind: ConditionType, reason: str, message: str) -> "Situation":
        """Return the situation with a condition no longer True in its status."""
        status = self.status.no_longer(kind, reason=reason, message=message, now=self.now)
        return replace(self, status=status)

    def waking(self, *moments: datetime | None) -> "Situation":
        """Return the situation with more moments at which to look again."""
        return replace(self, wakes=(*self.wakes, *(moment for moment in moments if moment)))

    def next_wake(self) -> datetime | None:
        """Return the first moment at which something falls due."""
        return min((moment for moment in self.wakes if moment > self.now), default=None)


def look(
    job: ElasticJob,
    pods: Sequence[Pod],
    services: frozenset[str],
    nodes: Mapping[str, Node | None],
    now: datetime,
    trouble: str = "",
    room: int | None = None,
    patience: Patience = STANDARD_PATIENCE,
) -> Situation:
    """Put together what was seen.

    Args:
        job: the job, with its status.
        pods: its pods.
        services: names of its Services.
        nodes: every node that one of the pods is on; None for a node that does not exist any more.
        now: the time.
        trouble: why the last attempt to act failed.
        room: further workers that the machines could take, for a job that follows capacity; None
            for one that does not.
        patience: how long the machines must have been so before the number of workers follows.
    """
    ordered = tuple(sorted(pods, key=lambda pod: pod.index))
    lost, wakes = _lost(ordered, nodes, now)
    records, ends = ledger.keep(
        job.status.workers, ordered, frozenset(pod.uid for pod in lost), now
    )
    status = replace(job.status, workers=records, observed_generation=job.generation, scaling=None)
    seen = Situation(
        job=job,
        pods=ordered,
        services=services,
        lost=lost,
        now=now,
        trouble=trouble,
        status=status,
        ends=tuple(ends),
        wakes=wakes,
    )
    return seen if room is None else seen.following(room, patience)


def _lost(
    pods: Sequence[Pod], nodes: Mapping[str, Node | None], now: datetime
) -> tuple[tuple[Pod, ...], tuple[datetime, ...]]:
    lost, wakes = list[Pod](), list[datetime]()
    for pod in pods:
        if pod.node is None or pod.node not in nodes or (pod.over and not pod.deleting):
            continue
        node = nodes[pod.node]
        if node is None or node.out_of_service:
            lost.append(pod)
        elif node.unready_since is not None:
            due = node.unready_since + timedelta(seconds=NODE_GRACE_SECONDS)
            if due <= now:
                lost.append(pod)
            else:
                wakes.append(due)
    return tuple(lost), tuple(wakes)
