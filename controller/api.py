"""An ElasticJob, parsed from its JSON and validated.

The API is the TorchElastic controller's (`elastic.pytorch.org/v1alpha1`), so that a manifest for
that controller runs here. The schema of the custom resource rejects most invalid specs; the rules
are checked again because a cluster may still have the older, laxer schema. The errors of an invalid
spec are values, not exceptions: the controller reports them in the status and continues with the
last valid spec.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from controller.placement_settings import PlacementSettings, read_settings
from controller.scaling import Scaling
from controller.spending_settings import SpendingSettings, read_spending
from controller.status import Status
from controller.timestamps import parse_time
from everstep.catalog.names import PLACEMENT_ANNOTATION, SCALING_ANNOTATION, WORKER_CONTAINER

DEFAULT_GRACE_SECONDS = 30  # default of Kubernetes
DEFAULT_BACKOFF_LIMIT = 6  # default of a Kubernetes Job
MAX_SECONDS = 100 * 365 * 86_400  # a longer time has no other effect and may exceed Python's range
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS_LABEL_LENGTH = 63  # limit of RFC 1035; a worker's headless Service has the name of its pod


class CleanPodPolicy(StrEnum):
    """Pods to delete when the job has finished."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class RestartPolicy(StrEnum):
    """Consequence of a worker's exit."""

    EXIT_CODE = "ExitCode"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    NEVER = "Never"


@dataclass(frozen=True, kw_only=True)
class RunPolicy:
    """Limits of a job's run, and the clean-up after it."""

    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.NONE
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int = DEFAULT_BACKOFF_LIMIT
    suspend: bool = False


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A valid spec; `source` is its JSON, and `spending` is None without limits and prices."""

    rendezvous_endpoint: str
    replicas: int
    min_replicas: int
    max_replicas: int
    restart_policy: RestartPolicy
    run_policy: RunPolicy
    template: Mapping[str, Any]
    source: Mapping[str, Any]
    spending: SpendingSettings | None = None

    @property
    def backoff_limit(self) -> int:
        """Consecutive failures allowed for each worker; none with `Never`, regardless of the run policy."""
        return 0 if self.restart_policy is RestartPolicy.NEVER else self.run_policy.backoff_limit

    @property
    def bounds(self) -> str:
        """Minimum and maximum number of workers, in the format of torchrun's --nnodes."""
        return f"{self.min_replicas}:{self.max_replicas}"

    @property
    def grace_seconds(self) -> float:
        """Time in which a worker ends after its deletion; Kubernetes' default if the pod sets none."""
        pod = _mapping(self.template.get("spec"))
        seconds = pod.get("terminationGracePeriodSeconds")
        return float(min(DEFAULT_GRACE_SECONDS if seconds is None else seconds, MAX_SECONDS))

    @property
    def suspended(self) -> bool:
        """True if the job must have no workers."""
        return self.run_policy.suspend or self.replicas == 0


@dataclass(frozen=True, kw_only=True)
class ElasticJob:
    """An ElasticJob.

    Attributes:
        spec: the object's spec, or the last valid spec if it is invalid; None if no spec was ever valid.
        validation_errors: errors of the object's current spec and annotations; empty if both are valid.
        created: time at which the object was created; None if the object has none.
        scaling: source of the number of workers.
        placement: zones of the workers; None if they may be in any zone.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    spec: Spec | None
    validation_errors: tuple[str, ...]
    status: Status
    terminating: bool = False
    created: datetime | None = None
    scaling: Scaling = Scaling.FIXED
    placement: PlacementSettings | None = None

    def worker_name(self, index: int) -> str:
        """Return the name of a worker's pod and of its Service."""
        return f"{self.name}-worker-{index}"


def read_job(source: Mapping[str, Any], rejection: str | None = None) -> ElasticJob:
    """Parse an ElasticJob's JSON.

    Args:
        source: the object as the API server returns it.
        rejection: reason why the API server rejects a pod with this spec; None if it does not.
    """
    metadata = source["metadata"]
    status = Status.from_json(source.get("status") or {})
    spec, errors = read_spec(source.get("spec") or {}, metadata["name"])
    annotations = metadata.get("annotations") or {}
    scaling = annotations.get(SCALING_ANNOTATION, Scaling.FIXED)
    if scaling not in list(Scaling):
        errors = (*errors, _error_of_scaling(scaling))
        # The job keeps its previous mode.
        spec, scaling = None, Scaling.CAPACITY if status.scaling else Scaling.FIXED
    placement, placement_errors = read_settings(annotations.get(PLACEMENT_ANNOTATION))
    if placement_errors:
        spec, errors = None, (*errors, *placement_errors)
    if rejection:
        spec, errors = None, (*errors, rejection)
    if spec is None and status.last_valid_spec:
        spec, _ = read_spec(status.last_valid_spec, metadata["name"])
    return ElasticJob(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        spec=spec,
        validation_errors=errors,
        status=status,
        terminating="deletionTimestamp" in metadata,
        created=parse_time(metadata.get("creationTimestamp")),
        scaling=Scaling(scaling),
        placement=placement,
    )


