"""A job on the platform of another stack: its resources, and the values that it reads from the platform."""

import json
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from components.config import from_mapping
from components.config.faults import ConfigurationError
from components.job import shared_platform
from components.job.job_stack import JobStack, JobStackArgs, provider_of
from tests.components.aws import eks_stack
from tests.components.azure import aks_stack
from tests.components.existing.existing_stack import declare_existing, maintained_stack, pod_of
from tests.components.recorder import Graph, record

PLATFORM = {"name": "eks-dev"}
SECOND = from_mapping({"job": {"name": "second"}, "platformStack": PLATFORM})


def platform_output() -> dict[str, Any]:
    """Return the output `platform` of a stack as a backend stores it: without null values."""
    output = json.loads(json.dumps(maintained_stack().outputs["platform"]))
    return {key: value for key, value in output.items() if value is not None}


def job_stack(platform: dict[str, Any] | None = None, priority: int = 0, **sections: Any) -> Graph:
    """Declare a job on a platform, by default a stack on an existing cluster."""
    stack = {"job": {"name": "second"}, "platformStack": PLATFORM}
    config = from_mapping({**stack, **sections})
    shared = shared_platform.read("eks-dev", platform or platform_output(), config)

    def program() -> dict[str, Any]:
        provider = provider_of(shared, "contexts: []")
        args = JobStackArgs(config=config, priority=priority, platform=shared, provider=provider)
        return dict(JobStack("training", args).outputs)

    return record(program)


@cache
def default_job() -> Graph:
    return job_stack()


def test_a_job_on_the_platform_of_another_stack_declares_no_part_of_a_platform() -> None:
    kinds = {
        resource.type.rpartition(":")[2] for resource in default_job().resources_of("kubernetes")
    }

    assert kinds == {"PriorityClass", "ResourceQuota", "ElasticJob"}


def test_the_job_differs_from_the_job_of_the_platforms_stack_only_in_name_and_priority() -> None:
    platform_job, second_job = maintained_stack().one("ElasticJob"), default_job().one("ElasticJob")

    platform_spec = json.dumps(platform_job.inputs["spec"])
    expected_spec = json.loads(
        platform_spec.replace('fashion"', 'second"').replace("/runs/fashion", "/runs/second")
    )
    pod = expected_spec["replicaSpecs"]["Worker"]["template"]["spec"]
    pod["priorityClassName"] = "everstep-job-second"
    assert second_job.inputs["spec"] == expected_spec
    assert (
        second_job.inputs["metadata"]["namespace"] == platform_job.inputs["metadata"]["namespace"]
    )


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        ({"zonePrices": {"b": 0.5, "a": 0.4}}, {"usdPerHour": {"b": 0.5, "a": 0.4}}),
        ({"zonePrices": {"a": 0.4}}, {"usdPerHour": {"a": 0.4}}),
        (
            {"zonePrices": {"a": 0.4}, "zoneCeilings": {"a": 0.3}},
            {"usdPerHour": {"a": 0.4}, "maxUsdPerHour": {"a": 0.3}},
        ),
        ({}, {}),  # the stack was updated by an older version
    ],
)
def test_a_job_moves_between_the_zones_of_the_platform_at_their_known_prices(
    prices: dict[str, Any], expected: dict[str, Any]
) -> None:
    platform = platform_output()
    del platform["zonePrices"]
    graph = job_stack({**platform, "zones": ["b", "a"], **prices})

    annotations = graph.one("ElasticJob").inputs["metadata"]["annotations"]
    assert json.loads(annotations["everstep.dev/placement"]) == {"zones": ["b", "a"], **expected}


@pytest.mark.parametrize("stack", [eks_stack, aks_stack])
def test_a_new_certificate_of_a_clouds_cluster_does_not_replace_the_job(stack: ModuleType) -> None:
    """Without the identifier, pulumi-kubernetes would treat a new certificate as another cluster."""
    identifier = stack.training_stack().outputs["platform"]["clusterIdentifier"]
    graph = job_stack({**platform_output(), "clusterIdentifier": identifier})

    assert identifier
    assert graph.one("kubernetes").inputs["clusterIdentifier"] == identifier
    assert "clusterIdentifier" not in default_job().one("kubernetes").inputs


