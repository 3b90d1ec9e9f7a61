"""When an object counts as ready, read off the object and what belongs to it. Pure.

The rules are the official provider's in substance: a workload is ready when its pods are, a Job
when it is complete, a claim when it is bound. A kind without a rule is ready as soon as it exists.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Live: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Ready:
    """Nothing is left to wait for."""


@dataclass(frozen=True)
class Waiting:
    """Not yet; `stuck` when it will hardly get better without somebody's doing."""

    reason: str
    stuck: bool = False


@dataclass(frozen=True)
class Failed:
    """It will not become ready."""

    reason: str


Verdict: TypeAlias = Ready | Waiting | Failed


@dataclass(frozen=True)
class Related:
    """What belongs to an object and tells more about it than the object itself.

    Attributes:
        pods: of a workload.
        endpoint_slices: of a Service.
        storage_class: of a claim; None where there is none.
    """

    pods: Sequence[Live] = ()
    endpoint_slices: Sequence[Live] = ()
    storage_class: Live | None = None


READY = Ready()
# Container states that time does not cure.
STUCK_REASONS = frozenset({
    "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull",
    "ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName",
    "RunContainerError",
})  # fmt: skip


def assess(live: Live, related: Related = Related()) -> Verdict:
    """Judge an object.

    Args:
        live: the object as the API server has it.
        related: what belongs to it, as far as its kind needs it.
    """
    group = str(live.get("apiVersion", "")).rpartition("/")[0]
    rule = RULES.get((group, str(live.get("kind"))))
    return rule(live, related) if rule else READY


def condition(live: Live, kind: str) -> Live | None:
    """Return a status condition by its type."""
    found = live.get("status", {}).get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), None)


def holds(live: Live, kind: str) -> bool:
    """Tell whether a status condition is True."""
    found = condition(live, kind)
    return found is not None and found.get("status") == "True"


def why(found: Live | None) -> str:
    """Write a condition's reason and message."""
    parts = [str(found[key]) for key in ("reason", "message") if found and found.get(key)]
    return ": ".join(parts) or "no reason given"


def _observed(live: Live) -> bool:
    """Tell whether the controller has seen the object's latest version."""
    return int(live.get("status", {}).get("observedGeneration") or 0) >= int(
        live["metadata"].get("generation") or 0
    )


def _wait_for_pods(reason: str, related: Related) -> Waiting:
    """Name the worst pod beside the count of pods: it is what has to be mended."""
    troubles = [trouble for pod in related.pods if (trouble := pod_trouble(pod))]
    if not troubles:
        return Waiting(reason)
    worst = max(troubles, key=lambda each: each.stuck)
    return Waiting(f"{reason}; {worst.reason}", worst.stuck)


