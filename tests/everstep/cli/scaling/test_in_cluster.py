"""The ElasticJob that measures one size of a group, derived from the stack's ElasticJob."""

from typing import Any

import pytest

from components.platform.etcd_access import worker_argument
from everstep.catalog.names import GPU_RESOURCE, JOB_NAME_LABEL, SCALING_ANNOTATION, SCALING_FIXED
from everstep.cli.scaling.in_cluster import MAX_SECONDS, derived_job
from everstep.cli.scaling.local import TrainerSettings
from everstep.elastic.launch.launcher import Launcher
from everstep.elastic.launch.options import parse
from everstep.errors import EverstepError

SETTINGS = TrainerSettings(model="efficientnet_b7", batch=64, steps=50, loader_workers=4)
ARGUMENTS = ["--nproc_per_node=8", "-m", "trainer.train", "--model", "resnet18"]
RUN = ["--rdzv_id=scale-efficientnet-b7-2", "--nnodes=2"]  # the controller adds them
OPTIONS = ["--data", "/everstep/data", "--run", "/everstep/runs/fashion", "--global-batch", "256"]


def elastic_job(arguments: list[str]) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {JOB_NAME_LABEL: "fashion"}}}
    pod = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "containers": [{"args": arguments, "resources": {"limits": {GPU_RESOURCE: "8"}}}],
    }
    worker = {"replicas": 3, "template": {"spec": pod}}
    spec = {"rdzvEndpoint": "etcd:2379", "replicaSpecs": {"Worker": worker}}
    return {"metadata": {"name": "fashion"}, "spec": spec}


def arguments_of(job: dict[str, Any]) -> list[str]:
    pod = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    arguments: list[str] = pod["containers"][0]["args"]
    return arguments


def test_the_job_has_exactly_the_replicas_of_the_size() -> None:
    size_job = derived_job(elastic_job(ARGUMENTS + OPTIONS), 2, SETTINGS, "word")

    assert size_job["metadata"]["name"] == "scale-efficientnet-b7-2"
    assert size_job["metadata"]["annotations"] == {SCALING_ANNOTATION: SCALING_FIXED}
    assert size_job["spec"]["minReplicas"] == size_job["spec"]["maxReplicas"] == 2
    assert size_job["spec"]["replicaSpecs"]["Worker"]["replicas"] == 2


def test_a_job_that_a_killed_study_leaves_behind_ends() -> None:
    size_job = derived_job(elastic_job(ARGUMENTS + OPTIONS), 2, SETTINGS, "word")

    assert size_job["spec"]["RunPolicy"]["activeDeadlineSeconds"] == MAX_SECONDS


def test_the_global_batch_grows_with_the_group_and_the_data_set_stays() -> None:
    arguments = arguments_of(derived_job(elastic_job(ARGUMENTS + OPTIONS), 2, SETTINGS, "word"))

    start = arguments.index("trainer.train") + 1
    options = dict(zip(arguments[start::2], arguments[start + 1 :: 2], strict=True))
    assert arguments[start - 3 : start] == ARGUMENTS[:3]
    assert options["--global-batch"] == str(64 * 8 * 2)
    assert options["--model"] == "efficientnet_b7"
    assert options["--data"] == "/everstep/data"
    assert options["--run"] == "/everstep/runs/scale-efficientnet-b7-2"
    assert options["--max-steps"] == "50"
    assert options["--fresh"] == "word", "an earlier run of this name must not be resumed"


def test_the_workers_avoid_each_other_and_not_the_workers_of_the_stack() -> None:
    job = elastic_job(ARGUMENTS + OPTIONS)

    size_job = derived_job(job, 2, SETTINGS, "word")

    pod = size_job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {JOB_NAME_LABEL: "scale-efficientnet-b7-2"}
    assert arguments_of(job) == ARGUMENTS + OPTIONS, "the stack's own job must not change"


def test_a_program_of_the_user_is_refused() -> None:
    with pytest.raises(EverstepError, match="runs your own program"):
        derived_job(elastic_job(["python3", "train.py"]), 2, SETTINGS, "word")


@pytest.mark.parametrize("credentials", [[], [worker_argument()]])
def test_the_keys_of_the_run_are_below_the_prefix_that_the_workers_may_write(
    credentials: list[str],
) -> None:
    """The job has the credentials of the stack's job, whose user may write the keys of its run only."""
    job = elastic_job([*credentials, *ARGUMENTS, *OPTIONS])

    arguments = arguments_of(derived_job(job, 2, SETTINGS, "word"))

    launch_options = parse(["--rdzv_backend=etcd", "--rdzv_endpoint=e:2379", *RUN, *arguments])
    options = Launcher(launch_options, "e:2379")._configure()[0].rdzv_configs
    assert options["etcd_prefix"] == "fashion"
    assert {"cacert", "cert", "key", "user", "password_file"} <= set(options) or not credentials
