"""Pods that run a few lines of Python on a given machine, and their results."""

from pathlib import Path
from typing import Any

from cloudtwin.images import Base, Recipe
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes import Twin
from cloudtwin.nodes.options import TwinOptions

BASE = Base("python", ("python3", "python3-pip", "ca-certificates"))
PYTHON = Recipe("python", "python.Dockerfile", Path(__file__).parent, base=BASE)
OPTIONS = TwinOptions((PYTHON,))
IMAGE = PYTHON.reference
PODS = "/api/v1/namespaces/default/pods"


def pod(
    name: str,
    machine: str,
    script: str,
    *,
    volumes: dict[str, str] | None = None,
    account: str = "default",
    host_network: bool = False,
) -> dict[str, Any]:
    """Return a pod; `volumes` are claims by the paths where they are mounted."""
    claims = volumes or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": machine,
            "restartPolicy": "Never",
            "serviceAccountName": account,
            "hostNetwork": host_network,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "python",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", script],
                    "securityContext": {"runAsUser": 1000},
                    "volumeMounts": [{"name": c, "mountPath": p} for p, c in claims.items()],
                }
            ],
            "volumes": [
                {"name": claim, "persistentVolumeClaim": {"claimName": claim}}
                for claim in claims.values()
            ],
        },
    }


def start(api: KubernetesClient, body: dict[str, Any]) -> None:
    """Create a pod; delete an existing pod of this name first."""
    remove(api, body["metadata"]["name"])
    api.post(PODS, body)


def remove(api: KubernetesClient, name: str) -> None:
    """Delete a pod immediately, if it exists."""
    api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def phase(api: KubernetesClient, name: str) -> str | None:
    """Return the phase of a pod; None if the API server refuses, such as for a pod that does not exist."""
    try:
        pod_phase: str | None = api.get(f"{PODS}/{name}")["status"].get("phase")
    except ApiError:
        return None
    return pod_phase


def events_of(api: KubernetesClient, name: str) -> str:
    """Return the messages of a pod's events."""
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}"
    return " ".join(event["message"] for event in api.get(path)["items"])


def output_of(twin: Twin, machine: str, name: str) -> list[str]:
    """Return the lines that a pod printed, from the machine's disk; none before its container starts."""
    logs = (twin.layout.machine(machine).logs / "pods").glob(f"default_{name}_*/python/*.log")
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [line.split(" ", 3)[3] for line in lines]