def test_the_outputs_locate_the_run_of_the_job_on_the_volume_of_the_platform() -> None:
    platform_outputs, outputs = maintained_stack().outputs, default_job().outputs

    assert outputs["job"] == "second"
    assert outputs["checkpoints"] == "/mnt/everstep/runs/second/checkpoints"
    assert outputs["journal"] == "/mnt/everstep/runs/second/journal"
    for output in ("namespace", "volumePath", "follow", "image"):
        assert outputs[output] == platform_outputs[output], output


def test_the_quota_counts_the_workers_of_this_job_only() -> None:
    graph = job_stack(job={"name": "second", "maxReplicas": 5})
    quota, priority = graph.one("ResourceQuota").inputs, graph.one("PriorityClass").inputs

    (term,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert quota["spec"]["hard"] == {"pods": "5"}
    assert term["values"] == [priority["metadata"]["name"]]
    assert pod_of(graph.one("ElasticJob"))["priorityClassName"] == priority["metadata"]["name"]


@pytest.mark.parametrize(
    ("priority", "policy"), [(-5, "Never"), (0, "Never"), (7, "PreemptLowerPriority")]
)
def test_only_workers_with_a_raised_priority_preempt_others(priority: int, policy: str) -> None:
    priority_class = job_stack(priority=priority).one("PriorityClass").inputs

    assert (priority_class["value"], priority_class["preemptionPolicy"]) == (priority, policy)


def test_priority_and_quota_exist_before_the_workers() -> None:
    assert {"training-priority", "training-quota"} <= default_job().ancestors("training-job-second")


@pytest.mark.parametrize(
    ("changes", "pods"),
    [
        ({"zones": ["a", "b"]}, "10"),  # a move: old and new workers overlap
        ({"zones": ["a"]}, "5"),
        ({"zones": ["a", "b"], "upstream": True}, "5"),
    ],
    ids=["two zones", "one zone", "a controller that moves no job"],
)
def test_the_quota_lets_the_job_move_between_zones(changes: dict[str, Any], pods: str) -> None:
    graph = job_stack({**platform_output(), **changes}, job={"name": "second", "maxReplicas": 5})

    assert graph.one("ResourceQuota").inputs["spec"]["hard"] == {"pods": pods}


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        ({}, "/everstep/data/imagefolder"),
        ({"source": "uploads/photos.tar"}, "/everstep/data/imagefolder.second"),
    ],
    ids=["in the folder of all jobs", "of its own"],
)
def test_a_data_set_that_the_platform_lacks_is_prepared_first(
    source: dict[str, str], folder: str
) -> None:
    graph = job_stack(data={"dataset": "imagefolder", **source})

    worker = pod_of(graph.one("ElasticJob"))["containers"][0]
    (prepare,) = pod_of(graph.one("Job"))["containers"]
    assert "training-data-second" in graph.ancestors("training-job-second")
    assert folder in worker["args"]
    assert folder in prepare["args"]


def test_jobs_with_sources_of_their_own_share_neither_a_folder_nor_a_kubernetes_job() -> None:
    photographs = {"dataset": "imagefolder", "source": "uploads/photos.tar"}
    jobs = {
        name: job_stack(data=photographs, job={"name": name}).one("Job")
        for name in ("second", "third")
    }

    assert {job.inputs["metadata"]["name"] for job in jobs.values()} == {
        *("prepare.second", "prepare.third"),
    }
    for name, job in jobs.items():
        arguments = pod_of(job)["containers"][0]["args"]
        folder = f"/everstep/data/imagefolder.{name}"
        assert arguments[arguments.index("--output") + 1] == folder
        assert arguments[arguments.index("--source") + 1] == f"{folder}-source"


def test_a_source_of_a_data_set_that_the_platform_has_is_refused() -> None:
    platform = {**platform_output(), "dataset": "imagefolder"}

    with pytest.raises(ConfigurationError, match="the stack eks-dev has prepared") as error:
        job_stack(platform, data={"dataset": "imagefolder", "source": "uploads/photos.tar"})
    (fault,) = error.value.faults
    assert fault.path == "data.source"
    assert "remove it" in fault.fix


@pytest.mark.parametrize(
    ("job", "key"),
    [
        ({"scaling": "capacity"}, "job.scaling"),
        ({"deadline": "7d", "onDemand": "never"}, "job.deadline"),
    ],
)
def test_what_the_upstream_controller_ignores_is_refused_on_its_platform(
    job: dict[str, str], key: str
) -> None:
    second = {"name": "second", **job}
    assert job_stack(job=second).one("ElasticJob")

    with pytest.raises(ConfigurationError, match=r"controller\.kind upstream") as error:
        job_stack({**platform_output(), "upstream": True}, job=second)
    assert error.value.faults[0].path == key
    assert "stack eks-dev" in error.value.faults[0].fix


