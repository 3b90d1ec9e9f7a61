"""The pods and Services of a job, exactly as the upstream controller makes them: names, labels, arguments, owner."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from controller.api import GROUP, KIND, VERSION, ElasticJob, RestartPolicy, Spec
from controller.observed import BOUNDS_ANNOTATION

POD_RESTART_POLICY = {
    RestartPolicy.EXIT_CODE: "Never",  # the controller replaces the pod, so the kubelet must not restart it
    RestartPolicy.NEVER: "Never",
    RestartPolicy.ON_FAILURE: "OnFailure",
    # A kubelet told `Always` starts a finished trainer again: such a job could never end.
    RestartPolicy.ALWAYS: "OnFailure",
}


def selector(job_name: str) -> dict[str, str]:
    """Return the labels that all pods and Services of a job carry."""
    return {"group-name": GROUP, "job-name": job_name, "replica-type": "worker"}


def labels(job_name: str, index: int) -> dict[str, str]:
    """Return the labels of one worker's pod; its Service selects by them."""
    return {**selector(job_name), "replica-index": str(index)}


def arguments(job_name: str, spec: Spec) -> list[str]:
    """Return what is put before every container's own arguments.

    A change of the bounds reaches the arguments of new pods only; running ones are told by their
    annotation, and those that cannot read it keep the bounds that they were started with.
    """
    return [
        "--rdzv_backend=etcd",
        f"--rdzv_endpoint={spec.rendezvous_endpoint}",
        f"--rdzv_id={job_name}",
        f"--nnodes={spec.bounds}",
    ]


def render_pod(job: ElasticJob, spec: Spec, index: int) -> dict[str, Any]:
    """Return one worker's pod, ready to be created."""
    template = deepcopy(dict(spec.template))
    own = template.get("metadata") or {}
    pod_spec = template.get("spec") or {}
    pod_spec["restartPolicy"] = POD_RESTART_POLICY[spec.restart_policy]
    for container in pod_spec["containers"]:
        container["args"] = arguments(job.name, spec) + list(container.get("args") or ())
    metadata = _metadata(job, index)
    metadata["labels"] = {**(own.get("labels") or {}), **metadata["labels"]}
    metadata["annotations"] = {**(own.get("annotations") or {}), BOUNDS_ANNOTATION: spec.bounds}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def render_service(job: ElasticJob, index: int) -> dict[str, Any]:
    """Return one worker's headless Service: it gives the pod its name in DNS, and needs no port for that."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, index),
        "spec": {"clusterIP": "None", "selector": labels(job.name, index)},
    }


def owned_by(source: Mapping[str, Any], uid: str) -> bool:
    """Say whether an object's controller is the job with this uid."""
    owners = source["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["uid"] == uid for owner in owners)


def _metadata(job: ElasticJob, index: int) -> dict[str, Any]:
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": job.worker_name(index),
        "namespace": job.namespace,
        "labels": labels(job.name, index),
        "ownerReferences": [owner],
    }
