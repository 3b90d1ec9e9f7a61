"""The Kubernetes objects that the cloud stacks declare, as files that a scanner reads."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.components.docs.test_stack_table import CLOUD_STACKS
from tests.components.recorder import Graph
from tests.components.test_stacks_declared import graph_of


def write_manifests(folder: Path) -> None:
    """Write one file for each cloud stack."""
    for name in CLOUD_STACKS:
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump_all(objects(graph_of(name))), encoding="utf-8")


def objects(graph: Graph) -> Iterator[Mapping[str, Any]]:
    """Yield the objects, with a worker's pod in place of an ElasticJob, which scanners do not support."""
    for resource in graph.resources.values():
        if resource.type.startswith("kubernetes:") and "kind" in resource.inputs:
            content: dict[str, Any] = json.loads(json.dumps(resource.inputs, default=str))
            yield worker_pod(content) if content["kind"] == "ElasticJob" else content


def worker_pod(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod of an ElasticJob's worker."""
    template = job["spec"]["replicaSpecs"]["Worker"]["template"]
    metadata = {**template.get("metadata", {}), **job["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
