"""A complete stack on a cloud: order of creation and deletion, and services of GPU nodes."""

from typing import Any

import pytest

from tests.components.existing.existing_stack import pod_of
from tests.components.fake_cloud import default_graph, fake_cloud_graph
from tests.components.recorder import Graph

DELETION_ORDER = [
    "training-job-fashion",
    "training-data-fashion-mnist",
    "training-controller-deployment",
    "training-etcd-members",
    "training-storage-claim",
    "training-storage-volume",
    "training-nodes-devices-gpu",
    "training-network-default-deny",
    "training-namespace",
    "cloud-kubernetes",
    "cloud-nodes",
    "cloud-cluster",
    "cloud-network",
]


def test_no_resource_is_deleted_before_its_dependents() -> None:
    for index, resource in enumerate(DELETION_ORDER):
        ancestors = default_graph().ancestors(resource)
        missing = set(DELETION_ORDER[index + 1 :]) - ancestors
        assert not missing, f"{missing} could be deleted while {resource} still exists"


def test_the_volume_is_deleted_before_its_driver_and_its_file_system() -> None:
    ancestors = default_graph().ancestors("training-storage-volume")

    assert {"cloud-driver", "cloud-files"} <= ancestors


def test_pods_start_after_the_identity_that_mounts_the_volume_exists() -> None:
    for name in ("training-job-fashion", "training-data-fashion-mnist"):
        assert "training-storage-account" in default_graph().ancestors(name)
    assert "cloud-driver" in default_graph().ancestors("training-storage-account"), (
        "the prerequisites of the volume may include the permissions of the identity"
    )


@pytest.mark.parametrize("name", ["training-job-fashion", "training-data-fashion-mnist"])
def test_pods_that_mount_the_volume_use_its_service_account(name: str) -> None:
    resource = default_graph()[name]
    pod = pod_of(resource)
    spec = resource.inputs["spec"]
    template = (spec.get("replicaSpecs", {}).get("Worker") or spec)["template"]

    assert pod["serviceAccountName"] == "trainer"
    assert pod["automountServiceAccountToken"] is False, "the CSI driver requests the token itself"
    assert template["metadata"]["labels"]["access"] == "granted"


def test_the_volume_has_all_fields_of_its_source() -> None:
    graph = default_graph()
    volume = graph["training-storage-volume"]
    account = graph["training-storage-account"].inputs

    assert volume.inputs["spec"]["csi"] == {"driver": "d", "volumeHandle": "v"}
    assert volume.inputs["spec"]["mountOptions"] == ["flock"]
    assert volume.inputs["spec"]["capacity"] == {"storage": "1200Gi"}
    assert volume.inputs["metadata"]["annotations"] == {"pv.kubernetes.io/provisioned-by": "d"}
    assert volume.replace_on_changes == ("spec.csi",), "the source of a volume is immutable"
    assert account["metadata"]["annotations"] == {"client-id": "c"}
    assert account["metadata"]["labels"] == {"use": "true"}
    assert account["automountServiceAccountToken"] is False


def daemons(graph: Graph) -> dict[str, dict[str, Any]]:
    return {resource.name: pod_of(resource) for resource in graph.some_of_type("DaemonSet")}


def test_daemons_tolerate_all_taints_of_gpu_nodes() -> None:
    pods = daemons(default_graph())

    assert set(pods) == {
        "training-nodes-devices-gpu",
        "training-nodes-metrics-exporter",
        "training-nodes-spot-watcher",
    }
    for name, pod in pods.items():
        assert pod["tolerations"] == [{"operator": "Exists"}], (
            f"{name} would not run on spot nodes, or would be evicted with the first taint"
        )
        assert pod["nodeSelector"] == {"everstep.dev/pool": "gpu-spot"}, name
        assert pod["priorityClassName"] == "system-node-critical", name


