"""A job's pods and Services, with the names, labels, arguments and owner of the upstream controller."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from controller.api import ElasticJob, RestartPolicy, Spec, read_spec
from controller.objects import Pod, rendezvous_of
from everstep.catalog.names import (
    BOUNDS_ANNOTATION,
    CAPACITY_LABEL,
    ELASTICJOB_API_VERSION,
    ELASTICJOB_GROUP,
    ELASTICJOB_KIND,
    GROUP_NAME_LABEL,
    JOB_NAME_LABEL,
    ON_DEMAND,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
    TEMPLATE_HASH_ANNOTATION,
    WORKER_CONTAINER,
    WORKER_REPLICA,
    ZONE_LABEL,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
MAX_WEIGHT = 100  # maximum weight of a preference in Kubernetes
POD_RESTART_POLICY = {
    RestartPolicy.EXIT_CODE: "Never",  # the controller replaces the pod, so the kubelet must not restart it
    RestartPolicy.NEVER: "Never",
    RestartPolicy.ON_FAILURE: "OnFailure",
    # With `Always` the kubelet would restart a finished trainer, and the job could never end.
    RestartPolicy.ALWAYS: "OnFailure",
}


def selector(job_name: str) -> dict[str, str]:
    """Return the labels of all worker pods and Services of a job."""
    return {
        GROUP_NAME_LABEL: ELASTICJOB_GROUP,
        JOB_NAME_LABEL: job_name,
        REPLICA_TYPE_LABEL: WORKER_REPLICA,
    }


def labels(job_name: str, index: int) -> dict[str, str]:
    """Return the labels of one worker's pod, by which its Service selects it."""
    return {**selector(job_name), REPLICA_INDEX_LABEL: str(index)}


def arguments(job_name: str, spec: Spec) -> list[str]:
    """Return the arguments that precede every container's own.

    Only new pods get changed bounds as arguments. Running pods read them from their annotation;
    trainers that do not read it keep their initial bounds.
    """
    return [
        "--rdzv_backend=etcd",
        f"--rdzv_endpoint={spec.rendezvous_endpoint}",
        f"--rdzv_id={job_name}",
        f"--nnodes={spec.bounds}",
    ]


def with_rendezvous_of(job: ElasticJob, pods: Iterable[Pod]) -> ElasticJob:
    """Return the job, with its previous spec and an error if its workers run with another rendezvous.

    Running workers keep their rendezvous, so a worker created with the new one would train in a group of its own, in
    the same folder. A spec that suspends the job is accepted immediately. If the job resumes while workers still
    terminate, that suspending spec is the previous one. The endpoint is read from the workers, since a status may
    lack the spec.
    """
    if job.spec is None or job.spec.suspended:
        return job
    up = [pod for pod in pods if pod.is_up and pod.rendezvous]
    staying = [pod for pod in up if not pod.terminating] or up
    requested = dict(_rendezvous(job.name, job.spec))
    others = [options for pod in staying if (options := dict(pod.rendezvous)) != requested]
    if not others:
        return job
    running = others[0]
    names = sorted(
        name for name in {*running, *requested} if running.get(name) != requested.get(name)
    )
    changes = ", ".join(
        f"{name} {running.get(name)!r} to {requested.get(name)!r}" for name in names
    )
    error = (
        f"the rendezvous changes from {changes} while workers run, which would train in two groups; undo it, or set "
        "spec.RunPolicy.suspend to true until the workers have ended"
    )
    endpoint = running.get("endpoint", job.spec.rendezvous_endpoint)
    source = {**(job.status.last_valid_spec or job.spec.source), "rdzvEndpoint": endpoint}
    spec, _ = read_spec(source, job.name)
    spec = spec or replace(job.spec, rendezvous_endpoint=endpoint)
    return replace(job, spec=spec, validation_errors=(*job.validation_errors, error))


def _rendezvous(job_name: str, spec: Spec) -> tuple[tuple[str, str], ...]:
    """Return the rendezvous of the pods that a spec creates."""
    containers = (spec.template.get("spec") or {}).get("containers") or ()
    own = next(
        item.get("args") or () for item in containers if item.get("name") == WORKER_CONTAINER
    )
    return rendezvous_of((*arguments(job_name, spec), *own))


