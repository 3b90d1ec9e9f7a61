"""What an ElasticJob asks for, read from its JSON and checked.

The API is the TorchElastic controller's (`elastic.pytorch.org/v1alpha1`), so that a manifest for
that controller runs here. The custom resource's schema refuses most nonsense already; the rules are
checked here again because a cluster may still hold the older, laxer schema. A faulty spec is a
value with its faults listed, not an exception: the controller must say so in the status and go on
with the spec before it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from controller.observed import WORKER_CONTAINER
from controller.scaling import ANNOTATION, Scaling
from controller.status import Status

GROUP = "elastic.pytorch.org"
VERSION = "v1alpha1"
KIND = "ElasticJob"
PLURAL = "elasticjobs"
DEFAULT_BACKOFF_LIMIT = 6  # the same as a Kubernetes Job's
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS_LABEL_LENGTH = 63  # RFC 1035; a worker's headless Service is named as its pod is


class CleanPodPolicy(StrEnum):
    """Which pods go when the job is over."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class RestartPolicy(StrEnum):
    """What the end of a worker means."""

    EXIT_CODE = "ExitCode"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    NEVER = "Never"


@dataclass(frozen=True, kw_only=True)
class RunPolicy:
    """How a job may end, and what is left of it."""

    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.NONE
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int = DEFAULT_BACKOFF_LIMIT
    suspend: bool = False


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A spec without faults; `source` is the JSON it was read from."""

    rendezvous_endpoint: str
    replicas: int
    min_replicas: int
    max_replicas: int
    restart_policy: RestartPolicy
    run_policy: RunPolicy
    template: Mapping[str, Any]
    source: Mapping[str, Any]

    @property
    def backoff_limit(self) -> int:
        """Failures in a row that a worker is allowed; `Never` allows none, whatever the run policy says."""
        return 0 if self.restart_policy is RestartPolicy.NEVER else self.run_policy.backoff_limit

    @property
    def bounds(self) -> str:
        """How few and how many workers train together, as torchrun's --nnodes takes it."""
        return f"{self.min_replicas}:{self.max_replicas}"

    @property
    def suspended(self) -> bool:
        """Whether the job is to have no workers for now."""
        return self.run_policy.suspend or self.replicas == 0


@dataclass(frozen=True, kw_only=True)
class ElasticJob:
    """One ElasticJob as the API server holds it.

    Attributes:
        spec: what to act on: the object's spec, or, if that is faulty, the last one without faults.
            None where there was never one.
        faults: what is wrong with the object's spec now, each with its remedy; empty for a good
            one.
        scaling: who decides how many workers it has.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    spec: Spec | None
    faults: tuple[str, ...]
    status: Status
    deleting: bool = False
    scaling: Scaling = Scaling.FIXED

    def worker_name(self, index: int) -> str:
        """Return the name of a worker's pod and of its Service."""
        return f"{self.name}-worker-{index}"


def read_job(source: Mapping[str, Any], refusal: str | None = None) -> ElasticJob:
    """Read an ElasticJob from its JSON.

    Args:
        source: the object as the API server returns it.
        refusal: why the API server would not take a pod made from this spec, where it said so.
    """
    metadata = source["metadata"]
    status = Status.read(source.get("status") or {})
    spec, faults = read_spec(source.get("spec") or {}, metadata["name"])
    scaling = (metadata.get("annotations") or {}).get(ANNOTATION, Scaling.FIXED)
    if scaling not in list(Scaling):
        faults = (*faults, _fault_of_scaling(scaling))
        spec, scaling = None, Scaling.FIXED
    if refusal:
        spec, faults = None, (*faults, refusal)
    if spec is None and status.last_valid_spec:
        spec, _ = read_spec(status.last_valid_spec, metadata["name"])
    return ElasticJob(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        spec=spec,
        faults=faults,
        status=status,
        deleting="deletionTimestamp" in metadata,
        scaling=Scaling(scaling),
    )


def read_spec(source: Mapping[str, Any], job_name: str) -> tuple[Spec | None, tuple[str, ...]]:
    """Read a spec; return it and no faults, or None and every fault found."""
    worker = _mapping(_mapping(source.get("replicaSpecs")).get("Worker"))
    faults = [
        *_faults_of_workers(worker),
        *_faults_of_range(source, worker.get("replicas")),
        *_faults_of_run_policy(_mapping(source.get("RunPolicy"))),
    ]
    if not source.get("rdzvEndpoint"):
        faults.append("spec.rdzvEndpoint is empty; name the etcd service, as host:port")
    if not faults:
        faults = _faults_of_name(job_name, source.get("maxReplicas") or worker["replicas"])
    if faults:
        return None, tuple(faults)
    replicas: int = worker["replicas"]
    return Spec(
        rendezvous_endpoint=source["rdzvEndpoint"],
        replicas=replicas,
        # Without a bound the number of replicas is it, as in the upstream controller; 0 replicas
        # suspend the job, and a worker made after that must still find a bound of 1.
        min_replicas=source.get("minReplicas") or max(replicas, 1),
        max_replicas=source.get("maxReplicas") or max(replicas, 1),
        restart_policy=RestartPolicy(worker.get("restartPolicy") or RestartPolicy.EXIT_CODE),
        run_policy=_read_run_policy(_mapping(source.get("RunPolicy"))),
        template=worker["template"],
        source=source,
    ), ()