def read_spec(source: Mapping[str, Any], job_name: str) -> tuple[Spec | None, tuple[str, ...]]:
    """Parse a spec; return it and no errors, or None and its errors."""
    worker = _mapping(_mapping(source.get("replicaSpecs")).get("Worker"))
    spending, spending_errors = read_spending(source.get("spending"))
    errors = [
        *spending_errors,
        *_errors_of_workers(worker),
        *_errors_of_range(source, worker.get("replicas")),
        *_errors_of_run_policy(_mapping(source.get("RunPolicy"))),
    ]
    if not source.get("rdzvEndpoint"):
        errors.append("spec.rdzvEndpoint is empty; name the etcd service, as host:port")
    if not errors:
        errors = _errors_of_name(job_name, source.get("maxReplicas") or worker["replicas"])
    if errors:
        return None, tuple(errors)
    replicas: int = worker["replicas"]
    return Spec(
        rendezvous_endpoint=source["rdzvEndpoint"],
        replicas=replicas,
        # Bounds default to the number of replicas, as in the upstream controller. 0 replicas suspend
        # the job; workers created after that still need a bound of at least 1.
        min_replicas=source.get("minReplicas") or max(replicas, 1),
        max_replicas=source.get("maxReplicas") or max(replicas, 1),
        restart_policy=RestartPolicy(worker.get("restartPolicy") or RestartPolicy.EXIT_CODE),
        run_policy=_read_run_policy(_mapping(source.get("RunPolicy"))),
        template=worker["template"],
        source=source,
        spending=spending,
    ), ()


def _read_run_policy(source: Mapping[str, Any]) -> RunPolicy:
    limit, deadline = source.get("backoffLimit"), source.get("activeDeadlineSeconds")
    return RunPolicy(
        clean_pod_policy=CleanPodPolicy(source.get("cleanPodPolicy") or CleanPodPolicy.NONE),
        ttl_seconds_after_finished=source.get("ttlSecondsAfterFinished"),
        active_deadline_seconds=None if deadline is None else min(deadline, MAX_SECONDS),
        backoff_limit=DEFAULT_BACKOFF_LIMIT if limit is None else limit,
        suspend=bool(source.get("suspend")),
    )


def _errors_of_workers(worker: Mapping[str, Any]) -> list[str]:
    path, errors = "spec.replicaSpecs.Worker", []
    if not _is_whole(worker.get("replicas"), minimum=0):
        errors.append(
            f"{path}.replicas is {worker.get('replicas')!r}; set it to a whole number, 0 or more"
        )
    policy = worker.get("restartPolicy")
    if policy and policy not in list(RestartPolicy):
        errors.append(f"{path}.restartPolicy is {policy!r}; use one of {', '.join(RestartPolicy)}")
    containers = _mapping(_mapping(worker.get("template")).get("spec")).get("containers") or []
    if not any(_mapping(container).get("name") == WORKER_CONTAINER for container in containers):
        errors.append(
            f"{path}.template has no container named {WORKER_CONTAINER}; use this name for the container that trains, "
            "since its exit code determines what happens to the worker"
        )
    errors += [
        f"{path}.template has the args {container['args']!r} in the container {container.get('name')!r}; "
        "write them as a list"
        for container in map(_mapping, containers)
        if not isinstance(container.get("args") or [], list)
    ]
    return errors


def _errors_of_range(source: Mapping[str, Any], replicas: object) -> list[str]:
    minimum, maximum = source.get("minReplicas"), source.get("maxReplicas")
    errors = [
        f"spec.{name} is {value!r}; set it to a whole number, 1 or more, or leave it out"
        for name, value in (("minReplicas", minimum), ("maxReplicas", maximum))
        if value is not None and not _is_whole(value, minimum=1)
    ]
    if errors or not isinstance(replicas, int):
        return errors
    if minimum is not None and maximum is not None and minimum > maximum:
        return [
            f"spec.minReplicas ({minimum}) is more than spec.maxReplicas ({maximum}); lower one or raise the other"
        ]
    if minimum is not None and 0 < replicas < minimum:
        return [
            (
                f"spec.replicaSpecs.Worker.replicas ({replicas}) is less than spec.minReplicas ({minimum}), so "
                "training could never start; raise replicas or lower minReplicas"
            )
        ]
    if maximum is not None and replicas > maximum:
        return [
            (
                f"spec.replicaSpecs.Worker.replicas ({replicas}) is more than spec.maxReplicas ({maximum}), so the "
                "workers above it could never join; lower replicas or raise maxReplicas"
            )
        ]
    return []


def _errors_of_run_policy(source: Mapping[str, Any]) -> list[str]:
    errors = [
        f"spec.RunPolicy.{name} is {source[name]!r}; set it to a whole number, {minimum} or more, or leave it out"
        for name, minimum in (
            ("ttlSecondsAfterFinished", 0),
            ("activeDeadlineSeconds", 1),
            ("backoffLimit", 0),
        )
        if source.get(name) is not None and not _is_whole(source[name], minimum=minimum)
    ]
    policy = source.get("cleanPodPolicy")
    if policy and policy not in list(CleanPodPolicy):
        errors.append(
            f"spec.RunPolicy.cleanPodPolicy is {policy!r}; use one of {', '.join(CleanPodPolicy)}"
        )
    return errors


def _errors_of_name(name: str, max_workers: int) -> list[str]:
    longest_name = f"{name}-worker-{max(max_workers, 1) - 1}"
    if DNS_LABEL.fullmatch(name) and len(longest_name) <= DNS_LABEL_LENGTH:
        return []
    return [
        (
            f"metadata.name is {name!r}; its workers and their Services are named like {longest_name!r}, which must be "
            f"at most {DNS_LABEL_LENGTH} lower-case letters, digits and '-', beginning with a letter; create "
            "the job again with such a name"
        )
    ]


def _error_of_scaling(value: str) -> str:
    return f"metadata.annotations[{SCALING_ANNOTATION}] is {value!r}; use one of {', '.join(Scaling)}, or leave it out"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_whole(value: object, *, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum
