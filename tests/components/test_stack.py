"""A complete stack on an existing cluster: order, security, placement and outputs."""

from typing import Any

import pytest

from tests.components.existing.existing_stack import (
    SPOT,
    SYSTEM,
    declare_existing,
    maintained_stack,
    pod_of,
    upstream_stack,
)
from tests.components.recorder import Graph

PARTS = [
    ["training-namespace"],
    ["training-governance-quota", "training-governance-workers", "training-network-default-deny"],
    ["training-storage-volume", "training-storage-claim", "training-storage-account"],
    [
        "training-etcd-peers",
        "training-etcd-budget",
        "training-etcd-members",
        "training-etcd-client",
    ],
    ["training-controller-definition", "training-controller-deployment"],
    ["training-data-fashion-mnist"],
    ["training-job-fashion"],
]


def pods(graph: Graph) -> dict[str, dict[str, Any]]:
    kinds = ("StatefulSet", "Deployment", "Job", "ElasticJob")
    return {
        resource.name: pod_of(resource) for kind in kinds for resource in graph.some_of_type(kind)
    }


def test_each_component_waits_for_all_earlier_ones(graph: Graph) -> None:
    for index, part in enumerate(PARTS):
        earlier_names = {name for earlier in PARTS[:index] for name in earlier}
        for name in part:
            missing = earlier_names - graph.ancestors(name)
            assert not missing, f"{name} could be created before, and outlive, {missing}"


def test_the_order_of_deletion_is_the_reverse_of_creation(graph: Graph) -> None:
    order = [name for part in PARTS for name in part]
    for index, name in enumerate(order):
        later_names = set(order[index + 1 :])
        assert not graph.ancestors(name) & later_names, (
            f"{name} would be destroyed before its users"
        )


def test_permissions_outlive_the_controller(graph: Graph) -> None:
    permissions = {
        resource.name
        for kind in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
        for resource in graph.of_type(kind)
    }

    assert permissions
    assert permissions <= graph.ancestors("training-controller-deployment"), (
        "without them the controller could not clean up after the job"
    )


def test_every_object_uses_the_provider_of_the_cluster(graph: Graph) -> None:
    assert len(graph.resources_of("kubernetes")) > 10
    for resource in graph.resources_of("kubernetes"):
        assert "cluster-kubernetes" in resource.provider, (
            f"{resource.name} would go to another cluster"
        )


def test_every_child_has_the_name_of_its_component_as_prefix(graph: Graph) -> None:
    names = {resource.urn: resource.name for resource in graph.resources.values()}
    children = [resource for resource in graph.resources.values() if resource.parent in names]

    assert len(children) > 10
    for resource in children:
        assert resource.name.startswith(f"{names[resource.parent]}-")


def test_every_object_has_an_explicit_name(graph: Graph) -> None:
    names = [resource["metadata"].get("name") for resource in graph.objects()]

    assert names
    assert all(names), "a generated name could not be found again"


def test_all_pods_are_confined(graph: Graph) -> None:
    for name, pod in pods(graph).items():
        assert not pod.get("initContainers"), "these would need the same checks"
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] == 10001, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert "privileged" not in container["securityContext"], name
        assert all("hostPath" not in volume for volume in pod["volumes"]), name


def test_only_the_controller_may_access_the_api_server(graph: Graph) -> None:
    for name, pod in pods(graph).items():
        if name == "training-controller-deployment":
            assert pod["serviceAccountName"]
        else:
            assert pod["automountServiceAccountToken"] is False, name


def test_every_container_has_requests_and_limits(graph: Graph) -> None:
    for name, pod in pods(graph).items():
        for container in pod["containers"]:
            assert set(container["resources"]["requests"]) >= {"cpu", "memory"}, name
            assert "memory" in container["resources"]["limits"], name
            assert container["imagePullPolicy"] == "IfNotPresent", name


def test_workers_run_on_spot_nodes_and_everything_else_does_not(graph: Graph) -> None:
    for name, pod in pods(graph).items():
        if name.startswith("training-job"):
            assert pod["nodeSelector"] == SPOT["selector"]
            (taint,) = pod["tolerations"]
            assert (taint["key"], taint["effect"]) == ("everstep.dev/spot", "NoSchedule")
        else:
            assert pod["nodeSelector"] == SYSTEM["selector"], name
            assert not pod.get("tolerations"), f"{name} could land on a node that vanishes"


def test_a_cluster_without_pools_needs_no_selectors() -> None:
    graph = declare_existing(cluster={})

    for pod in pods(graph).values():
        assert not pod.get("nodeSelector")
        assert not pod.get("tolerations")


def test_no_two_workers_share_a_node() -> None:
    affinity = pod_of(maintained_stack()["training-job-fashion"])["affinity"]["podAntiAffinity"]
    (rule,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]

    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"] == {"matchLabels": {"job-name": "fashion"}}


