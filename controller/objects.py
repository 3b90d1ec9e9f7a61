"""Pods and nodes, parsed from their JSON."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from controller.timestamps import parse_time
from everstep.catalog.names import (
    BOUNDS_ANNOTATION,
    CAPACITY_LABEL,
    DEADLINE_ANNOTATION,
    ON_DEMAND,
    REPLICA_INDEX_LABEL,
    TEMPLATE_HASH_ANNOTATION,
    WORKER_CONTAINER,
    ZONE_LABEL,
)

# Reasons in a pod's status for which its node, not its trainer, is responsible.
DISRUPTION_REASONS = frozenset(
    {
        "Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity",
        "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfnvidia.com/gpu",
    }
)  # fmt: skip
INITIALIZING = "PodInitializing"
STARTING_REASONS = ("ContainerCreating", INITIALIZING)  # nothing is wrong
OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"
RENDEZVOUS_OPTION = re.compile(r"^--rdzv[-_](backend|endpoint|id|conf)[=\n](.*)$", re.MULTILINE)
ETCD_PREFIX = re.compile(r"(?:^|,)etcd_prefix=([^,]*)")


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One worker's pod.

    Attributes:
        phase: Kubernetes' phase with three corrections: `Succeeded` means that the training container
            exited with 0, and not because of a deletion or disruption; `Failed` is every other end; a pod has
            ended although another container still runs.
        exit_code: exit code of the training container, or of the init container that failed before it; None if it is
            unknown.
        init_container: name of the init container that failed or does not start; empty if there is none.
        disrupted: True if the node caused the end.
        waiting_reason: reason why it is not running; empty if there is none, or only that it is being created.
        crash_looping: True if the kubelet restarts it repeatedly.
        bounds: value of its bounds annotation, `min:max`; empty without the annotation.
        template_hash: hash of what its manifest was made from; empty if an older controller created it.
        zone: zone in which it was created; empty if it may run in any zone.
        interrupted: True if its node has an interruption notice.
        on_demand: True if it was created for an on-demand machine.
        bound_since: time since which it has had a node; None if the pod's status does not contain it.
        address: IP address of the pod; empty until it has one.
        lingering: True if it has ended, and another container still runs on its machine.
        rendezvous: options that determine its group, see `rendezvous_of`; empty if they are unknown.
    """

    name: str
    uid: str
    index: int
    phase: str
    node: str | None = None
    terminating: bool = False
    created: datetime
    started: datetime | None = None
    finished: datetime | None = None
    exit_code: int | None = None
    init_container: str = ""
    out_of_memory: bool = False
    disrupted: bool = False
    reason: str = ""
    waiting_reason: str = ""
    restarts: int = 0
    crash_looping: bool = False
    bounds: str = ""
    template_hash: str = ""
    zone: str = ""
    interrupted: bool = False
    on_demand: bool = False
    bound_since: datetime | None = None
    address: str = ""
    lingering: bool = False
    rendezvous: tuple[tuple[str, str], ...] = ()

    @property
    def ended(self) -> bool:
        """True if it has ended permanently."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_up(self) -> bool:
        """True if it runs, and the kubelet does not wait before it restarts it."""
        return self.phase == "Running" and not self.crash_looping

    @property
    def occupies_machine(self) -> bool:
        """True if it has a machine that no other pod can use."""
        return self.node is not None and (self.lingering or not self.ended)


@dataclass(frozen=True, kw_only=True)
class Placeholder:
    """A pod that requests a machine for a job in another zone, see `placeholders`.

    Attributes:
        zone: zone in which it requests a machine.
        bound_since: time since which it has had a node; None without a node.
        ended: True if it has ended or is being deleted.
    """

    name: str
    uid: str
    zone: str
    bound_since: datetime | None = None
    ended: bool = False


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node.

    Attributes:
        unready_since: time since which it has not been Ready; None while it is Ready.
        cordoned: True if it is unschedulable.
        allocatable: resources for pods, as Kubernetes quantities ("500m", "2Gi").
    """

    name: str
    unready_since: datetime | None = None
    out_of_service: bool = False
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)

    @property
    def schedulable(self) -> bool:
        """True if it is healthy and takes new pods."""
        return self.unready_since is None and not self.out_of_service and not self.cordoned


