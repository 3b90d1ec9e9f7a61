"""What the stack writes on command lines is what the programs behind them take."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.config import DATASETS, MODELS
from tests.unit.components.declared import declared, pod_of
from tests.unit.components.some_cloud import usual


def words_of_worker(**job: Any) -> list[str]:
    (container,) = pod_of(declared(job={"name": "fashion", **job})["training-job-fashion"])[
        "containers"
    ]
    words: list[str] = container["args"]
    return words[words.index("trainer.train") + 1 :]


def test_the_trainer_takes_what_the_stack_tells_a_worker() -> None:
    from trainer.settings import parse

    said = parse(
        words_of_worker(model="efficientnet_b1", epochs=2, learningRate=0.1, fresh="again", seed=7)
    )

    assert (said.model, said.dataset, said.epochs) == ("efficientnet_b1", "fashion-mnist", 2)
    assert said.run == Path("/everstep/runs/fashion")
    assert said.data == Path("/everstep/data/fashion-mnist")
    assert (said.learning_rate, said.fresh, said.seed) == (0.1, "again", 7)


def test_a_silent_stack_file_means_the_trainers_own_defaults_where_both_have_one() -> None:
    from trainer.settings import Settings, parse

    said = parse(words_of_worker())
    own = Settings(model=said.model, dataset=said.dataset, data=said.data, run=said.run)

    for name in ("weight_decay", "label_smoothing", "warmup_fraction", "image_size"):
        assert getattr(said, name) == getattr(own, name), name


def test_what_only_some_runs_say_reaches_the_trainer_too() -> None:
    from trainer.settings import parse

    exact = parse(words_of_worker(mode="exact", shardSize=16))
    live = parse(words_of_worker(compress="bf16", nonfiniteLoss="skip", loaderWorkers=2))

    assert (exact.mode, exact.shard_size) == ("exact", 16)
    assert (live.compress, live.nonfinite_loss, live.loader_workers) == ("bf16", "skip", 2)


def test_a_worker_serves_its_figures_where_prometheus_is_told_to_look() -> None:
    from everstep.elastic.metrics import PORT_VARIABLE

    template = usual()["training-job-fashion"].inputs["spec"]["replicaSpecs"]["Worker"]["template"]
    (container,) = template["spec"]["containers"]
    said = {one["name"]: one.get("value") for one in container["env"]}

    assert said[PORT_VARIABLE] == template["metadata"]["annotations"]["prometheus.io/port"]
    assert int(said[PORT_VARIABLE]) in [port["containerPort"] for port in container["ports"]]


def test_the_controller_takes_its_flags() -> None:
    from controller.__main__ import parse

    (container,) = pod_of(declared()["training-controller-deployment"])["containers"]

    said = parse(container["command"][3:])

    assert container["command"][:3] == ["python3", "-m", "controller"]
    assert (said.namespace, said.metrics_port, said.leader_elect) == ("elastic-job", 8080, True)


def test_the_watcher_takes_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from spot.__main__ import parse

    (container,) = pod_of(usual()["training-nodes-spot-watcher"])["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], "gpu-0")

    said = parse([*container["args"], "--api", "https://api"])

    assert container["command"] == ["python3", "-m", "spot"]
    assert (said.node, said.cloud) == ("gpu-0", "auto")


def test_a_member_that_comes_back_takes_etcds_flags(tmp_path: Path) -> None:
    from spot import rejoin

    (container,) = pod_of(usual()["training-etcd-members"])["initContainers"]
    written = tmp_path / "etcd.json"
    (tmp_path / "member" / "member").mkdir(parents=True)  # it has its data: nobody is asked
    words = [
        word.replace("$(POD_NAME)", "etcd-0").replace("/var/lib/etcd", str(tmp_path))
        for word in container["command"][3:]
    ]

    rejoin.main(words)

    said = json.loads(written.read_text(encoding="utf-8"))
    assert (said["name"], said["enable-v2"], said["heartbeat-interval"]) == ("etcd-0", True, 200)
    assert said["initial-cluster"].count("=http://etcd-") == 3


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_trainer_knows_every_data_set(dataset: str) -> None:
    from trainer.data import check_name

    check_name(dataset)


def test_the_trainer_knows_every_model() -> None:
    from trainer import models

    assert set(MODELS) == set(models.NAMES)
