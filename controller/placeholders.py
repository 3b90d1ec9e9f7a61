"""Placeholders: pods that request a worker's machine in another zone and do nothing with it.

Only a pending pod shows whether a zone has machines: a cluster autoscaler adds a node for it, or does not. A
placeholder has the selectors, tolerations and resources of a worker, a zone, and a priority below all other
pods of Everstep. It uses the worker's image, so that the node already has the image when the group moves there.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from controller.api import ElasticJob, Spec
from controller.pods import REQUIRED, buys_on_demand, exclude_on_demand, owner_reference
from everstep.catalog.names import (
    ELASTICJOB_GROUP,
    GROUP_NAME_LABEL,
    HOSTNAME_LABEL,
    PLACEHOLDER_LABEL,
    PLACEHOLDER_PRIORITY_CLASS,
    ZONE_LABEL,
)

POD_FIELDS = (
    "tolerations",
    "schedulerName",
    "runtimeClassName",
    "imagePullSecrets",
    "securityContext",
    "resources",
)
CONTAINER_FIELDS = ("name", "image", "imagePullPolicy", "resources", "securityContext")
GRACE_SECONDS = 1  # `sleep` ignores SIGTERM as PID 1; 0 would free the node too early


def placeholder_name(job_name: str, zone: str, number: int) -> str:
    """Return the name of a placeholder, which is fixed so that no placeholder is created twice."""
    return f"{job_name}-placeholder-{zone}-{number}"


def selector(job_name: str) -> dict[str, str]:
    """Return the labels of a job's placeholders, which differ from its workers' labels."""
    return {GROUP_NAME_LABEL: ELASTICJOB_GROUP, PLACEHOLDER_LABEL: job_name}


def render_placeholder(job: ElasticJob, spec: Spec, zone: str, number: int) -> dict[str, Any]:
    """Return the manifest of a placeholder."""
    worker = deepcopy(dict(spec.template)).get("spec") or {}
    if buys_on_demand(spec):
        exclude_on_demand(worker)  # only spot machines are requested in another zone
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": placeholder_name(job.name, zone, number),
            "namespace": job.namespace,
            "labels": selector(job.name),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            **{key: worker[key] for key in POD_FIELDS if key in worker},
            "nodeSelector": {**(worker.get("nodeSelector") or {}), ZONE_LABEL: zone},
            "affinity": _affinity(job.name, worker.get("affinity") or {}),
            "priorityClassName": PLACEHOLDER_PRIORITY_CLASS,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [_idle_container(container) for container in worker["containers"]],
        },
    }


def _affinity(job_name: str, affinity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the worker's node affinity, and an anti-affinity between placeholders if workers have one."""
    nodes = {key: affinity[key] for key in ("nodeAffinity",) if key in affinity}
    if "podAntiAffinity" not in affinity:
        return nodes
    term = {"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": selector(job_name)}}
    return {**nodes, "podAntiAffinity": {REQUIRED: [term]}}


def _idle_container(container: Mapping[str, Any]) -> dict[str, Any]:
    fields = {key: container[key] for key in CONTAINER_FIELDS if key in container}
    return {**fields, "command": ["sleep", "infinity"]}
