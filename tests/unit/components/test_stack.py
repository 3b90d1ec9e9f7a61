"""What a stack declares: the whole graph, as Pulumi's engine would see it."""

from functools import cache
from typing import Any

import pytest

from components.platform import elastic_controller
from tests.unit.components.declared import SPOT, SYSTEM, declared, pod_of
from tests.unit.components.recorder import Graph

UPSTREAM = {"kind": "upstream", "image": "torchelastic/kubernetes:0.1.0"}


@cache
def maintained() -> Graph:
    return declared(job={"name": "fashion"})


@cache
def upstream() -> Graph:
    return declared(job={"name": "fashion"}, controller=UPSTREAM)


@pytest.fixture(params=[maintained, upstream], ids=["maintained", "upstream"])
def graph(request: pytest.FixtureRequest) -> Graph:
    found: Graph = request.param()
    return found


def pods(graph: Graph) -> dict[str, dict[str, Any]]:
    kinds = ("StatefulSet", "Deployment", "Job", "ElasticJob")
    return {one.name: pod_of(one) for kind in kinds for one in graph.of(kind)}


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


def test_each_part_waits_for_all_that_went_before(graph: Graph) -> None:
    for index, part in enumerate(PARTS):
        before = {name for earlier in PARTS[:index] for name in earlier}
        for name in part:
            missing = before - graph.ancestors(name)
            assert not missing, f"{name} could be created before, and outlive, {missing}"


def test_the_order_of_destruction_is_that_of_creation_reversed(graph: Graph) -> None:
    order = [name for part in PARTS for name in part]
    for index, name in enumerate(order):
        later = set(order[index + 1 :])
        assert not graph.ancestors(name) & later, f"{name} would be destroyed before its users"


def test_rights_outlive_the_controller_that_needs_them(graph: Graph) -> None:
    rights = {
        one.name
        for kind in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
        for one in graph.of(kind)
    }

    assert rights
    assert rights <= graph.ancestors("training-controller-deployment"), (
        "without them the controller could not clean up after the job"
    )


def test_every_object_is_made_through_the_clusters_provider(graph: Graph) -> None:
    for one in graph.resources.values():
        if one.custom and one.type.startswith("kubernetes:"):
            assert "cluster-kubernetes" in one.provider, f"{one.name} would go to another cluster"


def test_every_child_carries_its_components_name(graph: Graph) -> None:
    by_urn = {one.urn: one for one in graph.resources.values()}
    for one in graph.resources.values():
        parent = by_urn.get(one.parent)
        if parent is not None:
            assert one.name.startswith(f"{parent.name}-")


def test_every_object_has_a_name_of_its_own_choosing(graph: Graph) -> None:
    for one in graph.objects():
        assert one["metadata"]["name"], "a generated name could not be found again"


def test_all_pods_are_confined(graph: Graph) -> None:
    for name, pod in pods(graph).items():
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] == 10001, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert "privileged" not in container["securityContext"], name
        assert all("hostPath" not in volume for volume in pod["volumes"]), name


def test_only_the_controller_may_speak_to_the_api_server(graph: Graph) -> None:
    for name, pod in pods(graph).items():
        if name == "training-controller-deployment":
            assert pod["serviceAccountName"]
        else:
            assert pod["automountServiceAccountToken"] is False, name


def test_every_container_says_what_it_needs(graph: Graph) -> None:
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
            assert (taint["key"], taint["effect"]) == ("everstep/spot", "NoSchedule")
        else:
            assert pod["nodeSelector"] == SYSTEM["selector"], name
            assert not pod.get("tolerations"), f"{name} could land on a node that vanishes"


def test_a_cluster_without_pools_needs_no_selectors() -> None:
    graph = declared(cluster={})

    for pod in pods(graph).values():
        assert not pod.get("nodeSelector")
        assert not pod.get("tolerations")


def test_no_two_workers_share_a_node() -> None:
    affinity = pod_of(maintained()["training-job-fashion"])["affinity"]["podAntiAffinity"]
    (rule,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]

    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"] == {"matchLabels": {"job-name": "fashion"}}


def test_the_job_says_what_the_stack_file_says() -> None:
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

    graph = declared(job=job)

    spec = graph["training-job-flowers"].inputs["spec"]
    worker = spec["replicaSpecs"]["Worker"]
    assert (spec["minReplicas"], worker["replicas"], spec["maxReplicas"]) == (2, 2, 5)
    assert spec["rdzvEndpoint"] == "etcd-client.elastic-job.svc.cluster.local:2379"
    assert worker["restartPolicy"] == "ExitCode", "under any other, a lost worker ends the job"
    (container,) = worker["template"]["spec"]["containers"]
    assert container["name"] == "elasticjob-worker", "the controllers look for this name"
    words = container["args"]
    assert words[:4] == ["--nproc_per_node=4", "--max_restarts=1000", "-m", "trainer.train"]
    options = dict(zip(words[4::2], words[5::2], strict=True))
    assert options["--model"] == "efficientnet_b0"
    assert options["--data"] == "/everstep/data/fashion-mnist"
    assert options["--run"] == "/everstep/runs/flowers"
    assert (options["--epochs"], options["--global-batch"]) == ("7", "640")
    assert options["--learning-rate"] == "0.05"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in container["env"]
    assert {entry["name"] for entry in container["env"]} >= {"POD_NAME", "POD_IP", "NODE_NAME"}


