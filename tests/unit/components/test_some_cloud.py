"""A whole stack on a cloud: what is there before what, and what is gone after what."""

import pytest

from tests.unit.components.declared import pod_of
from tests.unit.components.recorder import Graph
from tests.unit.components.some_cloud import on_some_cloud, usual

# What must be gone before what, from the destruction's first to its last.
DESTRUCTION = [
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


def test_nothing_goes_while_something_that_needs_it_lives() -> None:
    for at, goes_first in enumerate(DESTRUCTION):
        before = usual().ancestors(goes_first)
        missing = set(DESTRUCTION[at + 1 :]) - before
        assert not missing, f"{missing} could go while {goes_first} is still there"


def test_the_volume_goes_before_the_driver_that_unmounts_it_and_the_files_it_shows() -> None:
    before = usual().ancestors("training-storage-volume")

    assert {"cloud-driver", "cloud-files"} <= before


def test_pods_run_only_once_the_identity_by_which_they_mount_is_there() -> None:
    for name in ("training-job-fashion", "training-data-fashion-mnist"):
        assert "training-storage-account" in usual().ancestors(name)
    assert "cloud-driver" in usual().ancestors("training-storage-account"), (
        "what the volume waits for may be the identity's own rights"
    )


@pytest.mark.parametrize("name", ["training-job-fashion", "training-data-fashion-mnist"])
def test_whoever_mounts_the_volume_is_who_the_storage_knows(name: str) -> None:
    resource = usual()[name]
    pod = pod_of(resource)
    spec = resource.inputs["spec"]
    template = (spec.get("replicaSpecs", {}).get("Worker") or spec)["template"]

    assert pod["serviceAccountName"] == "trainer"
    assert pod["automountServiceAccountToken"] is False, "the storage's driver asks for its own"
    assert template["metadata"]["labels"]["let-me"] == "in"


def test_the_volume_says_all_that_its_source_says() -> None:
    graph = usual()
    volume = graph["training-storage-volume"]
    account = graph["training-storage-account"].inputs

    assert volume.inputs["spec"]["csi"] == {"driver": "d", "volumeHandle": "v"}
    assert volume.inputs["spec"]["mountOptions"] == ["flock"]
    assert volume.inputs["spec"]["capacity"] == {"storage": "1200Gi"}
    assert volume.inputs["metadata"]["annotations"] == {"pv.kubernetes.io/provisioned-by": "d"}
    assert volume.replace_on_changes == ("spec.csi",), "Kubernetes holds a source immutable"
    assert account["metadata"]["annotations"] == {"client-id": "c"}
    assert account["metadata"]["labels"] == {"use": "true"}
    assert account["automountServiceAccountToken"] is False


def daemons(graph: Graph) -> dict[str, dict[str, object]]:
    return {one.name: pod_of(one) for one in graph.of("DaemonSet")}


def test_each_gpu_node_is_served_from_its_first_to_its_last_second() -> None:
    found = daemons(usual())

    assert set(found) == {
        "training-nodes-devices-gpu",
        "training-nodes-metrics-exporter",
        "training-nodes-spot-watcher",
    }
    for name, pod in found.items():
        assert pod["tolerations"] == [{"operator": "Exists"}], (
            f"{name} would miss on a spot node, or leave it with the first taint of its end"
        )
        assert pod["nodeSelector"] == {"everstep/pool": "gpu-spot"}, name
        assert pod["priorityClassName"] == "system-node-critical", name


def test_what_needs_the_node_itself_stays_out_of_the_jobs_namespace() -> None:
    graph = usual()
    namespace = graph["training-nodes-namespace"].inputs["metadata"]

    for one in graph.of("DaemonSet"):
        assert one.inputs["metadata"]["namespace"] == namespace["name"] == "everstep-system"
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert (
        graph["training-namespace"].inputs["metadata"]["labels"][
            "pod-security.kubernetes.io/enforce"
        ]
        == "restricted"
    )


def test_no_daemon_takes_more_of_its_node_than_it_needs() -> None:
    needs = {
        "training-nodes-devices-gpu": (None, {"/var/lib/kubelet/device-plugins"}, None),
        "training-nodes-metrics-exporter": (
            None,
            {"/var/lib/kubelet/pod-resources"},
            ["SYS_ADMIN"],
        ),
        "training-nodes-spot-watcher": (True, set(), None),
    }
    for name, pod in daemons(usual()).items():
        volumes: list[dict[str, dict[str, str]]] = pod.get("volumes") or []  # type: ignore[assignment]  # as recorded
        (container,) = pod["containers"]  # type: ignore[misc]  # as recorded
        capabilities = container["securityContext"]["capabilities"]
        found = (
            pod.get("hostNetwork"),
            {volume["hostPath"]["path"] for volume in volumes},
            capabilities.get("add"),
        )
        assert found == needs[name], name
        assert capabilities["drop"] == ["ALL"], name
        assert "privileged" not in container["securityContext"], name


def test_only_the_watcher_is_somebody_to_the_api_server() -> None:
    for name, pod in daemons(usual()).items():
        watcher = name == "training-nodes-spot-watcher"
        assert pod["automountServiceAccountToken"] is watcher, name
        assert pod.get("serviceAccountName") == ("spot" if watcher else None), name


def test_the_watcher_may_do_what_it_does_and_no_more() -> None:
    rules = usual()["training-nodes-spot-cluster-role-everstep-spot"].inputs["rules"]

    assert {(*rule["resources"], *sorted(rule["verbs"])) for rule in rules} == {
        ("nodes", "get", "patch"),
        ("pods", "list"),
        ("pods/eviction", "create"),
    }
    assert usual().of("ValidatingAdmissionPolicy"), "and that to its own node only"


def test_pulumi_waits_for_no_daemon() -> None:
    for one in usual().of("DaemonSet"):
        assert one.inputs["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}, (
            "a spot node that goes during `up` would hold it up"
        )


def test_a_cloud_that_brings_a_service_itself_gets_no_second_one() -> None:
    graph = on_some_cloud(platform={"spot": {"enabled": True}})

    assert set(daemons(graph)) == {"training-nodes-spot-watcher"}


def test_without_services_there_is_no_namespace_for_them() -> None:
    graph = on_some_cloud(platform={})

    assert "training-nodes-namespace" not in graph.resources


def test_workers_with_fast_adapters_get_all_of_their_node() -> None:
    graph = on_some_cloud(efa_interfaces=4, job={"name": "fashion", "gpusPerWorker": 8})
    (container,) = pod_of(graph["training-job-fashion"])["containers"]
    (plugin,) = daemons(graph)["training-nodes-devices-efa"]["containers"]  # type: ignore[misc]  # as recorded

    limits = container["resources"]["limits"]
    assert limits["vpc.amazonaws.com/efa"] == "4"
    assert limits["nvidia.com/gpu"] == "8"
    assert limits["hugepages-2Mi"] == "5120Mi"
    assert container["resources"]["requests"]["vpc.amazonaws.com/efa"] == "4"
    assert ".mars-north-1." in plugin["image"], "each region has its own registry"


def test_workers_push_nobody_aside_and_what_they_wait_for_does() -> None:
    graph = usual()
    classes = {one.inputs["metadata"]["name"]: one.inputs for one in graph.of("PriorityClass")}

    assert classes["everstep-workers"]["preemptionPolicy"] == "Never"
    assert classes["everstep-platform"]["value"] > classes["everstep-workers"]["value"] == 0
    assert pod_of(graph["training-job-fashion"])["priorityClassName"] == "everstep-workers"
    for name in (
        "training-data-fashion-mnist",
        "training-controller-deployment",
        "training-etcd-members",
    ):
        assert pod_of(graph[name])["priorityClassName"] == "everstep-platform"
        assert "training-governance-platform" in graph.ancestors(name), "or no pod would be made"


def test_the_quota_is_the_stacks() -> None:
    graph = on_some_cloud(platform={"quota": {"pods": 7, "gpus": 3}})

    assert graph.one("ResourceQuota").inputs["spec"] == {
        "hard": {"pods": "7", "requests.nvidia.com/gpu": "3"}
    }


def test_etcd_in_memory_keeps_its_members_apart() -> None:
    pod = pod_of(usual()["training-etcd-members"])
    (volume,) = pod["volumes"]
    (spread,) = pod["topologySpreadConstraints"]

    assert volume["emptyDir"]["medium"] == "Memory"
    assert spread["whenUnsatisfiable"] == "DoNotSchedule"


def test_a_member_without_its_data_is_let_in_anew_before_etcd_starts() -> None:
    pod = pod_of(usual()["training-etcd-members"])
    (rejoin,), (member,) = pod["initContainers"], pod["containers"]

    assert rejoin["command"][:4] == [
        "python3",
        "-m",
        "spot.rejoin",
        "--config=/var/lib/etcd/etcd.json",
    ]
    assert "--data-dir=/var/lib/etcd/member" in rejoin["command"]
    assert member["args"] == ["--config-file=/var/lib/etcd/etcd.json"]
    assert rejoin["volumeMounts"] == member["volumeMounts"]


def test_a_member_alone_has_nobody_to_ask() -> None:
    pod = pod_of(
        on_some_cloud(etcd={"persistence": "memory", "members": 1})["training-etcd-members"]
    )

    assert "initContainers" not in pod
    assert "--name=$(POD_NAME)" in pod["containers"][0]["args"]


def test_etcd_on_disks_gets_one_for_each_member_and_leaves_none() -> None:
    graph = on_some_cloud(etcd={"persistence": "disk", "storageClass": "fast"})
    spec = graph["training-etcd-members"].inputs["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    (container,) = pod_of(graph["training-etcd-members"])["containers"]

    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["metadata"]["name"] == container["volumeMounts"][0]["name"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Delete",
        "whenScaled": "Delete",
    }, "a disk that nothing uses would go on costing money"