def _read_run_policy(source: Mapping[str, Any]) -> RunPolicy:
    limit = source.get("backoffLimit")
    return RunPolicy(
        clean_pod_policy=CleanPodPolicy(source.get("cleanPodPolicy") or CleanPodPolicy.NONE),
        ttl_seconds_after_finished=source.get("ttlSecondsAfterFinished"),
        active_deadline_seconds=source.get("activeDeadlineSeconds"),
        backoff_limit=DEFAULT_BACKOFF_LIMIT if limit is None else limit,
        suspend=bool(source.get("suspend")),
    )


def _faults_of_workers(worker: Mapping[str, Any]) -> list[str]:
    where, faults = "spec.replicaSpecs.Worker", []
    if not _whole(worker.get("replicas"), least=0):
        faults.append(
            f"{where}.replicas is {worker.get('replicas')!r}; set it to a whole number, 0 or more"
        )
    policy = worker.get("restartPolicy")
    if policy and policy not in list(RestartPolicy):
        faults.append(f"{where}.restartPolicy is {policy!r}; use one of {', '.join(RestartPolicy)}")
    containers = _mapping(_mapping(worker.get("template")).get("spec")).get("containers") or []
    if not any(_mapping(container).get("name") == WORKER_CONTAINER for container in containers):
        faults.append(
            f"{where}.template has no container named {WORKER_CONTAINER}; give the one that trains this name, "
            "since its exit code decides what becomes of the worker"
        )
    return faults


def _faults_of_range(source: Mapping[str, Any], replicas: object) -> list[str]:
    least, most = source.get("minReplicas"), source.get("maxReplicas")
    faults = [
        f"spec.{name} is {value!r}; set it to a whole number, 1 or more, or leave it out"
        for name, value in (("minReplicas", least), ("maxReplicas", most))
        if value is not None and not _whole(value, least=1)
    ]
    if faults or not isinstance(replicas, int):
        return faults
    if least is not None and most is not None and least > most:
        return [
            f"spec.minReplicas ({least}) is more than spec.maxReplicas ({most}); lower one or raise the other"
        ]
    if least is not None and 0 < replicas < least:
        return [
            (
                f"spec.replicaSpecs.Worker.replicas ({replicas}) is less than spec.minReplicas ({least}), so training "
                "could never start; raise replicas or lower minReplicas"
            )
        ]
    if most is not None and replicas > most:
        return [
            (
                f"spec.replicaSpecs.Worker.replicas ({replicas}) is more than spec.maxReplicas ({most}), so the "
                "workers above it could never join; lower replicas or raise maxReplicas"
            )
        ]
    return []


def _faults_of_run_policy(source: Mapping[str, Any]) -> list[str]:
    faults = [
        f"spec.RunPolicy.{name} is {source[name]!r}; set it to a whole number, {least} or more, or leave it out"
        for name, least in (
            ("ttlSecondsAfterFinished", 0),
            ("activeDeadlineSeconds", 1),
            ("backoffLimit", 0),
        )
        if source.get(name) is not None and not _whole(source[name], least=least)
    ]
    policy = source.get("cleanPodPolicy")
    if policy and policy not in list(CleanPodPolicy):
        faults.append(
            f"spec.RunPolicy.cleanPodPolicy is {policy!r}; use one of {', '.join(CleanPodPolicy)}"
        )
    return faults


def _faults_of_name(name: str, most: int) -> list[str]:
    longest = f"{name}-worker-{max(most, 1) - 1}"
    if DNS_LABEL.fullmatch(name) and len(longest) <= DNS_LABEL_LENGTH:
        return []
    return [
        (
            f"metadata.name is {name!r}; its workers and their Services are named like {longest!r}, which must be "
            f"at most {DNS_LABEL_LENGTH} lower-case letters, digits and '-', beginning with a letter; make the job "
            "anew under such a name"
        )
    ]


def _fault_of_scaling(said: str) -> str:
    return f"metadata.annotations[{ANNOTATION}] is {said!r}; use one of {', '.join(Scaling)}, or leave it out"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
