"""The launcher's command line: its own options, torchrun's, and the options that controllers inject."""

import subprocess
import sys
from pathlib import Path

import pytest

from everstep.elastic.launch.options import (
    TORCHRUN_FLAGS,
    TORCHRUN_OPTIONS,
    parse,
    print_help,
)
from everstep.elastic.launch.programs import EXECUTABLE, MODULE, SCRIPT
from everstep.errors import EverstepError

OWN_NAMES = {
    "help", "nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "standalone",
    "module", "no-python", "run-path", "print-completion",
}  # fmt: skip


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    return "train.py"


def test_a_single_machine_needs_only_the_program(script: str) -> None:
    options = parse([script, "--epochs", "3", "--nnodes", "9"])

    assert (options.kind, options.program) == (SCRIPT, script)
    assert options.arguments == ("--epochs", "3", "--nnodes", "9"), "these are the program's"
    assert options.endpoint is None
    assert (options.nnodes, options.workers) == ("1", "1")


def test_the_flags_that_controllers_inject_are_accepted() -> None:
    controller_options = [
        "--rdzv_backend=etcd",
        "--rdzv_endpoint=e:2379",
        "--rdzv_id=job",
        "--nnodes=1:3",
    ]

    options = parse(
        [*controller_options, "--nproc_per_node=2", "--max_restarts=7", "-m", "a.b", "--run", "x"]
    )

    assert (options.endpoint, options.run_id, options.nnodes) == ("e:2379", "job", "1:3")
    assert options.supervised
    arguments = options.torchrun_arguments("e:2379")
    assert "--rdzv-backend=etcd-v3" in arguments, "torch's own etcd backend needs etcd's v2 API"
    assert "--max-restarts=7" in arguments
    assert arguments[-4:] == ["--module", "a.b", "--run", "x"]


def test_the_environment_of_kubeflow_is_accepted(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "PET_RDZV_ENDPOINT": "e:2379",
        "PET_RDZV_ID": "job",
        "PET_NNODES": "2:5",
        "PET_NPROC_PER_NODE": "3",
    }.items():
        monkeypatch.setenv(name, value)

    options = parse([script])

    assert (options.endpoint, options.run_id) == ("e:2379", "job")
    assert (options.nnodes, options.workers) == ("2:5", "3")


def test_a_backend_of_torch_is_not_changed(script: str) -> None:
    options = parse(["--rdzv-backend=c10d", "--rdzv-endpoint=h:1", script])

    assert not options.supervised
    assert "--rdzv-backend=c10d" in options.torchrun_arguments("h:1")


@pytest.mark.parametrize("spelling", ["--rdzv-id", "--rdzv_id", "--run-id"])
def test_the_names_of_torchrun_are_aliases(script: str, spelling: str) -> None:
    assert parse([spelling, "mnist", script]).run_id == "mnist"


@pytest.mark.parametrize(
    ("command", "kind", "program", "arguments"),
    [
        (["train.py", "--lr", "1"], SCRIPT, "train.py", ("--lr", "1")),
        (["python3", "train.py", "--lr", "1"], SCRIPT, "train.py", ("--lr", "1")),
        (["-m", "pack.train", "-v"], MODULE, "pack.train", ("-v",)),
        (["python3", "-m", "pack.train", "-v"], MODULE, "pack.train", ("-v",)),
        (["python3", "-u", "train.py"], EXECUTABLE, "python3", ("-u", "train.py")),
        (["sh", "-c", "true"], EXECUTABLE, "sh", ("-c", "true")),
        (["--no-python", "train.py"], EXECUTABLE, "train.py", ()),
    ],
)
@pytest.mark.usefixtures("script")
def test_a_program_is_a_script_a_module_or_an_executable(
    command: list[str], kind: str, program: str, arguments: tuple[str, ...]
) -> None:
    options = parse(command)

    assert (options.kind, options.program, options.arguments) == (kind, program, arguments)


@pytest.mark.parametrize(
    ("arguments", "problem", "fix"),
    [
        (["nothing.py"], "there is no program nothing.py in ", "path of a script"),
        (["--nnodes", "4:1", "train.py"], "--nnodes 4:1 is not", "--nnodes 1:4"),
        (["--nnodes", "0", "train.py"], "--nnodes 0 is not", "--nnodes 4"),
        (["--nnodes", "2:", "train.py"], "--nnodes 2: is not", "--nnodes 1:4"),
        (["--nproc-per-node", "many", "train.py"], "--nproc-per-node many is not", "`gpu`"),
        (["--rdzv-endpoint", "e:1", "--run-id", "x", "train.py"], "--nnodes must be", "1:4"),
        (["--rdzv-endpoint", "e:1", "train.py"], "--run-id and --nnodes must be", "mnist"),
        (["--rdzv-backend", "etcd", "train.py"], "without --rendezvous-endpoint", "leave"),
    ],
)
@pytest.mark.usefixtures("script")
def test_a_mistake_is_reported_with_its_fix(arguments: list[str], problem: str, fix: str) -> None:
    with pytest.raises(EverstepError) as error:
        parse(arguments)

    assert problem in error.value.problem
    assert fix in error.value.fix


def test_an_unknown_option_ends_with_usage(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["--rdzv_bakend=etcd", script])

    assert end.value.code == 2
    errors = capsys.readouterr().err
    assert errors.startswith("usage: everstep launch")
    assert "unrecognized arguments: --rdzv_bakend=etcd" in errors


def test_every_option_of_torchrun_is_accepted_with_its_number_of_values(script: str) -> None:
    from torch.distributed import run as torchrun

    for action in torchrun.get_args_parser()._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if not names or names[0].removeprefix("--") in OWN_NAMES:
            continue
        takes_value = action.nargs != 0
        assert (names[0].removeprefix("--") in TORCHRUN_OPTIONS) is takes_value, names
        assert (names[0].removeprefix("--") in TORCHRUN_FLAGS) is not takes_value, names
        for name in action.option_strings:
            torchrun_options = parse([name, *(["1"] if takes_value else []), script]).torchrun
            assert torchrun_options == (f"{names[0]}=1" if takes_value else names[0],)


def test_the_command_line_is_parsed_without_torch_and_the_packages_of_the_cli() -> None:
    code = (
        "import sys; sys.argv = ['everstep', 'launch', '--help']\n"
        "import everstep.elastic.launch.launcher, everstep.cli.launcher, everstep.cli.main\n"
        "print(*{'torch', 'typer', 'rich', 'cloudtwin', 'pulumi'} & set(sys.modules))"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=250
    )

    assert result.stdout.strip() == "", "a mistake must be reported immediately, in any image"


def test_the_help_shows_how_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    print_help()

    text = capsys.readouterr().out
    for part in ("everstep launch train.py", "--nnodes", "--rendezvous-endpoint", "exit codes"):
        assert part in text
