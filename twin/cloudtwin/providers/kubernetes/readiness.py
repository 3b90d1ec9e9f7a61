"""Readiness of an object, derived from it and from the objects that belong to it. Pure.

The rules follow the official provider (provider/pkg/await in pulumi/pulumi-kubernetes, read 2026-11): a workload
is ready when its pods are, a Job when it is complete, a claim when it is bound. The annotation `pulumi.com/waitFor`
takes precedence. A kind without a rule is ready as soon as it exists.

Differences from the official provider:
    * An object that is stuck, for example because of a missing image, fails after a minute (`wait`), not at the time
      limit of the operation.
    * A Namespace must be Active, and a CustomResourceDefinition established and served.
    * A suspended Job is ready: it may be resumed much later. The official provider waits for its completion.
    * An Ingress is ready when it has an address; the Services of its rules are not checked.
    * The time limit of every kind is 10 minutes; the official provider's are between 5 seconds and 10 minutes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cloudtwin.providers.kubernetes import wait_for
from cloudtwin.providers.kubernetes.objects import WAIT_FOR, annotation

Live: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Ready:
    """Verdict that the object is ready."""


@dataclass(frozen=True)
class Waiting:
    """Verdict that the object is not ready yet.

    Attributes:
        reason: reason why the object is not ready.
        stuck: True if the object is unlikely to become ready without a fix.
    """

    reason: str
    stuck: bool = False


@dataclass(frozen=True)
class Failed:
    """Verdict that the object will not become ready.

    Attributes:
        reason: reason for the failure.
    """

    reason: str


Verdict: TypeAlias = Ready | Waiting | Failed


@dataclass(frozen=True)
class Related:
    """The objects that an object's readiness depends on.

    Attributes:
        pods: pods of a workload.
        endpoint_slices: endpoint slices of a Service.
        storage_class: class of a claim; None if there is none.
    """

    pods: Sequence[Live] = ()
    endpoint_slices: Sequence[Live] = ()
    storage_class: Live | None = None


READY = Ready()
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105  a type, not a secret
# Container states that time alone does not fix.
STUCK_REASONS = frozenset({
    "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull",
    "ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName",
    "RunContainerError",
})  # fmt: skip


def assess(live: Live, related: Related = Related()) -> Verdict:
    """Return the verdict on an object's readiness.

    Args:
        live: the object in the cluster.
        related: the objects that its readiness depends on.

    Raises:
        ProviderError: its annotation `pulumi.com/waitFor` is invalid, or selects an object or a list to compare.
    """
    if expectations := wait_for.parse(annotation(live, WAIT_FOR)):
        unmet = next(
            (text for expectation in expectations if (text := expectation.unmet(live))), ""
        )
        return _waiting_for_pods(unmet, related) if unmet else READY
    group = str(live.get("apiVersion", "")).rpartition("/")[0]
    rule = RULES.get((group, str(live.get("kind"))))
    return rule(live, related) if rule else READY


def condition(live: Live, kind: str) -> Live | None:
    """Return a status condition by its type; None if it is missing."""
    conditions = live.get("status", {}).get("conditions") or ()
    return next((item for item in conditions if item.get("type") == kind), None)


def holds(live: Live, kind: str) -> bool:
    """Return True if a status condition is "True"."""
    match = condition(live, kind)
    return match is not None and match.get("status") == "True"


def reason_and_message(part: Live | None) -> str:
    """Return the reason and message of a part of a status: a condition, a container's state, or the status itself."""
    texts = [str(part[key]) for key in ("reason", "message") if part and part.get(key)]
    return ": ".join(texts) or "no reason given"


def _is_observed(live: Live) -> bool:
    """Return True if the controller has observed the latest generation."""
    return int(live.get("status", {}).get("observedGeneration") or 0) >= int(
        live["metadata"].get("generation") or 0
    )


def _waiting_for_pods(reason: str, related: Related) -> Waiting:
    """Return a wait with the most severe problem of a pod: a problem that needs a fix, if there is any."""
    problems = [problem for pod in related.pods if (problem := pod_problem(pod))]
    if not problems:
        return Waiting(reason)
    most_severe = max(problems, key=lambda item: item.stuck)
    return Waiting(f"{reason}; {most_severe.reason}", most_severe.stuck)


def pod_problem(pod: Live) -> Waiting | None:
    """Return the reason why a pod is not running; None if there is none."""
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
                f"pod {name}, container {container['name']}: {reason_and_message(waiting)}",
                reason in STUCK_REASONS,
            )
        terminated = container.get("state", {}).get("terminated") or {}
        if terminated.get("exitCode"):
            return Waiting(
                f"pod {name}, container {container['name']} exited with {terminated['exitCode']} "
                f"({reason_and_message(terminated)})"
            )
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled.get("status") == "False":
        return Waiting(
            f"pod {name} is not scheduled: {scheduled.get('message') or scheduled.get('reason')}"
        )
    return None


def _deployment(live: Live, related: Related) -> Verdict:
    status, desired = live.get("status", {}), live["spec"].get("replicas", 1)
    progressing = condition(live, "Progressing")
    if (
        progressing
        and progressing.get("reason") == "ProgressDeadlineExceeded"
        and _is_observed(live)
    ):
        return Failed(_waiting_for_pods(reason_and_message(progressing), related).reason)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if (
        not _is_observed(live)
        or updated < desired
        or status.get("replicas", 0) > updated
        or available < desired
    ):
        return _waiting_for_pods(
            f"{available} of {desired} pods are available, {updated} are up to date", related
        )
    return READY