def test_the_users_program_needs_no_data_preparation() -> None:
    graph = job_stack(
        {**platform_output(), "dataset": None},
        job={"name": "second", "image": "example.org/mine:1", "command": ["python3", "train.py"]},
    )

    assert not graph.of_type("Job")


def test_with_a_cache_for_an_object_store_nothing_is_prepared() -> None:
    cache = {"source": "s3://shards/imagenet"}
    graph = job_stack(data={"dataset": "imagefolder", "cache": cache})

    (egress,) = graph.one("NetworkPolicy").inputs["spec"]["egress"]
    assert egress["ports"] == [{"protocol": "TCP", "port": 443}]
    assert graph.one("NetworkPolicy").inputs["spec"]["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/name": "worker",
        "app.kubernetes.io/part-of": "everstep",
        "job-name": "second",
    }, "the policies of a platform without a cache allow no worker to connect to an object store"
    assert not graph.of_type("Job")
    assert "s3://shards/imagenet" in pod_of(graph.one("ElasticJob"))["containers"][0]["args"]


def test_on_a_platform_without_network_policies_a_cache_needs_none() -> None:
    cache = {"source": "s3://shards/imagenet"}
    platform = declare_existing(
        job={"name": "fashion"}, platform={"networkPolicies": False}
    ).outputs["platform"]

    graph = job_stack(platform, data={"dataset": "imagefolder", "cache": cache})

    assert not graph.of_type("NetworkPolicy"), (
        "it would be the only one, and deny all other traffic"
    )


def test_image_and_grace_period_default_to_the_values_of_the_platform() -> None:
    platform = {**platform_output(), "image": "example.org/trainer:7", "graceSeconds": 120}
    second = {"name": "second", "image": "example.org/other:1", "graceSeconds": 45}

    default_pod = pod_of(job_stack(platform).one("ElasticJob"))
    configured_pod = pod_of(job_stack(platform, job=second).one("ElasticJob"))

    assert default_pod["containers"][0]["image"] == "example.org/trainer:7"
    assert default_pod["terminationGracePeriodSeconds"] == 120
    assert configured_pod["containers"][0]["image"] == "example.org/other:1"
    assert configured_pod["terminationGracePeriodSeconds"] == 45


def test_the_pods_pull_with_the_logins_of_the_platform() -> None:
    output = declare_existing(
        job={"name": "fashion", "image": "ghcr.io/vision/trainer:1.0"},
        platform={"registryLogins": {"ghcr.io": "robot"}},
    ).outputs["platform"]
    photographs = {"dataset": "imagefolder", "source": "uploads/photos.tar"}
    other_image = {"name": "second", "image": "example.org/other:1"}

    graph = job_stack(output, data=photographs)
    other_registry = job_stack(output, data=photographs, job=other_image)

    assert "robot" not in json.dumps(output), "the state of a job stack needs no login"
    for kind in ("ElasticJob", "Job"):
        assert pod_of(graph.one(kind))["imagePullSecrets"] == [{"name": "everstep-registries"}]
        assert "imagePullSecrets" not in pod_of(other_registry.one(kind))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "has no output `platform`"),
        ({"job": "fashion"}, "of another version of Everstep"),
        ({"etcdUsers": True}, "has etcd.authentication: users"),
        ({"job": "second"}, "is the name of the job of the stack eks-dev"),
    ],
    ids=["none", "incomplete", "etcd with users", "the same name"],
)
def test_a_platform_on_which_the_job_cannot_run_is_refused(
    output: dict[str, Any] | None, message: str
) -> None:
    incomplete = output == {"job": "fashion"}
    platform = output if output is None or incomplete else {**platform_output(), **output}

    with pytest.raises(ConfigurationError, match=message) as error:
        shared_platform.read("eks-dev", platform, SECOND)
    assert error.value.faults[0].fix


def test_an_output_of_a_newer_version_with_more_fields_is_read() -> None:
    newer_output = {**platform_output(), "added": {"later": True}}

    assert shared_platform.read("eks-dev", newer_output, SECOND).namespace == "elastic-job"