def test_a_job_says_who_decides_how_many_workers_it_has() -> None:
    fixed = declared(job={"name": "fashion"})["training-job-fashion"]
    follows = declared(job={"name": "fashion", "scaling": "capacity"})["training-job-fashion"]

    said = [job.inputs["metadata"]["annotations"] for job in (fixed, follows)]
    assert said == [{"everstep.dev/scaling": "fixed"}, {"everstep.dev/scaling": "capacity"}]
    assert fixed.inputs["spec"] == follows.inputs["spec"], "or a change would replace the job"


def test_a_worker_sees_bounds_that_change_as_a_file() -> None:
    pod = pod_of(maintained()["training-job-fashion"])
    (container,) = pod["containers"]
    (volume,) = [found for found in pod["volumes"] if "downwardAPI" in found]
    (mount,) = [found for found in container["volumeMounts"] if found["name"] == volume["name"]]
    (item,) = volume["downwardAPI"]["items"]

    path = f"{mount['mountPath']}/{item['path']}"
    assert item["fieldRef"] == {"fieldPath": "metadata.annotations['everstep.dev/nnodes']"}
    assert {"name": "EVERSTEP_NNODES_FILE", "value": path} in container["env"]


def test_the_maintained_controller_may_do_what_it_does_and_no_more() -> None:
    graph = maintained()
    (of_cluster,) = graph.of("ClusterRole")
    rules = {
        resource: set(rule["verbs"])
        for role in graph.of("Role")
        if role.name.startswith("training-controller")
        for rule in role.inputs["rules"]
        for resource in rule["resources"]
        if resource != "leases"
    }

    (nodes,) = of_cluster.inputs["rules"]
    assert (nodes["resources"], set(nodes["verbs"])) == (["nodes"], {"get", "list", "watch"})
    assert rules["elasticjobs"] == {"get", "list", "watch", "delete"}, "the spec is the user's"
    assert rules["elasticjobs/status"] == {"update"}
    assert rules["pods"] == {"get", "list", "watch", "create", "delete", "patch"}
    assert rules["services"] == {"list", "create", "delete"}
    assert set(rules) == {
        "elasticjobs", "elasticjobs/status", "elasticjobs/finalizers", "pods", "services", "events",
    }  # fmt: skip


def test_a_worker_without_gpu_asks_for_none() -> None:
    (container,) = pod_of(declared(job={"gpusPerWorker": 0})["training-job-training"])["containers"]

    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert container["args"][0] == "--nproc_per_node=1"


def test_a_changed_template_replaces_the_job_and_changed_numbers_do_not() -> None:
    job = maintained()["training-job-fashion"]

    assert job.replace_on_changes == ("spec.replicaSpecs.Worker.template",)
    assert job.delete_before_replace, "the old and the new one have one name"


def test_numbers_of_workers_leave_the_template_alone() -> None:
    other = declared(job={"name": "fashion", "replicas": 2, "minReplicas": 2, "maxReplicas": 4})

    before, after = maintained()["training-job-fashion"], other["training-job-fashion"]

    assert pod_of(before) == pod_of(after), "scaling would throw the running workers away"


def test_another_data_set_folder_or_job_name_is_another_resource() -> None:
    assert "training-job-other" in declared(job={"name": "other"}).resources


def test_what_upstream_writes_back_is_no_change_of_ours() -> None:
    assert "spec.RunPolicy" in upstream()["training-job-fashion"].ignore_changes
    assert maintained()["training-job-fashion"].ignore_changes == ()


def test_the_status_has_its_own_door_only_for_the_maintained_controller() -> None:
    def subresources(graph: Graph) -> set[str]:
        (version,) = graph["training-controller-definition"].inputs["spec"]["versions"]
        return set(version["subresources"])

    assert subresources(maintained()) == {"status", "scale"}
    assert subresources(upstream()) == {"scale"}, "its status updates would go unseen"


def test_both_definitions_say_the_same_otherwise() -> None:
    with_status = elastic_controller.definition(status_subresource=True)
    without = elastic_controller.definition(status_subresource=False)

    for version in with_status["spec"]["versions"]:
        del version["subresources"]["status"]
    assert with_status == without


def test_upstream_gets_the_image_and_the_flags_it_knows() -> None:
    (container,) = pod_of(upstream()["training-controller-deployment"])["containers"]

    assert container["image"] == "torchelastic/kubernetes:0.1.0"
    assert container["command"] == [
        "/manager",
        "--enable-leader-election",
        "--metrics-addr=:8080",
    ]


def test_the_maintained_controller_watches_one_namespace() -> None:
    (container,) = pod_of(maintained()["training-controller-deployment"])["containers"]

    assert "--namespace=elastic-job" in container["command"]
    assert container["image"] == "localhost/everstep/controller:local"


