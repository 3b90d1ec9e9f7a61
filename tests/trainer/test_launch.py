"""The command line of a pod."""

import json
import subprocess
import sys
from pathlib import Path

from everstep.elastic.launch.options import parse as parse_options
from trainer import launch
from trainer.settings import parse

AGENT_OPTIONS = ["--rdzv_backend=etcd", "--rdzv_endpoint=e:2379", "--rdzv_id=job", "--nnodes=1:3"]
REPOSITORY = Path(__file__).parents[2]
FIND_RESULT = """
import sys
from everstep.elastic.launch.options import parse
from trainer import launch

print(launch.find_result(parse(sys.argv[1:])))
sys.exit("torch" in sys.modules)
"""


def trainer_arguments(run: Path) -> list[str]:
    return [
        *("--model", "resnet18", "--dataset", "fashion-mnist", "--data", "/data"),
        *("--run", str(run)),
    ]


def command_line(run: Path) -> list[str]:
    return [
        *AGENT_OPTIONS,
        *("--nproc_per_node=1", "--max_restarts=1000", "-m", "trainer.train"),
        *trainer_arguments(run),
    ]


def write_result(run: Path) -> None:
    fingerprint = parse(trainer_arguments(run)).fingerprint
    (run / "result.json").write_text(
        json.dumps({"accuracy": 0.9, "max_steps": 0, "fingerprint": fingerprint})
    )


def test_the_command_line_of_a_pod_reaches_the_trainer(tmp_path: Path) -> None:
    options = parse_options(command_line(tmp_path))

    settings = launch.settings_of(options)

    assert settings is not None
    assert (settings.run, settings.model) == (tmp_path, "resnet18")


def test_a_run_without_a_result_is_not_finished(tmp_path: Path) -> None:
    assert launch.find_result(parse_options(command_line(tmp_path))) is None


def test_a_finished_run_is_detected_before_torch_is_imported(tmp_path: Path) -> None:
    write_result(tmp_path)

    program = subprocess.run(
        [sys.executable, "-c", FIND_RESULT, *command_line(tmp_path)],
        cwd=REPOSITORY,
        check=False,
        capture_output=True,
        text=True,
    )

    assert "accuracy 0.9" in program.stdout, program.stderr
    assert program.returncode == 0, "a late joiner would wait seconds for the import of torch"


def test_a_result_without_an_accuracy_counts_as_a_result(tmp_path: Path) -> None:
    fingerprint = parse(trainer_arguments(tmp_path)).fingerprint
    (tmp_path / "result.json").write_text(json.dumps({"max_steps": 0, "fingerprint": fingerprint}))

    text = launch.find_result(parse_options(command_line(tmp_path)))

    assert text == f"{tmp_path} holds its result, accuracy nan"


def test_another_program_is_never_mistaken_for_a_finished_trainer(tmp_path: Path) -> None:
    write_result(tmp_path)
    script = tmp_path / "train.py"
    script.touch()

    assert launch.find_result(parse_options([str(script), *trainer_arguments(tmp_path)])) is None
