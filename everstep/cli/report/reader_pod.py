"""A short-lived pod with the shared volume, for the files of a run while no worker runs.

A worker that has ended runs no commands, and a job that is suspended or waits for machines has no worker. The pod is
derived from the ElasticJob: it mounts the volume as the workers do, read-only, under their service account. It runs on
the nodes of etcd, so that it never waits for a GPU. It has no network, since no policy allows it any, and it ends
after READING_SECONDS even if the command is killed before it can delete it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from everstep.catalog.names import (
    ELASTICJOB_API_VERSION,
    ELASTICJOB_KIND,
    ELASTICJOB_PLURAL,
    ETCD,
    JOB_NAMESPACE,
    MOUNT,
    NAME_LABEL,
    WORKER_PRIORITY_CLASS,
)
from everstep.cli.console import progress
from everstep.cli.kubernetes_client import (
    ClusterUnreachableError,
    KubernetesClient,
    pod_view,
    retry_while_unreachable,
    true_conditions,
)
from everstep.errors import EverstepError
from everstep.progress import Step

NAME = "run-reader"
START_SECONDS = 180.0
"""Time in which the pod has to start: its node may have to pull the image."""

READING_SECONDS = 600
POLL_SECONDS = 1.0
PODS = f"/api/v1/namespaces/{JOB_NAMESPACE}/pods"
JOBS = f"/apis/{ELASTICJOB_API_VERSION}/namespaces/{JOB_NAMESPACE}/{ELASTICJOB_PLURAL}"
ETCD_MEMBERS = f"/apis/apps/v1/namespaces/{JOB_NAMESPACE}/statefulsets/{ETCD}"
Json = dict[str, Any]

_INHERITED_FIELDS = (
    "serviceAccountName",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "securityContext",
)
"""Fields of a worker's pod that the reader has, too."""


class RunUnreadableError(EverstepError):
    """The files of a run cannot be read: no worker runs, and no other pod could read them."""


