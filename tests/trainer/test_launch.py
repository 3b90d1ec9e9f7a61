"""The command line of a pod."""

import json
from pathlib import Path

from everstep.elastic.launch.options import parse as parse_options
from trainer import launch
from trainer.settings import parse

AGENT_OPTIONS = ["--rdzv_backend=etcd", "--rdzv_endpoint=e:2379", "--rdzv_id=job", "--nnodes=1:3"]


def command_line(run: Path) -> list[str]:
    return [
        *AGENT_OPTIONS,
        *("--nproc_per_node=1", "--max_restarts=1000", "-m", "trainer.train"),
        *("--model", "resnet18", "--dataset", "fashion-mnist", "--data", "/data"),
        *("--run", str(run)),
    ]


def test_the_command_line_of_a_pod_reaches_the_trainer(tmp_path: Path) -> None:
    options = parse_options(command_line(tmp_path))

    settings = launch.settings_of(options)

    assert settings is not None
    assert (settings.run, settings.model) == (tmp_path, "resnet18")


def test_a_finished_run_is_detected_before_torch_is_imported(tmp_path: Path) -> None:
    options = parse_options(command_line(tmp_path))
    assert launch.find_result(options) is None
    fingerprint = parse(list(options.arguments)).fingerprint
    (tmp_path / "result.json").write_text(
        json.dumps({"accuracy": 0.9, "max_steps": 0, "fingerprint": fingerprint})
    )

    assert "accuracy 0.9" in (launch.find_result(options) or "")


def test_another_program_is_never_mistaken_for_a_finished_trainer(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()

    assert launch.find_result(parse_options([str(script), "-m", "trainer.train"])) is None
