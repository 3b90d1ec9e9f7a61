"""A complete stack on Azure, from the resource group to the job: dependencies and placement."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.components.azure.aks_stack import training_stack
from tests.components.existing.existing_stack import pod_of
from tests.components.recorder import RecordedResource

WORKLOADS = ("StatefulSet", "Deployment", "DaemonSet", "Job", "ElasticJob")


def workloads() -> Iterator[tuple[RecordedResource, dict[str, Any]]]:
    for kind in WORKLOADS:
        for resource in training_stack().some_of_type(kind):
            yield resource, pod_of(resource)


def pools() -> dict[str, tuple[dict[str, str], set[tuple[str, ...]]]]:
    """Return the labels and taints of each pool's nodes."""
    (system,) = training_stack().one("ManagedCluster").inputs["agentPoolProfiles"]
    inputs = [system, *(resource.inputs for resource in training_stack().of_type("AgentPool"))]
    return {
        pool_inputs.get("name", pool_inputs.get("agentPoolName")): (
            pool_inputs["nodeLabels"],
            {tuple(taint.replace("=", ":").split(":")) for taint in pool_inputs["nodeTaints"]},
        )
        for pool_inputs in inputs
    }


def fits(pod: Mapping[str, Any], labels: Mapping[str, str], taints: set[tuple[str, ...]]) -> bool:
    """Return True if a pod could be scheduled on a node."""
    if not (pod.get("nodeSelector") or {}).items() <= labels.items():
        return False
    return all(
        any(_tolerates(toleration, taint) for toleration in pod.get("tolerations") or [])
        for taint in taints
    )


def _tolerates(toleration: Mapping[str, Any], taint: tuple[str, ...]) -> bool:
    key, value, effect = taint
    if toleration.get("effect") not in {None, effect}:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in {None, key}
    return (toleration.get("key"), toleration.get("value")) == (key, value)


def test_workers_fit_every_gpu_pool_and_no_other() -> None:
    (job,) = [pod for resource, pod in workloads() if resource.type.endswith(":ElasticJob")]

    fitting = {name for name, (labels, taints) in pools().items() if fits(job, labels, taints)}

    assert fitting == {"t4", "a100", "ondemand"}


def test_all_other_pods_except_daemons_run_on_the_system_pool() -> None:
    for resource, pod in workloads():
        if resource.type.rsplit(":", 1)[-1] in {"ElasticJob", "DaemonSet"}:
            continue
        fitting = {name for name, (labels, taints) in pools().items() if fits(pod, labels, taints)}
        assert fitting == {"system"}, resource.name


def test_daemons_reach_every_gpu_node() -> None:
    for resource in training_stack().some_of_type("DaemonSet"):
        for name in ("t4", "a100", "ondemand"):
            labels, taints = pools()[name]
            assert fits(pod_of(resource), labels, taints), f"{resource.name} does not run on {name}"


def test_the_cluster_its_network_and_its_roles_outlive_all_objects_in_the_cluster() -> None:
    prerequisites = {
        "aks-cluster-identities-network-contributor",
        "aks-cluster-identities-identity-operator",
        *(training_stack().one(kind).name for kind in ("ManagedCluster", "Subnet", "NatGateway")),
    }

    assert len(training_stack().resources_of("kubernetes")) > 10
    for resource in training_stack().resources_of("kubernetes"):
        missing = prerequisites - training_stack().ancestors(resource.name)
        assert not missing, f"{resource.name} would lose {missing} while it is being removed"


def test_no_object_in_the_cluster_waits_for_gpu_pools() -> None:
    gpu_pools = {resource.name for resource in training_stack().some_of_type("AgentPool")}

    for resource in training_stack().resources_of("kubernetes"):
        gpu_ancestors = gpu_pools & training_stack().ancestors(resource.name)
        assert not gpu_ancestors, f"without GPU capacity there would be no {resource.name}"


def test_no_azure_resource_depends_on_an_object_in_the_cluster() -> None:
    cluster_objects = {resource.name for resource in training_stack().resources_of("kubernetes")}

    assert cluster_objects
    for resource in training_stack().resources_of("azure-native"):
        assert not cluster_objects & training_stack().ancestors(resource.name), (
            f"{resource.name} could never be created"
        )


def test_the_job_starts_once_its_volume_can_be_mounted() -> None:
    (job,) = training_stack().of_type("ElasticJob")
    prerequisites = {
        "aks-blob-container",
        "aks-blob-data-contributor",
        "aks-blob-trust-trainer",
        "training-storage-volume",
    }

    assert prerequisites <= training_stack().ancestors(job.name)


def test_pods_that_mount_the_volume_have_the_authorized_service_account() -> None:
    accounts = {
        resource.name: pod["serviceAccountName"]
        for resource, pod in workloads()
        if any("persistentVolumeClaim" in volume for volume in pod.get("volumes") or [])
    }

    assert accounts == {
        "training-job-training": "trainer",
        "training-data-fashion-mnist": "trainer",
    }, "another account could not mount it"


def test_workers_stop_within_the_notice_of_azure() -> None:
    (job,) = [pod for resource, pod in workloads() if resource.type.endswith(":ElasticJob")]

    assert job["terminationGracePeriodSeconds"] <= 30, "Azure stops the machine after 30 s"