def render_pod(
    job: ElasticJob,
    spec: Spec,
    index: int,
    zone: str | None = None,
    *,
    on_demand: bool = False,
) -> dict[str, Any]:
    """Return the manifest of a worker's pod, which runs in `zone` (None: in any zone).

    Without a policy for on-demand machines, it may run on machines of either kind.
    """
    template = deepcopy(dict(spec.template))
    template_metadata = template.get("metadata") or {}
    pod_spec = template.get("spec") or {}
    record = job.status.workers.get(index)
    if record and record.failures > spec.backoff_limit and record.failed_on:
        _avoid_node(pod_spec, record.failed_on)
    if zone is not None:
        pod_spec["nodeSelector"] = {**(pod_spec.get("nodeSelector") or {}), ZONE_LABEL: zone}
    if on_demand:
        pod_spec["nodeSelector"] = {
            **(pod_spec.get("nodeSelector") or {}),
            CAPACITY_LABEL: ON_DEMAND,
        }
    elif buys_on_demand(spec):
        exclude_on_demand(pod_spec)
    pod_spec["restartPolicy"] = POD_RESTART_POLICY[spec.restart_policy]
    for container in pod_spec["containers"]:
        container["args"] = arguments(job.name, spec) + list(container.get("args") or ())
    metadata = _metadata(job, index)
    metadata["labels"] = {**(template_metadata.get("labels") or {}), **metadata["labels"]}
    metadata["annotations"] = {
        **(template_metadata.get("annotations") or {}),
        BOUNDS_ANNOTATION: spec.bounds,
        TEMPLATE_HASH_ANNOTATION: template_hash(spec, has_zone=zone is not None),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def template_hash(spec: Spec, *, has_zone: bool) -> str:
    """Return a hash of everything in a job that determines its pods, except the bounds, which pods read later.

    Which zone and which machines a worker gets is the decision of the controller, and no part of it.
    """
    source = [
        spec.template,
        spec.rendezvous_endpoint,
        spec.restart_policy,
        buys_on_demand(spec),
        has_zone,
    ]
    text = json.dumps(source, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def buys_on_demand(spec: Spec) -> bool:
    """Return True if the controller decides which workers run on on-demand machines."""
    return spec.spending is not None and spec.spending.on_demand is not None


def exclude_on_demand(pod_spec: dict[str, Any]) -> None:
    """Exclude on-demand machines by their label, since spot machines may have no label."""
    expression = {"key": CAPACITY_LABEL, "operator": "NotIn", "values": [ON_DEMAND]}
    affinity = _node_affinity(pod_spec)
    affinity[REQUIRED] = affinity.get(REQUIRED) or {"nodeSelectorTerms": [{}]}
    for term in affinity[REQUIRED]["nodeSelectorTerms"]:
        term["matchExpressions"] = [*(term.get("matchExpressions") or ()), expression]


def _avoid_node(pod_spec: dict[str, Any], node: str) -> None:
    """Add a preference for any other node; without another node, the pod still runs on this node."""
    affinity = _node_affinity(pod_spec)
    other_node = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    term = {"weight": MAX_WEIGHT, "preference": {"matchFields": [other_node]}}
    affinity[PREFERRED] = [*(affinity.get(PREFERRED) or ()), term]


def _node_affinity(pod_spec: dict[str, Any]) -> dict[str, Any]:
    """Return the node affinity of a pod, to be changed; add an empty one if it is missing or null."""
    pod_spec["affinity"] = pod_spec.get("affinity") or {}
    affinity: dict[str, Any] = pod_spec["affinity"].get("nodeAffinity") or {}
    pod_spec["affinity"]["nodeAffinity"] = affinity
    return affinity


def render_service(job: ElasticJob, index: int) -> dict[str, Any]:
    """Return the manifest of a worker's headless Service, which gives the pod its DNS name and needs no port."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, index),
        "spec": {"clusterIP": "None", "selector": labels(job.name, index)},
    }


def is_owned_by(source: Mapping[str, Any], uid: str) -> bool:
    """Return True if the job with this uid is an object's controller."""
    owners = source["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["uid"] == uid for owner in owners)


def owner_reference(job: ElasticJob) -> dict[str, Any]:
    """Return the reference by which an object is deleted with its job."""
    return {
        "apiVersion": ELASTICJOB_API_VERSION,
        "kind": ELASTICJOB_KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _metadata(job: ElasticJob, index: int) -> dict[str, Any]:
    return {
        "name": job.worker_name(index),
        "namespace": job.namespace,
        "labels": labels(job.name, index),
        "ownerReferences": [owner_reference(job)],
    }
