"""Installed wheels outside a clone: init, doctor, up and down, as a user without the repository runs them.

All tests share one installation. It builds wheels of the three distributions and installs them into an empty virtual
environment with the locked dependencies. The training takes seconds, on a few images: test_up_train_evict_down.py
trains on the data set of the project.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.trainer.data import photographs

REPOSITORY = Path(__file__).parents[2]
UV = str(Path(sys.executable).parent / "uv")
TWIN = f"wheel-{os.getpid()}"
INSTALL_SECONDS, UP_SECONDS, DOWN_SECONDS, LAUNCH_SECONDS = 600, 1500, 300, 600

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(UP_SECONDS + 2 * INSTALL_SECONDS)]


@dataclass(frozen=True)
class Installation:
    """A virtual environment with the wheels, and a folder that is not a clone."""

    program: Path
    folder: Path

    def run(
        self, *arguments: str, cwd: Path | None = None, seconds: float = 300, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the installed command with nothing of this repository on its path."""
        excluded_variables = {"PYTHONPATH", "VIRTUAL_ENV", "PULUMI_CONFIG_PASSPHRASE"}
        environment = {
            name: value for name, value in os.environ.items() if name not in excluded_variables
        }
        return subprocess.run(
            [self.program, *arguments],
            cwd=cwd or self.folder / "project",
            env={
                **environment,
                "EVERSTEP_STATE": str(self.folder / "state"),
                "EVERSTEP_TWIN": TWIN,
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


def run(*command: str | Path) -> None:
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Install the wheels and write a project; the twin is always taken down."""
    folder = tmp_path_factory.mktemp("installed")
    sources = folder / "sources"  # a build leaves files next to the sources
    # Concurrent tests may remove these files during the copy.
    caches = ("__pycache__", ".*_cache", ".hypothesis")
    ignore = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", *caches)
    shutil.copytree(REPOSITORY, sources, ignore=ignore)
    for distribution in (".", "facts", "twin"):
        run(
            UV, "build", "--wheel", "--no-build-isolation", "--offline",
            "--python", sys.executable, "--out-dir", folder / "dist", sources / distribution,
        )  # fmt: skip
    shutil.rmtree(sources)
    python = folder / "venv" / "bin" / "python"
    run(UV, "venv", "--python", sys.executable, folder / "venv")
    requirements = REPOSITORY / "requirements" / "runtime.txt"
    run(UV, "pip", "install", "--python", python, "--require-hashes", "-r", requirements)
    wheels = sorted((folder / "dist").glob("*.whl"))
    assert len(wheels) == 3, wheels
    run(UV, "pip", "install", "--python", python, "--no-deps", *wheels)
    installation = Installation(python.parent / "everstep", folder)
    result = installation.run("init", str(folder / "project"), cwd=folder)
    assert result.returncode == 0, result.stderr
    try:
        yield installation
    finally:
        installation.run("down", "--yes", seconds=DOWN_SECONDS)


def test_init_writes_a_project(installation: Installation) -> None:
    files = {
        str(path.relative_to(installation.folder / "project"))
        for path in (installation.folder / "project").rglob("*")
        if path.is_file()
    }

    expected = {"Pulumi.yaml", "__main__.py", "README.md", ".gitignore", "stacks/Pulumi.local.yaml"}
    assert expected <= files


def test_init_refuses_to_overwrite(installation: Installation) -> None:
    result = installation.run("init", str(installation.folder / "project"))

    assert result.returncode == 1
    assert "--force" in result.stderr


def test_the_html_report_is_written_from_package_data(
    installation: Installation,
) -> None:
    journal = installation.folder / "run" / "journal"
    journal.mkdir(parents=True)
    (journal / "worker-0.jsonl").write_text('{"at": 1790000000, "kind": "start", "node": "n"}\n')

    result = installation.run("report", "--run", str(journal.parent), "--html", "report.html")

    assert result.returncode == 0, result.stderr
    page = installation.folder / "project" / "report.html"
    assert "<style>:root" in page.read_text()
    page.unlink()


def test_doctor_finds_no_bug(installation: Installation) -> None:
    result = installation.run("doctor")

    assert "bug:" not in result.stderr
    assert "programs" in result.stdout, result.stderr


def test_launch_runs_the_example_of_the_api_reference(installation: Installation) -> None:
    page = (REPOSITORY / "docs" / "elastic-api.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    script = installation.folder / "train.py"
    # One string is one write: the workers share an unbuffered output.
    script.write_text(f"{example}print(f'everstep of {{elastic.__file__}}')\n", encoding="utf-8")
    # Only torch is taken from this environment: it is not among the dependencies of the wheels.
    # The .pth files of editable installs are not read from folders of PYTHONPATH.
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch = str(Path(spec.origin).parents[1])

    result = installation.run(
        *("launch", "--nproc-per-node", "2", "train.py"),
        cwd=installation.folder,
        seconds=LAUNCH_SECONDS,
        PYTHONPATH=torch,
    )

    assert result.returncode == 0, f"{result.stdout}{result.stderr}"
    assert result.stdout.count(f"everstep of {installation.folder}") == 2, (
        "each worker imports the package of the wheel"
    )
    checkpoints = list((installation.folder / "runs" / "example" / "checkpoints").iterdir())
    assert checkpoints, "the example names a folder for them"


def use_small_data(installation: Installation) -> None:
    """Put images on the twin's volume, and let the project train on them."""
    photographs.write_photographs(
        installation.folder / "state" / TWIN / "shared" / "data" / "imagefolder", per_class=40
    )
    stack_file = installation.folder / "project" / "stacks" / "Pulumi.local.yaml"
    stack = yaml.safe_load(stack_file.read_text(encoding="utf-8"))
    stack["config"]["everstep:data"] = {"dataset": "imagefolder"}
    stack["config"]["everstep:job"] |= {"imageSize": 32, "globalBatch": 16}
    stack_file.write_text(yaml.safe_dump(stack), encoding="utf-8")


def test_up_trains_and_down_leaves_nothing(installation: Installation) -> None:
    use_small_data(installation)

    up_result = installation.run("up", seconds=UP_SECONDS)
    assert up_result.returncode == 0, f"{up_result.stdout[-3000:]}{up_result.stderr[-6000:]}"
    assert "finished" in up_result.stdout, "`up` ends with the report of the finished training"

    down_result = installation.run("down", "--yes", seconds=DOWN_SECONDS)
    assert down_result.returncode == 0, down_result.stderr
    assert "nothing is left" in down_result.stderr
