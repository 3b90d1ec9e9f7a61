"""The command lines in the stack's pods are valid for the programs that they start."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.config import DATASETS
from controller.__main__ import parse as parse_controller
from etcd.__main__ import main as rejoin
from everstep.catalog.names import METRICS_PORT_VARIABLE
from spot.__main__ import parse as parse_watcher
from tests.components.existing.existing_stack import declare_existing, pod_of
from tests.components.fake_cloud import default_graph
from trainer.data import check_name
from trainer.settings import parse as parse_trainer


def trainer_arguments(**job: Any) -> list[str]:
    (container,) = pod_of(declare_existing(job={"name": "fashion", **job})["training-job-fashion"])[
        "containers"
    ]
    arguments: list[str] = container["args"]
    return arguments[arguments.index("trainer.train") + 1 :]


def test_the_trainer_accepts_the_arguments_of_a_worker() -> None:
    actual = parse_trainer(
        trainer_arguments(
            model="efficientnet_b1", epochs=2, learningRate=0.1, fresh="again", seed=7
        )
    )

    assert (actual.model, actual.dataset, actual.epochs) == ("efficientnet_b1", "fashion-mnist", 2)
    assert actual.run == Path("/everstep/runs/fashion")
    assert actual.data == Path("/everstep/data/fashion-mnist")
    assert (actual.learning_rate, actual.fresh, actual.seed) == (0.1, "again", 7)


def test_stack_and_trainer_have_the_same_defaults() -> None:
    actual = parse_trainer(trainer_arguments())
    required = ("model", "dataset", "data", "run")
    defaults = parse_trainer(
        [argument for name in required for argument in (f"--{name}", str(getattr(actual, name)))]
    )

    assert actual == defaults


def test_optional_settings_reach_the_trainer() -> None:
    exact = parse_trainer(trainer_arguments(mode="exact", shardSize=16))
    live = parse_trainer(trainer_arguments(compress="bf16", nonfiniteLoss="skip", loaderWorkers=2))

    assert (exact.mode, exact.shard_size) == ("exact", 16)
    assert (live.compress, live.nonfinite_loss, live.loader_workers) == ("bf16", "skip", 2)


def test_a_worker_serves_metrics_on_the_annotated_port() -> None:
    template = default_graph()["training-job-fashion"].inputs["spec"]["replicaSpecs"]["Worker"][
        "template"
    ]
    (container,) = template["spec"]["containers"]
    actual = {variable["name"]: variable.get("value") for variable in container["env"]}

    assert (
        actual[METRICS_PORT_VARIABLE] == template["metadata"]["annotations"]["prometheus.io/port"]
    )
    assert int(actual[METRICS_PORT_VARIABLE]) in [
        port["containerPort"] for port in container["ports"]
    ]


def test_the_controller_accepts_its_flags() -> None:
    (container,) = pod_of(declare_existing()["training-controller-deployment"])["containers"]

    actual = parse_controller(container["command"][3:])

    assert container["command"][:3] == ["python3", "-m", "controller"]
    assert (actual.namespace, actual.metrics_port, actual.leader_elect) == (
        "elastic-job",
        8080,
        True,
    )


def test_the_watcher_accepts_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    (container,) = pod_of(default_graph()["training-nodes-spot-watcher"])["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], "gpu-0")

    actual = parse_watcher([*container["args"], "--api", "https://api"])

    assert container["command"] == ["python3", "-m", "spot"]
    assert (actual.node, actual.cloud) == ("gpu-0", "auto")


def test_the_rejoin_container_accepts_the_flags_of_etcd(tmp_path: Path) -> None:
    (container,) = pod_of(default_graph()["training-etcd-members"])["initContainers"]
    config_file = tmp_path / "etcd.json"
    # A member that has its data sends no request.
    (tmp_path / "member" / "member").mkdir(parents=True)
    arguments = [
        argument.replace("$(POD_NAME)", "etcd-0").replace("/var/lib/etcd", str(tmp_path))
        for argument in container["command"][3:]
    ]

    rejoin(arguments)

    actual = json.loads(config_file.read_text(encoding="utf-8"))
    assert (actual["name"], actual["enable-v2"], actual["heartbeat-interval"]) == (
        "etcd-0",
        True,
        200,
    )
    assert actual["initial-cluster"].count("=http://etcd-") == 3


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_trainer_supports_every_data_set(dataset: str) -> None:
    check_name(dataset)