def test_no_controller_may_do_everything(graph: Graph) -> None:
    for kind in ("Role", "ClusterRole"):
        for role in graph.of(kind):
            for rule in role.inputs["rules"]:
                for what in ("apiGroups", "resources", "verbs"):
                    assert "*" not in rule.get(what, []), f"{role.name} is allowed all {what}"
                assert "secrets" not in rule.get("resources", []), role.name


def test_the_namespace_holds_pods_to_the_strictest_standard_that_its_controller_can_meet() -> None:
    def enforced(graph: Graph) -> str:
        labels = graph["training-namespace"].inputs["metadata"]["labels"]
        return str(labels["pod-security.kubernetes.io/enforce"])

    assert enforced(maintained()) == "restricted"
    assert enforced(upstream()) == "baseline", "it drops the seccomp profile from the pods it makes"


def flags(graph: Graph) -> list[str]:
    (container,) = pod_of(graph["training-etcd-members"])["containers"]
    found: list[str] = container["args"]
    return found


def test_each_etcd_member_advertises_itself() -> None:
    said = flags(maintained())
    host = "http://$(POD_NAME).etcd.elastic-job.svc.cluster.local"

    assert f"--advertise-client-urls={host}:2379" in said, "clients could not fail over"
    assert f"--initial-advertise-peer-urls={host}:2380" in said
    assert "--enable-v2" in said, "torch's own etcd backends know nothing newer"


def test_an_etcd_member_finds_its_data_again_on_another_node() -> None:
    members = maintained()["training-etcd-members"]
    (container,) = pod_of(members)["containers"]
    (mount,) = container["volumeMounts"]

    assert mount["subPathExpr"] == "etcd/of-3/$(POD_NAME)", (
        "a member with an empty folder and a known name refuses to start"
    )
    assert members.inputs["spec"]["podManagementPolicy"] == "Parallel", (
        "one after the other, the first would wait for a quorum for ever"
    )


def test_etcd_grants_leases_as_short_as_workers_ask_for() -> None:
    said = dict(flag.split("=", 1) for flag in flags(maintained()) if "=" in flag)
    heartbeat, election = (int(said[key]) for key in ("--heartbeat-interval", "--election-timeout"))
    shortest = 3 * (election // heartbeat) // 2 * heartbeat

    assert shortest <= 2000, "etcd would stretch a lease of 2 s, and losses would go unnoticed"


def test_another_number_of_members_is_another_etcd() -> None:
    graph = declared(etcd={"members": 5})
    members = graph["training-etcd-members"]

    assert members.inputs["spec"]["replicas"] == 5
    assert sum(flag.count("etcd-4=http://etcd-4.") for flag in flags(graph)) == 1
    assert "spec.replicas" in members.replace_on_changes
    (container,) = pod_of(members)["containers"]
    assert container["volumeMounts"][0]["subPathExpr"].startswith("etcd/of-5/"), (
        "old members would refuse new ones"
    )


def test_drains_take_one_etcd_member_at_a_time() -> None:
    graph = maintained()

    assert graph["training-etcd-budget"].inputs["spec"]["maxUnavailable"] == 1
    selected = graph["training-etcd-budget"].inputs["spec"]["selector"]["matchLabels"]
    labels = graph["training-etcd-members"].inputs["spec"]["template"]["metadata"]["labels"]
    assert selected.items() <= labels.items()


def test_members_find_each_other_before_they_are_ready() -> None:
    peers = maintained()["training-etcd-peers"].inputs

    assert peers["spec"]["clusterIP"] == "None"
    assert peers["spec"]["publishNotReadyAddresses"] is True
    assert peers["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


def test_the_volume_is_kept_for_our_claim_and_outlives_it() -> None:
    graph = declared(storage={"path": "/data/shared", "size": "1Ti"})
    volume, claim = (graph[f"training-storage-{what}"].inputs for what in ("volume", "claim"))

    assert volume["spec"]["hostPath"] == {"path": "/data/shared", "type": "Directory"}
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    reference = volume["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == ("elastic-job", claim["metadata"]["name"])
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == "", "a class would provision another volume"


def test_data_is_prepared_by_the_jobs_image_unless_another_is_named() -> None:
    def image(graph: Graph) -> str:
        return str(pod_of(graph["training-data-fashion-mnist"])["containers"][0]["image"])

    assert image(declared(job={"image": "a:1"})) == "a:1"
    assert image(declared(job={"image": "a:1"}, data={"image": "b:2"})) == "b:2"


def test_outputs_say_where_everything_is() -> None:
    said = maintained().outputs

    assert said["job"] == "fashion"
    assert said["namespace"] == "elastic-job"
    assert said["checkpoints"] == "/mnt/everstep/runs/fashion/checkpoints"
    assert said["journal"] == "/mnt/everstep/runs/fashion/journal"
    assert said["etcdEndpoint"] == "etcd-client.elastic-job.svc.cluster.local:2379"
    assert said["follow"] == "everstep follow"
