"""The objects of an interconnect test in a cluster, derived from the ElasticJob of its stack.

Pods get the nodes, the image, the devices and the security context of the job's workers, on any stack. An
Indexed Job creates them, a headless Service gives the first pod a DNS name, and a ConfigMap contains the program, so
that the image needs only PyTorch. The names are fixed: two tests at a time would share the nodes and measure each
other.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.catalog.names import EFA_RESOURCE, GPU_RESOURCE, JOB_NAME_LABEL, JOB_NAMESPACE
from everstep.cli.pod_affinity import relabel
from everstep.errors import EverstepError

NAME = "nccl-test"
PORT = 29400
HUGE_PAGES, HUGE_PAGES_FOR_EFA = "hugepages-2Mi", "5120Mi"
PROGRAM_FOLDER = "/opt/everstep-nccl-test"
PROGRAM = "everstep.interconnect.launch"
VARIABLES = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "USE_LIBUV": "0",  # Debian's torch is built without it
}
"""Environment variables of the program, in a pod or on this machine."""

SOURCES = (
    "__init__.py",
    "interconnect/__init__.py",
    "interconnect/collectives.py",
    "interconnect/benchmark.py",
    "interconnect/launch.py",
)
"""Files of the program in the package everstep."""

REMOVED_AFTER_SECONDS = 600
"""Time from the end of the Job until the cluster removes it, if the command was killed before."""

Json = dict[str, Any]


@dataclass(frozen=True)
class ClusterTest:
    """Options of a test in a cluster.

    Attributes:
        nodes: number of nodes.
        efa: number of EFA adapters of each pod; None for as many as the job's workers have.
        arguments: arguments of the benchmark.
        seconds: time after which Kubernetes ends the test.
    """

    nodes: int
    efa: int | None
    arguments: Sequence[str]
    seconds: int


def objects(job: Mapping[str, Any], test: ClusterTest, sources: Mapping[str, str]) -> list[Json]:
    """Return the objects to create, in order.

    Args:
        job: the ElasticJob of the stack.
        test: options of the test.
        sources: source text by name in SOURCES.
    """
    template = worker_template(job)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": JOB_NAMESPACE},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # the other pods resolve its name before the first pod is ready
            "selector": {JOB_NAME_LABEL: NAME},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }
    return [_config_map(sources), service, _job(template, test)]


def worker_template(job: Mapping[str, Any]) -> Json:
    """Return the pod template of an ElasticJob's workers.

    Raises:
        EverstepError: the ElasticJob has no template with an image.
    """
    try:
        template = job["spec"]["replicaSpecs"]["Worker"]["template"]
        template["spec"]["containers"][0]["image"]
    except (KeyError, IndexError, TypeError):
        raise EverstepError(
            f"the ElasticJob {job.get('metadata', {}).get('name', '')} has no pod template for its workers",
            "`everstep pulumi up --refresh` restores it.",
        ) from None
    return deepcopy(dict(template))


def adapters_of_worker(job: Mapping[str, Any]) -> int:
    """Return the number of EFA adapters of each worker of an ElasticJob."""
    resources = worker_template(job)["spec"]["containers"][0].get("resources") or {}
    return int((resources.get("limits") or {}).get(EFA_RESOURCE, 0))


def read_sources(package: Path) -> dict[str, str]:
    """Return the program's sources by name."""
    return {name: (package / name).read_text() for name in SOURCES}


def _key(name: str) -> str:
    return name.replace("/", ".")


def _config_map(sources: Mapping[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": JOB_NAMESPACE},
        "data": {_key(name): text for name, text in sources.items()},
    }


def _job(template: Json, test: ClusterTest) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME, "namespace": JOB_NAMESPACE},
        "spec": {
            "completionMode": "Indexed",
            "completions": test.nodes,
            "parallelism": test.nodes,
            "backoffLimit": 0,  # a lost pod ends the test: the results would describe a smaller group
            "activeDeadlineSeconds": test.seconds,
            "ttlSecondsAfterFinished": REMOVED_AFTER_SECONDS,
            "template": {
                "metadata": {
                    "labels": dict((template.get("metadata") or {}).get("labels") or {}),
                },
                "spec": _pod(template["spec"], test),
            },
        },
    }


def _pod(worker: Json, test: ClusterTest) -> Json:
    pod = {name: worker[name] for name in _INHERITED_FIELDS if name in worker}
    return {
        **pod,
        **({"affinity": relabel(worker["affinity"], NAME)} if "affinity" in worker else {}),
        "subdomain": NAME,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [_container(worker["containers"][0], test)],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "program", "configMap": {"name": NAME, "items": _items()}},
        ],
    }


_INHERITED_FIELDS = (
    "serviceAccountName",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "imagePullSecrets",
    "securityContext",
    "priorityClassName",
    "nodeSelector",
    "tolerations",
)
"""Fields of a worker's pod that the test's pods have, too."""


def _items() -> list[Json]:
    return [{"key": _key(name), "path": f"everstep/{name}"} for name in SOURCES]


def _container(worker: Json, test: ClusterTest) -> Json:
    resources = _resources(worker.get("resources") or {}, test.efa)
    gpus = max(1, int(resources.get("limits", {}).get(GPU_RESOURCE, 0)))
    inherited: Json = {
        name: worker[name]
        for name in ("image", "imagePullPolicy", "securityContext")
        if name in worker
    }
    return {
        **inherited,
        "name": NAME,
        "workingDir": PROGRAM_FOLDER,  # precedes the image's own packages on the import path
        "command": _command(test, gpus),
        "env": [
            *({"name": name, "value": value} for name, value in VARIABLES.items()),
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
        ],
        "resources": resources,
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - private to the container
            {"name": "program", "mountPath": PROGRAM_FOLDER, "readOnly": True},
        ],
    }


def _command(test: ClusterTest, processes: int) -> list[str]:
    return [
        *("python3", "-m", PROGRAM),
        f"--nodes={test.nodes}",
        f"--processes={processes}",
        "--node-rank=$(JOB_COMPLETION_INDEX)",
        f"--address={NAME}-0.{NAME}",
        f"--port={PORT}",
        *test.arguments,
    ]


def _resources(worker: Json, efa: int | None) -> Json:
    """Return a worker's resources with `efa` EFA adapters; unchanged for None."""
    if efa is None:
        return worker
    resources = deepcopy(worker)
    for part in ("requests", "limits"):
        quantities = resources.setdefault(part, {})
        quantities.pop(EFA_RESOURCE, None)
        quantities.pop(HUGE_PAGES, None)
        if efa:
            quantities |= {EFA_RESOURCE: str(efa), HUGE_PAGES: HUGE_PAGES_FOR_EFA}
    return resources
