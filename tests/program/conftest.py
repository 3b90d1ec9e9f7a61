"""A real control plane without machines, and the Pulumi engine with this repository's program."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cloudtwin.pulumi import backend_url, install_plugins
from cloudtwin.toolchain import ensure_tools

from everstep.progress import Silent
from tests.program.simulated_nodes import simulated_nodes

ROOT = Path(__file__).resolve().parents[2]
STACK = "local"


@dataclass(frozen=True)
class Project:
    """A copy of the project that a test may edit, with its own state.

    Attributes:
        folder: root of the project.
        pulumi: path of the Pulumi CLI.
        environment: environment variables of Pulumi.
    """

    folder: Path
    pulumi: Path
    environment: dict[str, str]

    @property
    def stack_file(self) -> Path:
        return self.folder / "stacks" / f"Pulumi.{STACK}.yaml"

    def change(self, section: str, **values: Any) -> None:
        """Change keys of one section of the stack file."""
        content = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))
        content["config"].setdefault(f"everstep:{section}", {}).update(values)
        self.stack_file.write_text(yaml.safe_dump(content), encoding="utf-8")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run Pulumi and return the result, whether it succeeds or fails."""
        return subprocess.run(
            [str(self.pulumi), *arguments, "--non-interactive", "--color=never"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )

    def run_checked(self, *arguments: str) -> str:
        """Run Pulumi, require success, and return its output."""
        result = self.run(*arguments)
        assert result.returncode == 0, (
            f"pulumi {' '.join(arguments)}\n{result.stdout}\n{result.stderr}"
        )
        return result.stdout

    def planned_operations(self) -> dict[str, str]:
        """Return the planned operation of `preview` for each resource that changes."""
        plan = json.loads(self.run_checked("preview", "--json"))
        return {
            step["urn"].rsplit("::", 1)[-1]: step["op"]
            for step in plan["steps"]
            if step["op"] not in {"same", "read"}
        }


def kubectl(cluster: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run kubectl with a kubeconfig, require success, and return its output."""
    result = subprocess.run(
        ["kubectl", "--kubeconfig", str(cluster), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"kubectl {' '.join(arguments)}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="session")
def cluster(control_plane: Path) -> Path:
    """Return the kubeconfig of a control plane without machines."""
    return control_plane


@pytest.fixture
def nodes(cluster: Path) -> Iterator[None]:
    """Simulate nodes in that cluster."""
    with simulated_nodes(cluster):
        yield


@pytest.fixture
def project(cluster: Path, tmp_path: Path) -> Project:
    """Return a copy of the project that is configured for that cluster."""
    return make_project(tmp_path, {"KUBECONFIG": str(cluster)})


@pytest.fixture
def project_without_cluster(tmp_path: Path) -> Project:
    """Return a copy of the project without a cluster."""
    return make_project(tmp_path, {})


def make_project(root: Path, environment: dict[str, str]) -> Project:
    """Copy the files of a stack into a new project with an empty state."""
    folder, backend, home = root / "project", root / "backend", root / "home"
    for path in (folder, backend):
        path.mkdir()
    for file in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / file, folder / file)
    shutil.copytree(ROOT / "stacks", folder / "stacks")
    for code in ("components", "manifests"):
        (folder / code).symlink_to(ROOT / code)
    pulumi = ensure_tools(["pulumi"], Silent())["pulumi"]
    variables = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    project = Project(
        folder,
        pulumi,
        {
            **variables,
            **install_plugins(home, pulumi),
            "PULUMI_BACKEND_URL": backend_url(backend),
            "PULUMI_CONFIG_PASSPHRASE": "test-passphrase",
            "PULUMI_STACK": STACK,
            **environment,
        },
    )
    project.run_checked("stack", "init", STACK)
    return project