@contextmanager
def reader_pod(
    cluster: KubernetesClient,
    job: str,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[str]:
    """Start a pod that can read the files of a job's run, yield its name, and delete it at the end of the block.

    Raises:
        RunUnreadableError: there is no such job, or the pod cannot be created or does not start in time.
        ClusterUnreachableError: the API server does not respond.
    """
    elastic_job = cluster.get(f"{JOBS}/{job}", missing={})
    name = f"{NAME}-{uuid4().hex[:8]}"
    pod = manifest(elastic_job, cluster.get(ETCD_MEMBERS, missing={}), name)
    if pod is None:
        raise _unreadable(
            elastic_job, f"there is no ElasticJob {job} with a volume", "`everstep up` creates it."
        )
    try:
        with progress().step("Starting a pod that reads the files of the run") as step:
            _create(cluster, elastic_job, pod)
            _wait_until_running(cluster, elastic_job, name, step, sleep, clock)
        yield name
    finally:
        with suppress(EverstepError):  # the pod ends in any case
            retry_while_unreachable(lambda: cluster.delete(f"{PODS}/{name}"), sleep, clock)


def _create(cluster: KubernetesClient, job: Json, pod: Json) -> None:
    try:
        cluster.create(PODS, pod)
    except ClusterUnreachableError:
        raise
    except EverstepError as error:
        fix = f"Allow the kubeconfig's user to create pods in {JOB_NAMESPACE}, and keep one pod of its quota free."
        raise _unreadable(job, error.problem, fix) from None


def _wait_until_running(
    cluster: KubernetesClient,
    job: Json,
    name: str,
    step: Step,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> None:
    deadline = clock() + START_SECONDS
    while True:
        pod = retry_while_unreachable(lambda: cluster.get(f"{PODS}/{name}", {}), sleep, clock)
        if pod and pod_view(pod).phase == "Running":
            return
        reason = _wait_reason(pod)
        if not pod or pod_view(pod).phase != "Pending":
            problem, fix = f"the pod {name} ended before it could be used", "Run the command again."
            raise _unreadable(job, f"{problem}: {reason}", fix)
        if clock() > deadline:
            problem = f"the pod {name} did not start within {START_SECONDS:.0f} s: {reason}"
            raise _unreadable(job, problem, "Make room on the nodes of etcd, on which it runs.")
        step.note(reason)
        sleep(POLL_SECONDS)


def _wait_reason(pod: Json) -> str:
    """Return the reason why a pod does not run."""
    if not pod:
        return "it was deleted"
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or [{}]
    waiting = (containers[0].get("state") or {}).get("waiting") or {}
    reasons = (
        pod_view(pod).unscheduled_reason,
        str(status.get("message") or ""),
        ": ".join(str(waiting[key]) for key in ("reason", "message") if waiting.get(key)),
    )
    return next(filter(None, reasons), "its node mounts the volume or pulls the image")


def _unreadable(job: Json, cause: str, fix: str) -> RunUnreadableError:
    """Return the error for a run that cannot be read, with the newest condition of its job."""
    conditions = true_conditions(job.get("status") or {})
    newest = conditions[-1] if conditions else None
    state = f" (the job is {newest.type}: {newest.message or newest.reason})" if newest else ""
    return RunUnreadableError(
        f"no worker runs{state}, so the files of the run cannot be read: {cause}", fix
    )


def manifest(job: Json, etcd: Json, name: str) -> Json | None:
    """Return the pod; None if the job does not exist or its workers do not mount the volume.

    Args:
        job: ElasticJob of the run; empty without one.
        etcd: StatefulSet of etcd; empty without one.
        name: name of the pod.
    """
    template = _nested(job, "spec", "replicaSpecs", "Worker", "template")
    worker = template.get("spec") or {}
    container = (worker.get("containers") or [{}])[0]
    mounts = [mount for mount in container.get("volumeMounts") or () if mount["mountPath"] == MOUNT]
    if not mounts:
        return None
    labels = (template.get("metadata") or {}).get("labels") or {}
    volumes = [volume for volume in worker["volumes"] if volume["name"] == mounts[0]["name"]]
    system = _nested(etcd, "spec", "template", "spec")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": JOB_NAMESPACE,
            # The volume may require labels. Another name than a worker's: policies let workers connect.
            "labels": {**labels, NAME_LABEL: NAME},
            "ownerReferences": [_owner(job)],  # `everstep down` does not wait for the pod
        },
        "spec": {
            **{field: worker[field] for field in _INHERITED_FIELDS if field in worker},
            **{
                field: system[field] for field in ("nodeSelector", "tolerations") if field in system
            },
            **_image_pull_secrets(worker, system),
            "restartPolicy": "Never",
            "activeDeadlineSeconds": READING_SECONDS + int(START_SECONDS),
            "terminationGracePeriodSeconds": 1,  # `sleep` ignores SIGTERM as the first process
            "priorityClassName": WORKER_PRIORITY_CLASS,  # which preempts no other pod
            "containers": [_container(container, system, mounts[0])],
            "volumes": volumes,
        },
    }


def _nested(value: Json, *path: str) -> Json:
    """Return the object at a path of keys; empty if there is none."""
    for key in path:
        value = value.get(key) or {}
    return value


def _owner(job: Json) -> Json:
    metadata = job["metadata"]
    return {
        "apiVersion": ELASTICJOB_API_VERSION,
        "kind": ELASTICJOB_KIND,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _image_pull_secrets(worker: Json, system: Json) -> Json:
    """Return the credentials for the images of the workers and of etcd, since the reader has one of these images."""
    secrets = [*worker.get("imagePullSecrets", ()), *system.get("imagePullSecrets", ())]
    unique_secrets = [secret for n, secret in enumerate(secrets) if secret not in secrets[:n]]
    return {"imagePullSecrets": unique_secrets} if unique_secrets else {}


def _container(worker: Json, system: Json, mount: Mapping[str, Any]) -> Json:
    image_owner = _small_image(system) or worker
    return {
        "name": NAME,
        **{
            field: image_owner[field]
            for field in ("image", "imagePullPolicy")
            if field in image_owner
        },
        "command": ["sleep", str(READING_SECONDS)],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"memory": "96Mi"},
        },
        "volumeMounts": [{**mount, "readOnly": True}],
    }


def _small_image(system: Json) -> Json:
    """Return the container of etcd's pod whose image has a shell, and which its nodes have; empty if there is none.

    Without it, the image of the workers is used, which has a shell, too: their files are read in the same way.
    """
    containers = [*(system.get("initContainers") or ()), *(system.get("containers") or ())]
    return next((item for item in containers if item["name"] in ("rejoin", "users")), {})