def _stateful_set(live: Live, related: Related) -> Verdict:
    status, spec = live.get("status", {}), live["spec"]
    desired, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    strategy = spec.get("updateStrategy", {})
    is_rolling = strategy.get("type", "RollingUpdate") == "RollingUpdate"
    partition = strategy.get("rollingUpdate", {}).get("partition", 0)
    updated = status.get("updatedReplicas", 0) if is_rolling else desired
    if not _is_observed(live) or ready < desired or updated < max(desired - partition, 0):
        text = f"{ready} of {desired} pods are ready"
        if is_rolling:
            text += f", {updated} are up to date"
        return _waiting_for_pods(text, related)
    return READY


def _daemon_set(live: Live, related: Related) -> Verdict:
    status = live.get("status", {})
    desired, available = status.get("desiredNumberScheduled", 0), status.get("numberAvailable", 0)
    is_rolling = (
        live["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") == "RollingUpdate"
    )
    updated = status.get("updatedNumberScheduled", 0) if is_rolling else desired
    if not _is_observed(live) or available < desired or updated < desired:
        text = f"{available} of {desired} pods are available"
        if is_rolling:
            text += f", {updated} are up to date"
        return _waiting_for_pods(text, related)
    return READY


def _job(live: Live, related: Related) -> Verdict:
    if holds(live, "Complete") or holds(live, "SuccessCriteriaMet") or live["spec"].get("suspend"):
        return READY
    if holds(live, "Failed"):
        return Failed(
            _waiting_for_pods(
                f"the Job failed: {reason_and_message(condition(live, 'Failed'))}", related
            ).reason
        )
    status = live.get("status", {})
    succeeded, desired = status.get("succeeded", 0), live["spec"].get("completions", 1)
    return _waiting_for_pods(
        f"{succeeded} of {desired} completions, {status.get('active', 0)} pods active", related
    )


def _pod(live: Live, related: Related) -> Verdict:  # noqa: ARG001  all rules have one signature
    phase = live.get("status", {}).get("phase", "Pending")
    if phase == "Failed":
        problem = pod_problem(live)
        return Failed(
            problem.reason if problem else f"the pod failed: {reason_and_message(live['status'])}"
        )
    if phase == "Succeeded" or holds(live, "Ready"):
        return READY
    return pod_problem(live) or Waiting(f"the pod is {phase}, its containers are not ready")


def _claim(live: Live, related: Related) -> Verdict:
    phase = live.get("status", {}).get("phase", "Pending")
    if phase == "Bound":
        return READY
    if phase == "Lost":
        return Failed("its volume is gone (phase Lost)")
    if (related.storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer":
        return READY  # bound when a pod first uses it, and that pod may depend on this resource
    return Waiting(f"no volume is bound yet (phase {phase})")


def _volume(live: Live, related: Related) -> Verdict:  # noqa: ARG001  all rules have one signature
    status = live.get("status", {})
    if status.get("phase") == "Failed":
        return Failed(f"the volume failed: {reason_and_message(status)}")
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
    ready_endpoints = [
        endpoint
        for endpoint_slice in related.endpoint_slices
        for endpoint in endpoint_slice.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready", True)
    ]
    return (
        READY
        if ready_endpoints
        else Waiting(f"no ready pod matches its selector {dict(spec['selector'])}")
    )


def _definition(live: Live, related: Related) -> Verdict:  # noqa: ARG001  all rules have one signature
    if condition(live, "NamesAccepted") and not holds(live, "NamesAccepted"):
        return Failed(
            f"its names are in use: {reason_and_message(condition(live, 'NamesAccepted'))}"
        )
    return READY if holds(live, "Established") else Waiting("the definition is not established yet")


def _namespace(live: Live, related: Related) -> Verdict:  # noqa: ARG001  all rules have one signature
    phase = live.get("status", {}).get("phase")
    if phase == "Active":
        return READY
    return Waiting(f"the namespace is {phase or 'not active'}", stuck=phase == "Terminating")


def _replication_controller(live: Live, related: Related) -> Verdict:  # noqa: ARG001  all rules have one signature
    desired = live["spec"].get("replicas", 1)
    available = live.get("status", {}).get("availableReplicas", 0)
    if not _is_observed(live) or available != desired:
        return Waiting(f"{available} of {desired} pods are available")
    return READY


def _resource_quota(live: Live, related: Related) -> Verdict:  # noqa: ARG001  all rules have one signature
    enforced = live.get("status", {}).get("hard") or {}
    is_enforced = enforced == (live.get("spec", {}).get("hard") or {})
    return READY if is_enforced else Waiting("the quota is not enforced yet")


def _secret(live: Live, related: Related) -> Verdict:  # noqa: ARG001  all rules have one signature
    if live.get("type") == SERVICE_ACCOUNT_TOKEN and not live.get("data"):
        return Waiting("the token of the service account is not issued yet")
    return READY


def _ingress(live: Live, related: Related) -> Verdict:  # noqa: ARG001  all rules have one signature
    addresses = live.get("status", {}).get("loadBalancer", {}).get("ingress")
    return READY if addresses else Waiting("no ingress controller has given it an address yet")


ReadinessRule: TypeAlias = Callable[[Live, Related], Verdict]
RULES: Mapping[tuple[str, str], ReadinessRule] = {
    ("", "Namespace"): _namespace,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replication_controller,
    ("", "ResourceQuota"): _resource_quota,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("networking.k8s.io", "Ingress"): _ingress,
}
