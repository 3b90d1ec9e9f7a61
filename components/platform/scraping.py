"""The scrape job of a managed Prometheus, in the format of Prometheus' own configuration.

Objects for a Prometheus operator, which select the same pods, are in `operator_objects.py`.
"""

from typing import Any

from components.platform.pods import PART_OF
from everstep.catalog.names import JOB_NAMESPACE, SYSTEM_NAMESPACE

MAX_TIMEOUT_SECONDS = 10  # default of Prometheus
POD = "__meta_kubernetes_pod_"
NAMESPACE = "__meta_kubernetes_namespace"
TARGET_LABELS = {f"{POD}name": "pod", f"{POD}node_name": "node", NAMESPACE: "namespace"}
"""Label of a discovered pod -> label of its metrics."""


def scrape_job(seconds: int) -> dict[str, Any]:
    """Return the job that scrapes the workers, the data preparation, the controller and the exporters of GPU nodes.

    Labels of the metrics take precedence: `namespace` of the controller's metrics is the job's namespace, and `pod` of
    the exporter's metrics is the pod that uses the GPU.

    Args:
        seconds: seconds between two scrapes of a pod.
    """
    ((part_of, everstep),) = PART_OF.items()
    label = part_of.translate(str.maketrans("./-", "___"))
    return {
        "job_name": "everstep",
        "scrape_interval": f"{seconds}s",
        "scrape_timeout": f"{min(seconds, MAX_TIMEOUT_SECONDS)}s",
        "honor_labels": True,
        "kubernetes_sd_configs": [
            {"role": "pod", "namespaces": {"names": [JOB_NAMESPACE, SYSTEM_NAMESPACE]}}
        ],
        "relabel_configs": [
            _keep(f"{POD}label_{label}", everstep),
            _keep(f"{POD}container_port_name", "metrics(-[0-9]+)?"),
            _keep(f"{POD}phase", "Running"),
            *(
                {"source_labels": [source], "target_label": target}
                for source, target in TARGET_LABELS.items()
            ),
        ],
    }


def _keep(label: str, pattern: str) -> dict[str, Any]:
    return {"source_labels": [label], "regex": pattern, "action": "keep"}