def read_node(source: Mapping[str, Any]) -> Node:
    """Parse a node's JSON."""
    conditions = source.get("status", {}).get("conditions") or ()
    ready = next((item for item in conditions if item["type"] == "Ready"), None)
    spec = source.get("spec") or {}
    taints = tuple(
        Taint(taint["key"], taint.get("value", ""), taint["effect"])
        for taint in spec.get("taints") or ()
    )
    unready_since = None
    if ready is not None and ready["status"] != "True":
        unready_since = parse_time(ready.get("lastTransitionTime"))
    return Node(
        name=source["metadata"]["name"],
        unready_since=unready_since,
        out_of_service=any(taint.key == OUT_OF_SERVICE_TAINT for taint in taints),
        cordoned=bool(spec.get("unschedulable")),
        labels=source["metadata"].get("labels") or {},
        taints=taints,
        allocatable=source.get("status", {}).get("allocatable") or {},
    )


def read_pod(source: Mapping[str, Any]) -> Pod:
    """Parse the JSON of a worker's pod, which must have the label `replica-index`."""
    metadata, status = source["metadata"], source.get("status") or {}
    worker = _worker_status(status)
    init_container = _failing_init_container(status, worker)
    container = init_container or worker
    state = container.get("state") or {}
    terminated = state.get("terminated") or {}
    running = terminated or state.get("running") or {}
    last_terminated = (container.get("lastState") or {}).get("terminated") or {}
    spec, kubernetes_phase = source.get("spec", {}), status.get("phase", "Pending")
    selector = spec.get("nodeSelector") or {}
    annotations = metadata.get("annotations") or {}
    disrupted = _is_disrupted(status)
    trainer_phase = _trainer_phase(kubernetes_phase, spec, terminated, disrupted=disrupted)
    crash_looping = (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff"
    exit_code = terminated.get(
        "exitCode", last_terminated.get("exitCode") if crash_looping else None
    )
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        index=int(metadata["labels"][REPLICA_INDEX_LABEL]),
        phase=_phase(trainer_phase, metadata, terminated, disrupted=disrupted),
        node=spec.get("nodeName"),
        terminating="deletionTimestamp" in metadata,
        created=_required_time(metadata["creationTimestamp"]),
        started=None if init_container else parse_time(running.get("startedAt")),
        finished=parse_time(terminated.get("finishedAt")),
        exit_code=exit_code,
        init_container=init_container.get("name", ""),
        out_of_memory=terminated.get("reason") == "OOMKilled",
        disrupted=disrupted,
        reason=status.get("reason", ""),
        waiting_reason=_waiting_reason(status, state),
        restarts=container.get("restartCount", 0),
        crash_looping=crash_looping,
        bounds=annotations.get(BOUNDS_ANNOTATION, ""),
        template_hash=annotations.get(TEMPLATE_HASH_ANNOTATION, ""),
        zone=selector.get(ZONE_LABEL, ""),
        interrupted=DEADLINE_ANNOTATION in annotations,
        on_demand=selector.get(CAPACITY_LABEL) == ON_DEMAND,
        bound_since=_bound_since(source),
        address=status.get("podIP", ""),
        lingering=trainer_phase != kubernetes_phase,
        rendezvous=rendezvous_of(
            argument
            for item in spec.get("containers") or ()
            if item.get("name") == WORKER_CONTAINER
            for argument in item.get("args") or ()
        ),
    )


