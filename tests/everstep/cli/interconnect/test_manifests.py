"""The objects of an interconnect test, derived from the ElasticJob of a stack."""

import ast
from typing import Any

import pytest

from everstep.catalog.names import EFA_RESOURCE, GPU_RESOURCE, JOB_NAME_LABEL
from everstep.cli.interconnect.manifests import (
    NAME,
    PROGRAM,
    SOURCES,
    ClusterTest,
    objects,
    read_sources,
)
from everstep.errors import EverstepError
from everstep.interconnect.launch import PROGRAM as BENCHMARK
from everstep.resources import PACKAGES

SECURITY = {"runAsNonRoot": True}


def elastic_job(**resources: str) -> dict[str, Any]:
    limits = {"memory": "2Gi", GPU_RESOURCE: "8", **resources}
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {JOB_NAME_LABEL: "fashion"}},
    }
    pod = {
        "serviceAccountName": "trainer",
        "securityContext": SECURITY,
        "nodeSelector": {"everstep.dev/pool": "gpu-spot"},
        "tolerations": [{"key": "everstep.dev/spot"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "containers": [
            {
                "name": "elasticjob-worker",
                "image": "registry/trainer:1",
                "args": ["-m", "trainer.train"],
                "securityContext": {"allowPrivilegeEscalation": False},
                "resources": {"requests": {"cpu": "1", **limits}, "limits": limits},
                "volumeMounts": [{"name": "everstep", "mountPath": "/everstep"}],
            }
        ],
        "volumes": [{"name": "everstep"}],
    }
    template = {"metadata": {"labels": {"app.kubernetes.io/name": "worker"}}, "spec": pod}
    worker = {"replicas": 3, "template": template}
    return {"metadata": {"name": "fashion"}, "spec": {"replicaSpecs": {"Worker": worker}}}


def manifests_of(job: dict[str, Any], efa: int | None = None) -> list[dict[str, Any]]:
    test = ClusterTest(nodes=3, efa=efa, arguments=["--max-bytes", "1024"], seconds=60)
    return objects(job, test, dict.fromkeys(SOURCES, "pass"))


def pod_of(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = manifests[-1]["spec"]["template"]["spec"]
    return pod


def test_pods_have_the_placement_and_the_security_context_of_the_workers() -> None:
    pod = pod_of(manifests_of(elastic_job()))

    assert pod["nodeSelector"] == {"everstep.dev/pool": "gpu-spot"}
    assert pod["tolerations"] == [{"key": "everstep.dev/spot"}]
    assert pod["securityContext"] == SECURITY, "the namespace refuses pods without it"
    assert pod["containers"][0]["image"] == "registry/trainer:1"
    assert [volume["name"] for volume in pod["volumes"]] == ["shm", "program"], (
        "the test must not touch the run's files"
    )


def test_each_node_has_one_pod_with_a_process_for_each_gpu() -> None:
    job = manifests_of(elastic_job())[-1]
    pod = pod_of([job])

    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {JOB_NAME_LABEL: NAME}
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 3
    assert "--processes=8" in pod["containers"][0]["command"]


def test_pods_find_the_first_pod_by_name_before_it_is_ready() -> None:
    manifests = manifests_of(elastic_job())

    service = manifests[1]
    assert service["metadata"]["name"] == pod_of(manifests)["subdomain"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": NAME}, "the Job's controller sets this label"


def test_kubernetes_ends_a_test_that_takes_too_long() -> None:
    job = manifests_of(elastic_job())[-1]

    assert job["spec"]["activeDeadlineSeconds"] == 60, (
        "nothing else ends the Job if the command was killed"
    )


def test_a_lost_pod_ends_the_test() -> None:
    job = manifests_of(elastic_job())[-1]

    assert job["spec"]["backoffLimit"] == 0, (
        "with a replaced pod the test would measure another group"
    )
    assert pod_of([job])["restartPolicy"] == "Never"


@pytest.mark.parametrize("adapters", [4, 1])
def test_the_number_of_adapters_is_requested_with_the_huge_pages_that_they_need(
    adapters: int,
) -> None:
    pod = pod_of(manifests_of(elastic_job(**{EFA_RESOURCE: "2"}), efa=adapters))

    for part in ("requests", "limits"):
        resources = pod["containers"][0]["resources"][part]
        assert resources[EFA_RESOURCE] == str(adapters)
        assert resources["hugepages-2Mi"] == "5120Mi"


def test_without_adapters_the_pod_requests_none() -> None:
    job = elastic_job(**{EFA_RESOURCE: "4", "hugepages-2Mi": "5120Mi"})

    for part in pod_of(manifests_of(job, efa=0))["containers"][0]["resources"].values():
        assert EFA_RESOURCE not in part
        assert "hugepages-2Mi" not in part


def test_by_default_the_test_has_as_many_adapters_as_the_workers() -> None:
    pod = pod_of(manifests_of(elastic_job(**{EFA_RESOURCE: "4"})))

    assert pod["containers"][0]["resources"]["limits"][EFA_RESOURCE] == "4"


def test_the_config_map_contains_the_complete_program() -> None:
    test = ClusterTest(nodes=3, efa=None, arguments=[], seconds=60)
    manifests = objects(elastic_job(), test, read_sources(PACKAGES / "everstep"))

    _, program = pod_of(manifests)["volumes"]
    texts = {
        item["path"]: manifests[0]["data"][item["key"]] for item in program["configMap"]["items"]
    }
    modules = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in texts
    }
    imported_modules = {
        node.module
        for text in texts.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert {PROGRAM, BENCHMARK} <= modules
    assert {name for name in imported_modules if name.startswith("everstep")} <= modules


def test_a_job_without_workers_is_refused() -> None:
    with pytest.raises(EverstepError, match="has no pod template for its workers"):
        manifests_of({"metadata": {"name": "x"}, "spec": {}})