def test_daemons_with_host_access_are_outside_the_namespace_of_the_job() -> None:
    graph = default_graph()
    namespace = graph["training-nodes-namespace"].inputs["metadata"]

    for resource in graph.some_of_type("DaemonSet"):
        assert resource.inputs["metadata"]["namespace"] == namespace["name"] == "everstep-system"
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert (
        graph["training-namespace"].inputs["metadata"]["labels"][
            "pod-security.kubernetes.io/enforce"
        ]
        == "restricted"
    )


def test_daemons_have_only_the_host_access_that_they_need() -> None:
    host_access = {
        "training-nodes-devices-gpu": (None, {"/var/lib/kubelet/device-plugins"}, None),
        "training-nodes-metrics-exporter": (
            None,
            {"/var/lib/kubelet/pod-resources"},
            ["SYS_ADMIN"],
        ),
        "training-nodes-spot-watcher": (True, set(), None),
    }
    for name, pod in daemons(default_graph()).items():
        volumes: list[dict[str, dict[str, str]]] = pod.get("volumes") or []
        (container,) = pod["containers"]
        capabilities = container["securityContext"]["capabilities"]
        actual = (
            pod.get("hostNetwork"),
            {volume["hostPath"]["path"] for volume in volumes},
            capabilities.get("add"),
        )
        assert actual == host_access[name], name
        assert capabilities["drop"] == ["ALL"], name
        assert "privileged" not in container["securityContext"], name


def test_only_the_watcher_has_a_service_account_token() -> None:
    for name, pod in daemons(default_graph()).items():
        watcher = name == "training-nodes-spot-watcher"
        assert pod["automountServiceAccountToken"] is watcher, name
        assert pod.get("serviceAccountName") == ("spot" if watcher else None), name


def test_the_watcher_has_only_the_permissions_it_needs() -> None:
    rules = default_graph()["training-nodes-spot-cluster-role-everstep-spot"].inputs["rules"]

    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [(["nodes"], ["get", "patch"])]
    job_rules = default_graph()["training-nodes-spot-role-everstep-spot"].inputs["rules"]
    assert [(rule["resources"], rule["verbs"]) for rule in job_rules] == [
        (["pods"], ["list", "patch"]),
        (["pods/eviction"], ["create"]),
    ], "in the namespace of the job only"
    policies = [
        resource.inputs["metadata"]["name"]
        for resource in default_graph().of_type("ValidatingAdmissionPolicy")
        if resource.name.startswith("training-nodes-spot")
    ]
    assert sorted(policies) == ["everstep-spot", "everstep-spot-pods"], "for its own node only"


def daemon_annotations(graph: Graph) -> list[dict[str, str]]:
    return [daemon.inputs["metadata"]["annotations"] for daemon in graph.of_type("DaemonSet")]


def test_pulumi_waits_for_no_daemon_where_the_autoscaler_starts_the_nodes() -> None:
    graph = fake_cloud_graph(scales_from_zero=True, job={"name": "fashion"})

    assert daemon_annotations(graph) == [{"pulumi.com/skipAwait": "true"}] * 3, (
        "there may be no node yet"
    )


def test_on_existing_nodes_pulumi_waits_for_the_first_pod_of_a_daemon_and_no_more() -> None:
    annotation = {"pulumi.com/waitFor": "jsonpath={.status.numberAvailable}"}

    assert daemon_annotations(default_graph()) == [annotation] * 3, (
        "an image that does not exist would go unnoticed; a spot node that is lost must not block `up`"
    )


def test_only_enabled_services_are_installed() -> None:
    graph = fake_cloud_graph(platform={"spot": {"enabled": True}})

    assert set(daemons(graph)) == {"training-nodes-spot-watcher"}


def test_without_services_there_is_no_namespace_for_them() -> None:
    graph = fake_cloud_graph(platform={})

    assert "training-nodes-namespace" not in graph.resources


