import json

import pytest

from trainer import launch
from trainer.settings import parse

INJECTED = ["--rdzv_backend=etcd", "--rdzv_endpoint=e:2379", "--rdzv_id=job", "--nnodes=1:3"]


def line(run) -> list[str]:
    return [
        *INJECTED,
        *("--nproc_per_node=1", "--max_restarts=1000", "-m", "trainer.train"),
        *(
            "--model",
            "resnet18",
            "--dataset",
            "fashion-mnist",
            "--data",
            "/data",
            "--run",
            str(run),
        ),
    ]


def test_what_controllers_inject_is_understood(tmp_path):
    config, entry, arguments = launch.Launcher(line(tmp_path))._configure()

    assert config.rdzv_backend == "etcd-v3", "torch's own etcd backend needs etcd's v2 API"
    assert (config.min_nodes, config.max_nodes, config.max_restarts) == (1, 3, 1000)
    assert (config.run_id, config.rdzv_endpoint) == ("job", "e:2379")
    assert entry is launch.run_supervised
    assert arguments[0] == "trainer.train"
    assert parse(arguments[1:]).run == tmp_path


def test_a_change_of_the_group_never_uses_up_the_restarts_that_nobody_set(tmp_path):
    words = [word for word in line(tmp_path) if not word.startswith("--max_restarts")]

    config, _, _ = launch.Launcher(words)._configure()

    assert config.max_restarts >= 1_000_000


def test_a_backend_of_torch_s_own_stays_what_it_is(tmp_path):
    config, _, _ = launch.Launcher(["--rdzv_backend=c10d", *line(tmp_path)[1:]])._configure()

    assert config.rdzv_backend == "c10d"


def test_a_finished_run_is_seen_before_torch_is_even_imported(tmp_path):
    assert launch.finished_already(line(tmp_path)) is None
    fingerprint = parse(line(tmp_path)[8:]).fingerprint
    (tmp_path / "result.json").write_text(
        json.dumps({"accuracy": 0.9, "max_steps": 0, "fingerprint": fingerprint})
    )

    assert "accuracy 0.9" in (launch.finished_already(line(tmp_path)) or "")


def test_an_unknown_flag_ends_with_usage(tmp_path, capsys):
    with pytest.raises(SystemExit):
        launch.Launcher(["--rdzv_bakend=etcd", *line(tmp_path)])._configure()

    assert "--rdzv_bakend" in capsys.readouterr().err