def rendezvous_of(arguments: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return names and values of the options by which workers find each other, sorted by name.

    Workers with other options form another group. The last of several values counts. Of `conf`, only the prefix of the
    keys in etcd is returned.
    """
    options = dict(RENDEZVOUS_OPTION.findall("\n".join(map(str, arguments))))
    prefix = ETCD_PREFIX.search(options.pop("conf", ""))
    if prefix:
        options["etcd_prefix"] = prefix[1]
    return tuple(sorted(options.items()))


def read_placeholder(source: Mapping[str, Any]) -> Placeholder:
    """Parse a placeholder's JSON."""
    metadata, spec, status = source["metadata"], source["spec"], source.get("status") or {}
    return Placeholder(
        name=metadata["name"],
        uid=metadata["uid"],
        zone=spec["nodeSelector"][ZONE_LABEL],
        bound_since=_bound_since(source),
        ended="deletionTimestamp" in metadata or status.get("phase") in ("Failed", "Succeeded"),
    )


def _bound_since(source: Mapping[str, Any]) -> datetime | None:
    """Return the time since which a pod has had a node; None without a node."""
    if not source.get("spec", {}).get("nodeName"):
        return None
    conditions = (source.get("status") or {}).get("conditions") or ()
    scheduled = [item for item in conditions if item["type"] == "PodScheduled"]
    return parse_time(scheduled[0].get("lastTransitionTime")) if scheduled else None


def _trainer_phase(
    phase: str, spec: Mapping[str, Any], terminated: Mapping[str, Any], *, disrupted: bool
) -> str:
    """Return the phase that a pod would have without the containers that run beside the trainer.

    A pod runs until all its containers have ended. With `OnFailure` the kubelet restarts a trainer that has failed.
    """
    exit_code = terminated.get("exitCode")
    if phase != "Running" or exit_code is None:
        return phase
    if exit_code == 0 and not disrupted:
        return "Succeeded"
    return "Failed" if spec.get("restartPolicy") == "Never" else phase


def _phase(
    phase: str, metadata: Mapping[str, Any], terminated: Mapping[str, Any], *, disrupted: bool
) -> str:
    """Return the phase from the training's point of view.

    A terminating pod that exits with 0 did not finish the training: it followed the request to stop.
    A pod whose trainer exited with 0 finished it even if a sidecar failed.
    """
    if "deletionTimestamp" not in metadata:
        finished_itself = terminated.get("exitCode") == 0 and not disrupted
        return "Succeeded" if phase == "Failed" and finished_itself else phase
    if phase != "Succeeded":
        return phase
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    deletion_requested = _required_time(metadata["deletionTimestamp"]) - grace
    finished = parse_time(terminated.get("finishedAt"))
    return phase if finished is not None and finished < deletion_requested else "Failed"


def _is_disrupted(status: Mapping[str, Any]) -> bool:
    disruption_target = any(
        item["type"] == "DisruptionTarget" and item["status"] == "True"
        for item in status.get("conditions") or ()
    )
    return disruption_target or status.get("reason") in DISRUPTION_REASONS


def _worker_status(status: Mapping[str, Any]) -> Mapping[str, Any]:
    for container in status.get("containerStatuses") or ():
        if container["name"] == WORKER_CONTAINER:
            worker_status: Mapping[str, Any] = container
            return worker_status
    return {}


def _failing_init_container(
    status: Mapping[str, Any], worker: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the status of the init container because of which the training container does not start; else empty."""
    state = worker.get("state") or {}
    if state and (state.get("waiting") or {}).get("reason") != INITIALIZING:
        return {}
    failing: Mapping[str, Any] = next(
        filter(_is_failing, status.get("initContainerStatuses") or ()), {}
    )
    return failing


def _is_failing(container: Mapping[str, Any]) -> bool:
    state = container.get("state") or {}
    waiting = (state.get("waiting") or {}).get("reason")
    return bool((state.get("terminated") or {}).get("exitCode")) or (
        waiting is not None and waiting not in STARTING_REASONS
    )


def _waiting_reason(status: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    waiting = state.get("waiting") or {}
    if waiting.get("reason") not in (None, *STARTING_REASONS):
        return ": ".join(filter(None, (waiting["reason"], waiting.get("message"))))
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
    return ""


def _required_time(text: str) -> datetime:
    time = parse_time(text)
    assert time is not None  # noqa: S101  (the API server sets these times on every object)
    return time
