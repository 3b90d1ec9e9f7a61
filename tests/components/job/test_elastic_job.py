"""The training job: when an update stops waiting for it, and the command line of its workers."""

from typing import Any

import pytest
from cloudtwin.providers.kubernetes import wait_for

from everstep.elastic.launch.options import parse
from tests.components.aws.eks_stack import training_stack
from tests.components.existing.existing_stack import declare_existing, maintained_stack, pod_of
from tests.components.recorder import Graph


def readiness_problem(*conditions: tuple[str, str], graph: Graph | None = None) -> str:
    """Return the expectations that these conditions of the declared job do not meet."""
    job = (graph or maintained_stack()).one("ElasticJob")
    (expectation,) = wait_for.parse(job.inputs["metadata"]["annotations"]["pulumi.com/waitFor"])
    observed = [{"type": kind, "status": state} for kind, state in conditions]
    return expectation.unmet({"status": {"conditions": observed} if observed else {}})


@pytest.mark.parametrize("kind", ["Running", "Succeeded", "Suspended", "Failed"])
def test_an_update_ends_when_the_job_runs_has_ended_or_is_suspended(kind: str) -> None:
    assert readiness_problem(("Created", "True"), (kind, "True")) == ""


@pytest.mark.parametrize(
    "conditions",
    [
        (),
        (("Created", "True"),),
        (("Created", "True"), ("Running", "False")),
        (("Created", "True"), ("Running", "False"), ("Restarting", "True")),
    ],
)
def test_an_update_waits_for_workers_that_do_not_run_yet(
    conditions: tuple[tuple[str, str], ...],
) -> None:
    assert readiness_problem(*conditions), "an update with a mistyped image would succeed"


def container(**job: Any) -> dict[str, Any]:
    (worker,) = pod_of(declare_existing(job=job).one("ElasticJob"))["containers"]
    return dict(worker)


TRAINER_ARGUMENTS = [
    *("--nproc_per_node=1", "--max_restarts=1000", "-m", "trainer.train"),
    *("--model", "resnet18", "--dataset", "fashion-mnist"),
    *("--data", "/everstep/data/fashion-mnist", "--run", "/everstep/runs/training"),
    *("--epochs", "3", "--global-batch", "384", "--learning-rate", "0.4"),
    *("--weight-decay", "0.0005", "--label-smoothing", "0.05", "--warmup-fraction", "0.15"),
    *("--image-size", "224", "--checkpoint-seconds", "5.0", "--keep-checkpoints", "3"),
    *("--seed", "0", "--mode", "live"),
]


def test_the_command_line_of_the_trainer_does_not_change() -> None:
    worker = container()

    assert worker["args"] == TRAINER_ARGUMENTS, "a change of it replaces the job of every stack"
    assert "command" not in worker, "the image defines the entry point"


def test_optional_arguments_of_the_trainer_are_added_only_if_they_are_set() -> None:
    assert container(shardSize=7)["args"] == TRAINER_ARGUMENTS, "`live` has no shards"
    assert container(mode="exact")["args"] == [
        *TRAINER_ARGUMENTS[:-1],
        *("exact", "--shard-size", "32"),
    ]
    options = {"fresh": "a", "acceptData": "ab", "loaderWorkers": 2, "compress": "bf16"}
    options |= {"acceptOlderCheckpoint": 40}
    assert container(**options, nonfiniteLoss="skip")["args"] == [
        *TRAINER_ARGUMENTS,
        *("--fresh", "a", "--accept-data", "ab", "--accept-older-checkpoint", "40"),
        *("--loader-workers", "2"),
        *("--compress", "bf16", "--nonfinite-loss", "skip"),
    ]


def test_the_users_program_runs_under_the_launcher() -> None:
    worker = container(
        image="registry.example/mine:1",
        command=["python3", "train.py"],
        args=["--epochs", 3],
        gpusPerWorker=2,
    )

    assert worker["image"] == "registry.example/mine:1"
    assert worker["command"] == ["python3", "-m", "everstep.elastic.launch"]
    assert worker["args"] == [
        *("--nproc_per_node=2", "--max_restarts=1000"),
        *("python3", "train.py", "--epochs", "3"),
    ]
    assert {"name": "EVERSTEP_RUN", "value": "/everstep/runs/training"} in worker["env"]


def test_the_launcher_accepts_the_command_line_of_a_program() -> None:
    injected = ["--rdzv_backend=etcd", "--rdzv_endpoint=e:2379", "--rdzv_id=job", "--nnodes=1:3"]

    options = parse([*injected, *container(command=["python3", "-m", "a.b"], args=["-x"])["args"]])

    assert (options.kind, options.program, options.arguments) == ("module", "a.b", ("-x",))


def test_no_data_set_is_prepared_for_the_users_program() -> None:
    graph = declare_existing(job={"command": ["python3", "train.py"]})

    assert graph.of_type("DataPrep") == []
    assert graph.of_type("ElasticJob"), "the job does not wait for data that is not prepared"


def test_an_update_does_not_wait_for_capacity_where_nodes_are_created_on_demand() -> None:
    assert readiness_problem(("Created", "True"), graph=training_stack()) == "", (
        "spot capacity may take hours"
    )
    assert (
        readiness_problem(("Created", "True"), ("Running", "False"), graph=training_stack()) == ""
    )


def test_an_update_waits_until_the_controller_has_accepted_the_job() -> None:
    assert readiness_problem(graph=training_stack()), (
        "an update with a controller that does not run would succeed"
    )
    assert readiness_problem(("Running", "False"), graph=training_stack())
