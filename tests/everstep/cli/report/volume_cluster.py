"""A fake cluster whose volume is a folder of this machine, for readers of a run's files.

Workers and the pods that a reader creates run their shell scripts on this machine, in the folder.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from everstep.catalog.names import JOB_NAME_LABEL
from everstep.cli.kubernetes_client import (
    ClusterView,
    KubernetesClient,
    PodCommandError,
    true_conditions,
)
from everstep.cli.report.reader_pod import ETCD_MEMBERS, JOBS, NAME, PODS
from everstep.cli.report.readers import PodReader
from everstep.errors import EverstepError
from tests.everstep.cli.recorded_run import RecordedRun

JOB = "fashion"


def elastic_job(*conditions: str) -> dict[str, Any]:
    """Return an ElasticJob as the controller leaves it, with true conditions."""
    pod = {
        "serviceAccountName": "trainer",
        "securityContext": {"runAsUser": 10001},
        "nodeSelector": {"everstep.dev/pool": "gpu-spot"},
        "imagePullSecrets": [{"name": "registries"}],
        "containers": [
            {
                "name": "elasticjob-worker",
                "image": "registry/trainer:1",
                "resources": {"limits": {"nvidia.com/gpu": "8"}},
                "volumeMounts": [
                    {"name": "pod-info", "mountPath": "/etc/everstep"},
                    {"name": "everstep", "mountPath": "/everstep"},
                ],
            }
        ],
        "volumes": [
            {"name": "everstep", "persistentVolumeClaim": {"claimName": "everstep"}},
            {"name": "pod-info", "downwardAPI": {}},
        ],
    }
    labels = {"app.kubernetes.io/name": "worker", "azure.workload.identity/use": "true"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    status = [
        {"type": kind, "status": "True", "reason": "R", "message": f"{kind} message"}
        for kind in conditions
    ]
    return {
        "metadata": {"name": JOB, "uid": "uid-1"},
        "spec": {"replicaSpecs": {"Worker": {"template": template}}},
        "status": {"conditions": status},
    }


def etcd_members() -> dict[str, Any]:
    """Return the StatefulSet of etcd with an init container, as with data in memory."""
    pod = {
        "nodeSelector": {"everstep.dev/pool": "system"},
        "tolerations": [{"key": "system-only"}],
        "initContainers": [{"name": "rejoin", "image": "registry/etcd-rejoin:1"}],
        "containers": [{"name": "etcd", "image": "registry/etcd:1"}],
    }
    return {"spec": {"template": {"spec": pod}}}


@dataclass
class VolumeCluster:
    """The cluster.

    Attributes:
        root: folder that is mounted as the volume.
        job: ElasticJob; empty without one.
        has_worker: True if a worker runs; otherwise its pod has succeeded.
        reader_status: status of a pod that a reader has created.
        refusal: message with which the API server refuses a pod; empty if it does not.
        created_pods: manifests of the pods that were created.
        pods: manifests of the pods that exist, by path.
    """

    root: Path
    job: dict[str, Any] = field(default_factory=lambda: elastic_job("Succeeded"))
    has_worker: bool = False
    reader_status: dict[str, Any] = field(default_factory=lambda: {"phase": "Running"})
    refusal: str = ""
    created_pods: list[Mapping[str, Any]] = field(default_factory=list)
    pods: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def client(self) -> KubernetesClient:
        return cast("KubernetesClient", self)

    def reader(self) -> PodReader:
        return PodReader(self.client, JOB, self.root / "no-events")

    def write(self, recorded_run: RecordedRun) -> None:
        """Write the files of a run to the volume."""
        run = self.root / "runs" / JOB
        (run / "journal").mkdir(parents=True)
        for worker, lines in recorded_run.journals.items():
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (run / "journal" / f"{worker}.jsonl").write_text(text)
        (run / "result.json").write_text(json.dumps(recorded_run.result) + "\n")

    def running_worker(self, job: str) -> str | None:
        assert job == JOB
        return "fashion-worker-0" if self.has_worker else None

    def view(self, job: str) -> ClusterView:
        assert job == JOB
        status = self.job.get("status") or {}
        return ClusterView("v1.36.0", (), (), true_conditions(status), status)

    def get(self, path: str, missing: dict[str, Any] | None = None) -> dict[str, Any]:
        if path == f"{JOBS}/{JOB}":
            return self.job or missing or {}
        if path == ETCD_MEMBERS:
            return etcd_members()
        assert path.startswith(f"{PODS}/{NAME}-"), f"unexpected request for {path}"
        pod = self.pods.get(path)
        return {**pod, "status": self.reader_status} if pod else missing or {}

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        assert path == PODS
        assert JOB_NAME_LABEL not in body["metadata"]["labels"], "the controller would count it"
        if self.refusal:
            raise EverstepError(self.refusal)
        self.created_pods.append(body)
        self.pods[f"{path}/{body['metadata']['name']}"] = body

    def delete(self, path: str) -> None:
        self.pods.pop(path, None)

    def shell(self, pod: str, script: str) -> str:
        if not self.has_worker and f"{PODS}/{pod}" not in self.pods:
            raise PodCommandError(f"the command could not run in the pod {pod}: it has ended")
        script = script.replace("/everstep/", f"{self.root}/")
        result = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True)
        return result.stdout