def test_workers_with_efa_request_all_adapters_and_the_huge_pages_of_their_node() -> None:
    graph = fake_cloud_graph(efa_interfaces=4, job={"name": "fashion", "gpusPerWorker": 8})
    (container,) = pod_of(graph["training-job-fashion"])["containers"]
    (plugin,) = daemons(graph)["training-nodes-devices-efa"]["containers"]

    limits = container["resources"]["limits"]
    assert limits["vpc.amazonaws.com/efa"] == "4"
    assert limits["nvidia.com/gpu"] == "8"
    assert limits["hugepages-2Mi"] == "5120Mi"
    assert container["resources"]["requests"]["vpc.amazonaws.com/efa"] == "4"
    assert ".mars-north-1." in plugin["image"], "each region has its own registry"


def test_platform_pods_preempt_workers_and_workers_preempt_no_pod() -> None:
    graph = default_graph()
    classes = {
        resource.inputs["metadata"]["name"]: resource.inputs
        for resource in graph.of_type("PriorityClass")
    }

    assert classes["everstep-workers"]["preemptionPolicy"] == "Never"
    assert classes["everstep-platform"]["value"] > classes["everstep-workers"]["value"] == 0
    placeholders = classes["everstep-placeholders"]
    assert placeholders["preemptionPolicy"] == "Never"
    assert 0 > placeholders["value"] >= -10, "the cluster autoscaler ignores pods below -10"
    assert pod_of(graph["training-job-fashion"])["priorityClassName"] == "everstep-workers"
    for name in (
        "training-data-fashion-mnist",
        "training-controller-deployment",
        "training-etcd-members",
    ):
        assert pod_of(graph[name])["priorityClassName"] == "everstep-platform"
        assert "training-governance-platform" in graph.ancestors(name), (
            "otherwise no pod would be created"
        )


def test_the_quota_has_the_configured_limits() -> None:
    graph = fake_cloud_graph(platform={"quota": {"pods": 9, "gpus": 3}})

    assert graph.one("ResourceQuota").inputs["spec"] == {
        "hard": {"pods": "9", "requests.nvidia.com/gpu": "3"}
    }


def test_etcd_members_with_data_in_memory_run_on_different_nodes() -> None:
    pod = pod_of(default_graph()["training-etcd-members"])
    (volume,) = pod["volumes"]
    (constraint,) = pod["topologySpreadConstraints"]

    assert volume["emptyDir"]["medium"] == "Memory"
    assert constraint["whenUnsatisfiable"] == "DoNotSchedule"


def test_a_member_without_its_data_rejoins_before_etcd_starts() -> None:
    pod = pod_of(default_graph()["training-etcd-members"])
    (rejoin,), (member,) = pod["initContainers"], pod["containers"]

    assert rejoin["command"][:4] == ["python3", "-m", "etcd", "--config=/var/lib/etcd/etcd.json"]
    assert "--data-dir=/var/lib/etcd/member" in rejoin["command"]
    assert member["args"] == ["--config-file=/var/lib/etcd/etcd.json"]
    assert rejoin["volumeMounts"] == member["volumeMounts"]
    assert rejoin["securityContext"] == member["securityContext"], (
        "the namespace refuses a pod with a less confined container"
    )


def test_a_single_member_needs_no_rejoin_container() -> None:
    pod = pod_of(
        fake_cloud_graph(etcd={"persistence": "memory", "members": 1})["training-etcd-members"]
    )

    assert "initContainers" not in pod
    assert "--name=$(POD_NAME)" in pod["containers"][0]["args"]


def test_each_etcd_member_has_a_disk_which_is_deleted_with_it() -> None:
    graph = fake_cloud_graph(etcd={"persistence": "disk", "storageClass": "fast"})
    spec = graph["training-etcd-members"].inputs["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    (container,) = pod_of(graph["training-etcd-members"])["containers"]

    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["metadata"]["name"] == container["volumeMounts"][0]["name"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Delete",
        "whenScaled": "Delete",
    }, "an unused disk would be billed"
