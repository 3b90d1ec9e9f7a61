"""Simulation of kubelets and the ElasticJob controller, which only update statuses and delete terminating pods.

Nodes are ready, pods run, Jobs complete, and ElasticJobs run. Pulumi, the API server, the scheduler
and the controllers of Kubernetes are real. So `up`, an update and `destroy` take seconds and need no
image.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from everstep.catalog.names import SYSTEM_NAMESPACE

NAMESPACE = "elastic-job"
GROUP, VERSION, PLURAL = "elastic.pytorch.org", "v1alpha1", "elasticjobs"
ROUND_SECONDS = 0.2
HEARTBEAT_SECONDS = 5.0
SYSTEM, GPU = "system", "gpu-spot"
NODES = {"system-0": SYSTEM, "gpu-0": GPU, "gpu-1": GPU, "gpu-2": GPU}
MISSING_IMAGE = "registry.example.org/missing:1"
"""An image that no registry has: pods that use it wait for it."""

SPOT_TAINT = {"key": "everstep.dev/spot", "value": "true", "effect": "NoSchedule"}


@contextmanager
def simulated_nodes(kubeconfig: Path) -> Iterator[None]:
    """Update nodes, pods and ElasticJobs until the block ends, then delete the nodes."""
    api: client.ApiClient = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
    core: Any = client.CoreV1Api(api)
    for name, pool in NODES.items():
        _ignore_expected_errors(partial(core.create_node, _node(name, pool)))
    stop = threading.Event()
    thread = threading.Thread(target=_update_periodically, args=(api, stop), name="simulated-nodes")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for name in NODES:
            _ignore_expected_errors(partial(core.delete_node, name))
        api.close()  # type: ignore[no-untyped-call]


def _node(name: str, pool: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "everstep.dev/pool": pool}
    taints = [SPOT_TAINT] if pool == GPU else []
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


def _update_periodically(api: client.ApiClient, stop: threading.Event) -> None:
    last_heartbeat = 0.0
    while not stop.wait(ROUND_SECONDS):
        if time.monotonic() - last_heartbeat > HEARTBEAT_SECONDS:
            last_heartbeat = time.monotonic()
            for name in NODES:
                _ignore_expected_errors(partial(_report_ready, api, name))
        _ignore_expected_errors(partial(_run_pods, api))
        _ignore_expected_errors(partial(_report_running, api))


def _ignore_expected_errors(action: Callable[[], Any]) -> None:
    """Run an action; leave missing objects, conflicts, throttling and a busy server to the next round."""
    try:
        action()
    except HTTPError:
        return
    except ApiException as error:
        if error.status not in (404, 409, 429) and error.status < 500:
            raise


def _report_ready(api: client.ApiClient, name: str) -> None:
    """Report a node as ready."""
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "1"}
    condition = {
        "type": "Ready",
        "status": "True",
        "lastHeartbeatTime": datetime.now(UTC).isoformat(),
    }
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [condition]}
    client.CoreV1Api(api).patch_node_status(name, {"status": status})


def _run_pods(api: client.ApiClient) -> None:
    core: Any = client.CoreV1Api(api)
    pods = [
        core.list_namespaced_pod(namespace).items for namespace in (NAMESPACE, SYSTEM_NAMESPACE)
    ]
    for index, pod in enumerate(chain.from_iterable(pods)):
        name, namespace = pod.metadata.name, pod.metadata.namespace
        if pod.metadata.deletion_timestamp:
            core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
        elif pod.spec.node_name and pod.status.phase == "Pending":
            status = _status(pod, f"10.0.0.{index + 1}")
            core.patch_namespaced_pod_status(name, namespace, {"status": status})


def _status_without_image(pod: Any) -> dict[str, Any]:
    """Return the status of a pod whose image is in no registry."""
    state = {"reason": "ImagePullBackOff", "message": f"Back-off pulling image {MISSING_IMAGE}"}
    (container,) = pod.spec.containers
    status = {"name": container.name, "image": MISSING_IMAGE, "imageID": "", "ready": False}
    return {
        "phase": "Pending",
        "containerStatuses": [{**status, "restartCount": 0, "state": {"waiting": state}}],
    }


def _status(pod: Any, address: str) -> dict[str, Any]:
    """Return the status of a running pod, a completed pod of a Job, or a pod without its image."""
    if any(container.image == MISSING_IMAGE for container in pod.spec.containers):
        return _status_without_image(pod)
    is_job_pod = any(owner.kind == "Job" for owner in pod.metadata.owner_references or ())
    ready = {"status": "False" if is_job_pod else "True"}
    ended_state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    running_state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return {
        "phase": "Succeeded" if is_job_pod else "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": kind, **ready} for kind in ("Ready", "ContainersReady")],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": "simulated",
                "ready": not is_job_pod,
                "restartCount": 0,
                "state": ended_state if is_job_pod else running_state,
            }
            for container in pod.spec.containers
        ],
    }


def _report_running(api: client.ApiClient) -> None:
    custom: Any = client.CustomObjectsApi(api)
    resource = (GROUP, VERSION, NAMESPACE, PLURAL)
    condition = {"type": "Running", "status": "True", "reason": "ElasticJobRunning"}
    for job in custom.list_namespaced_custom_object(*resource)["items"]:
        if job.get("status"):
            continue
        name, status = job["metadata"]["name"], {"status": {"conditions": [condition]}}
        try:
            custom.patch_namespaced_custom_object_status(*resource, name, status)
        except ApiException as error:
            if error.status != 404:
                raise
            # The CRD of the upstream controller has no status subresource: its controller updates the whole object.
            custom.patch_namespaced_custom_object(*resource, name, status)