def pod_trouble(pod: Live) -> Waiting | None:
    """Say what keeps a pod from running; None where nothing does."""
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    for container in [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]:
        waiting = container.get("state", {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            return Waiting(
                f"pod {name}, container {container['name']}: {why(waiting)}",
                reason in STUCK_REASONS,
            )
        ended = container.get("state", {}).get("terminated") or {}
        if ended.get("exitCode"):
            return Waiting(
                f"pod {name}, container {container['name']} exited with {ended['exitCode']} "
                f"({why(ended)})"
            )
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled.get("status") == "False":
        return Waiting(
            f"pod {name} is not scheduled: {scheduled.get('message') or scheduled.get('reason')}"
        )
    return None


def _deployment(live: Live, related: Related) -> Verdict:
    status, wanted = live.get("status", {}), live["spec"].get("replicas", 1)
    progressing = condition(live, "Progressing")
    if progressing and progressing.get("reason") == "ProgressDeadlineExceeded" and _observed(live):
        return Failed(_wait_for_pods(why(progressing), related).reason)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if (
        not _observed(live)
        or updated < wanted
        or status.get("replicas", 0) > updated
        or available < wanted
    ):
        return _wait_for_pods(
            f"{available} of {wanted} pods are available, {updated} are up to date", related
        )
    return READY


def _stateful_set(live: Live, related: Related) -> Verdict:
    status, spec = live.get("status", {}), live["spec"]
    wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    strategy = spec.get("updateStrategy", {})
    rolls = strategy.get("type", "RollingUpdate") == "RollingUpdate"
    partition = strategy.get("rollingUpdate", {}).get("partition", 0)
    updated = status.get("updatedReplicas", 0) if rolls else wanted
    if not _observed(live) or ready < wanted or updated < max(wanted - partition, 0):
        return _wait_for_pods(f"{ready} of {wanted} pods are ready", related)
    return READY


def _daemon_set(live: Live, related: Related) -> Verdict:
    status = live.get("status", {})
    wanted, available = status.get("desiredNumberScheduled", 0), status.get("numberAvailable", 0)
    rolls = live["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") == "RollingUpdate"
    updated = status.get("updatedNumberScheduled", 0) if rolls else wanted
    if not _observed(live) or available < wanted or updated < wanted:
        return _wait_for_pods(f"{available} of {wanted} pods are available", related)
    return READY


def _replica_set(live: Live, related: Related) -> Verdict:
    wanted, ready = (
        live["spec"].get("replicas", 1),
        live.get("status", {}).get("availableReplicas", 0),
    )
    if not _observed(live) or ready < wanted:
        return _wait_for_pods(f"{ready} of {wanted} pods are available", related)
    return READY


def _job(live: Live, related: Related) -> Verdict:
    if holds(live, "Complete") or holds(live, "SuccessCriteriaMet") or live["spec"].get("suspend"):
        return READY
    if holds(live, "Failed"):
        return Failed(
            _wait_for_pods(f"the Job failed: {why(condition(live, 'Failed'))}", related).reason
        )
    status = live.get("status", {})
    done, wanted = status.get("succeeded", 0), live["spec"].get("completions", 1)
    return _wait_for_pods(
        f"{done} of {wanted} completions, {status.get('active', 0)} pods active", related
    )


def _pod(live: Live, related: Related) -> Verdict:  # noqa: ARG001  every rule has the same form
    phase = live.get("status", {}).get("phase", "Pending")
    if phase == "Failed":
        trouble = pod_trouble(live)
        return Failed(trouble.reason if trouble else f"the pod failed: {why(live['status'])}")
    if phase == "Succeeded" or holds(live, "Ready"):
        return READY
    return pod_trouble(live) or Waiting(f"the pod is {phase}, its containers are not ready")


def _claim(live: Live, related: Related) -> Verdict:
    phase = live.get("status", {}).get("phase", "Pending")
    if phase == "Bound":
        return READY
    if phase == "Lost":
        return Failed("its volume is gone (phase Lost)")
    if (related.storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer":
        return READY  # it is bound when a pod first uses it, which may well depend on this resource
    return Waiting(f"no volume is bound yet (phase {phase})")


def _volume(live: Live, related: Related) -> Verdict:  # noqa: ARG001  every rule has the same form
    status = live.get("status", {})
    if status.get("phase") == "Failed":
        return Failed(f"the volume failed: {why(status)}")
    return (
        Waiting("the volume is not available yet")
        if status.get("phase", "Pending") == "Pending"
        else READY
    )


def _service(live: Live, related: Related) -> Verdict:
    spec = live["spec"]
    if spec.get("type") == "LoadBalancer" and not live.get("status", {}).get(
        "loadBalancer", {}
    ).get("ingress"):
        return Waiting("the load balancer has no address yet")
    if (
        spec.get("type") == "ExternalName"
        or spec.get("clusterIP") == "None"
        or not spec.get("selector")
    ):
        return READY
    ready = [
        endpoint
        for one in related.endpoint_slices
        for endpoint in one.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready", True)
    ]
    return (
        READY if ready else Waiting(f"no ready pod matches its selector {dict(spec['selector'])}")
    )


def _definition(live: Live, related: Related) -> Verdict:  # noqa: ARG001  every rule has the same form
    if condition(live, "NamesAccepted") and not holds(live, "NamesAccepted"):
        return Failed(f"its names are taken: {why(condition(live, 'NamesAccepted'))}")
    return READY if holds(live, "Established") else Waiting("the definition is not established yet")


def _namespace(live: Live, related: Related) -> Verdict:  # noqa: ARG001  every rule has the same form
    phase = live.get("status", {}).get("phase")
    if phase == "Active":
        return READY
    return Waiting(f"the namespace is {phase or 'not active'}", stuck=phase == "Terminating")


def _elastic_job(live: Live, related: Related) -> Verdict:
    """Judge an ElasticJob.

    Ready once its workers run together, or have done all there was to do.
    """
    if holds(live, "Failed"):
        return Failed(f"the ElasticJob failed: {why(condition(live, 'Failed'))}")
    if holds(live, "Succeeded") or holds(live, "Suspended"):
        return READY
    if holds(live, "Running"):
        # The upstream controller does not say which version it has seen.
        told = "observedGeneration" in live.get("status", {})
        return (
            Waiting("the change is yet to be taken up") if told and not _observed(live) else READY
        )
    current = next((kind for kind in ("Restarting", "Created") if holds(live, kind)), None)
    reason = (
        f"{current}: {why(condition(live, current))}"
        if current
        else "no controller has taken it up yet"
    )
    return _wait_for_pods(reason, related)


Rule: TypeAlias = Callable[[Live, Related], Verdict]
RULES: Mapping[tuple[str, str], Rule] = {
    ("", "Namespace"): _namespace,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("elastic.pytorch.org", "ElasticJob"): _elastic_job,
}
