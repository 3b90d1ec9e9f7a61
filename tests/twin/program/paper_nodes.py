"""Says what nodes would say, where there are none: they are ready, pods run, Jobs end, jobs train.

The control plane is real, and so is all that Pulumi, the API server, the scheduler and Kubernetes'
controllers do. Only the kubelets and the ElasticJob's controller are paper, so that a whole `up`,
change and `destroy` takes seconds and needs no image.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

NAMESPACE = "elastic-job"
GROUP, VERSION, PLURAL = "elastic.pytorch.org", "v1alpha1", "elasticjobs"
ROUND_SECONDS = 0.2
HEARTBEAT_SECONDS = 5.0
SYSTEM, GPU = "system", "gpu-spot"
NODES = {"system-0": SYSTEM, "gpu-0": GPU, "gpu-1": GPU, "gpu-2": GPU}
SPOT_TAINT = {"key": "everstep/spot", "value": "true", "effect": "NoSchedule"}


@contextmanager
def paper_nodes(kubeconfig: Path) -> Iterator[None]:
    """Answer for nodes, pods and ElasticJobs until the block ends; then the nodes are gone."""
    api = config.new_client_from_config(str(kubeconfig))
    core = client.CoreV1Api(api)
    for name, pool in NODES.items():
        _quietly(partial(core.create_node, _node(name, pool)))
    ending = threading.Event()
    thread = threading.Thread(target=_answer, args=(api, ending), name="paper-nodes")
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        for name in NODES:
            _quietly(partial(core.delete_node, name))
        api.close()


def _node(name: str, pool: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "everstep/pool": pool}
    taints = [SPOT_TAINT] if pool == GPU else []
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


def _answer(api: client.ApiClient, ending: threading.Event) -> None:
    beat = 0.0
    while not ending.wait(ROUND_SECONDS):
        if time.monotonic() - beat > HEARTBEAT_SECONDS:
            beat = time.monotonic()
            for name in NODES:
                _quietly(partial(_beat, api, name))
        _quietly(partial(_run_pods, api))
        _quietly(partial(_train, api))


def _quietly(action: Callable[[], Any]) -> None:
    """Act; what is gone, changed, there already or too busy is met again in the next round."""
    try:
        action()
    except ApiException as error:
        if error.status not in (404, 409, 429) and error.status < 500:
            raise


def _beat(api: client.ApiClient, name: str) -> None:
    """Say that a node is well."""
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "1"}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": datetime.now(UTC).isoformat()}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    client.CoreV1Api(api).patch_node_status(name, {"status": status})


def _run_pods(api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    for index, pod in enumerate(core.list_namespaced_pod(NAMESPACE).items):
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp:
            core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)
        elif pod.spec.node_name and pod.status.phase == "Pending":
            status = _status(pod, f"10.0.0.{index + 1}")
            core.patch_namespaced_pod_status(name, NAMESPACE, {"status": status})


def _status(pod: Any, address: str) -> dict[str, Any]:
    """Give the status of a pod that runs, or, of a Job's, that has done its work."""
    done = any(owner.kind == "Job" for owner in pod.metadata.owner_references or ())
    ready = {"status": "False" if done else "True"}
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    began = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return {
        "phase": "Succeeded" if done else "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": kind, **ready} for kind in ("Ready", "ContainersReady")],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": "paper",
                "ready": not done,
                "restartCount": 0,
                "state": ended if done else began,
            }
            for container in pod.spec.containers
        ],
    }


def _train(api: client.ApiClient) -> None:
    custom = client.CustomObjectsApi(api)
    place = (GROUP, VERSION, NAMESPACE, PLURAL)
    condition = {"type": "Running", "status": "True", "reason": "ElasticJobRunning"}
    for job in custom.list_namespaced_custom_object(*place)["items"]:
        if job.get("status"):
            continue
        name, status = job["metadata"]["name"], {"status": {"conditions": [condition]}}
        try:
            custom.patch_namespaced_custom_object_status(*place, name, status)
        except ApiException as error:
            if error.status != 404:
                raise
            # No status subresource: this is upstream's definition, and this its way.
            custom.patch_namespaced_custom_object(*place, name, status)