def test_the_job_has_the_values_of_the_stack_file() -> None:
    job = {
        "name": "flowers",
        "model": "efficientnet_b0",
        "replicas": 2,
        "minReplicas": 2,
        "maxReplicas": 5,
        "epochs": 7,
        "globalBatch": 640,
        "learningRate": 0.05,
        "gpusPerWorker": 4,
        "env": {"NCCL_DEBUG": "INFO"},
    }

    graph = declare_existing(job=job)

    spec = graph["training-job-flowers"].inputs["spec"]
    worker = spec["replicaSpecs"]["Worker"]
    assert (spec["minReplicas"], worker["replicas"], spec["maxReplicas"]) == (2, 2, 5)
    assert spec["rdzvEndpoint"] == "etcd-client.elastic-job.svc.cluster.local:2379"
    assert worker["restartPolicy"] == "ExitCode", (
        "under any other policy, a lost worker ends the job"
    )
    (container,) = worker["template"]["spec"]["containers"]
    assert container["name"] == "elasticjob-worker", "the controllers require this name"
    arguments = container["args"]
    assert arguments[:4] == ["--nproc_per_node=4", "--max_restarts=1000", "-m", "trainer.train"]
    options = dict(zip(arguments[4::2], arguments[5::2], strict=True))
    assert options["--model"] == "efficientnet_b0"
    assert options["--data"] == "/everstep/data/fashion-mnist"
    assert options["--run"] == "/everstep/runs/flowers"
    assert (options["--epochs"], options["--global-batch"]) == ("7", "640")
    assert options["--learning-rate"] == "0.05"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in container["env"]
    assert {entry["name"] for entry in container["env"]} >= {"POD_NAME", "POD_IP", "NODE_NAME"}


def test_a_job_is_annotated_with_its_scaling() -> None:
    fixed_job = declare_existing(job={"name": "fashion"})["training-job-fashion"]
    capacity_job = declare_existing(job={"name": "fashion", "scaling": "capacity"})[
        "training-job-fashion"
    ]

    annotations = [job.inputs["metadata"]["annotations"] for job in (fixed_job, capacity_job)]
    assert [annotation["everstep.dev/scaling"] for annotation in annotations] == [
        "fixed",
        "capacity",
    ]
    assert fixed_job.inputs["spec"] == capacity_job.inputs["spec"], (
        "otherwise a change would replace the job"
    )


@pytest.mark.parametrize(
    ("annotation", "variable"),
    [
        ("everstep.dev/nnodes", "EVERSTEP_NNODES_FILE"),
        ("everstep.dev/deadline", "EVERSTEP_DEADLINE_FILE"),
    ],
)
def test_a_worker_reads_mutable_annotations_from_files(annotation: str, variable: str) -> None:
    pod = pod_of(maintained_stack()["training-job-fashion"])
    (container,) = pod["containers"]
    (volume,) = [volume for volume in pod["volumes"] if "downwardAPI" in volume]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == volume["name"]]
    field = {"fieldPath": f"metadata.annotations['{annotation}']"}
    (item,) = [item for item in volume["downwardAPI"]["items"] if item["fieldRef"] == field]

    path = f"{mount['mountPath']}/{item['path']}"
    assert {"name": variable, "value": path} in container["env"]


def test_a_worker_without_gpus_requests_none() -> None:
    (container,) = pod_of(declare_existing(job={"gpusPerWorker": 0})["training-job-training"])[
        "containers"
    ]

    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert container["args"][0] == "--nproc_per_node=1"


def test_a_changed_template_replaces_the_job_and_changed_replicas_do_not() -> None:
    job = maintained_stack()["training-job-fashion"]

    assert job.replace_on_changes == ("spec.replicaSpecs.Worker.template",)
    assert job.delete_before_replace, "the old and the new job have the same name"


def test_the_number_of_workers_does_not_change_the_template() -> None:
    scaled_stack = declare_existing(
        job={"name": "fashion", "replicas": 2, "minReplicas": 2, "maxReplicas": 4}
    )

    before, after = maintained_stack()["training-job-fashion"], scaled_stack["training-job-fashion"]

    assert pod_of(before) == pod_of(after), "scaling would replace the running workers"


def test_fields_written_by_the_upstream_controller_are_ignored() -> None:
    assert "spec.RunPolicy" in upstream_stack()["training-job-fashion"].ignore_changes
    assert maintained_stack()["training-job-fashion"].ignore_changes == ()


def test_the_namespace_enforces_the_strictest_standard_that_its_controller_allows() -> None:
    def enforced_standard(graph: Graph) -> str:
        labels = graph["training-namespace"].inputs["metadata"]["labels"]
        return str(labels["pod-security.kubernetes.io/enforce"])

    assert enforced_standard(maintained_stack()) == "restricted"
    assert enforced_standard(upstream_stack()) == "baseline", (
        "it drops the seccomp profile of its pods"
    )


def test_data_is_prepared_with_the_image_of_the_job_by_default() -> None:
    def image(graph: Graph) -> str:
        return str(pod_of(graph["training-data-fashion-mnist"])["containers"][0]["image"])

    assert image(declare_existing(job={"image": "a:1"})) == "a:1"
    assert image(declare_existing(job={"image": "a:1"}, data={"image": "b:2"})) == "b:2"


def test_outputs_locate_data_checkpoints_and_cluster() -> None:
    actual = maintained_stack().outputs

    assert actual["job"] == "fashion"
    assert actual["namespace"] == "elastic-job"
    assert actual["image"] == pod_of(maintained_stack().one("ElasticJob"))["containers"][0]["image"]
    assert actual["volumePath"] == "/mnt/everstep"
    assert actual["checkpoints"] == "/mnt/everstep/runs/fashion/checkpoints"
    assert actual["journal"] == "/mnt/everstep/runs/fashion/journal"
    assert actual["etcdEndpoint"] == "etcd-client.elastic-job.svc.cluster.local:2379"
    assert actual["follow"] == "everstep follow"
