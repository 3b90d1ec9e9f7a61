"""A real control plane without machines, and the real engine running this repository's program."""

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

from everstep.progress import Silent
from tests.twin.program.paper_nodes import paper_nodes
from twin.nodes import Twin
from twin.pulumi import install_plugins
from twin.toolchain import ensure_tools

ROOT = Path(__file__).resolve().parents[3]
STACK = "local"


@dataclass(frozen=True)
class Project:
    """A copy of the project that a test may edit, with a state of its own."""

    folder: Path
    pulumi: Path
    environment: dict[str, str]

    @property
    def stack_file(self) -> Path:
        return self.folder / "stacks" / f"Pulumi.{STACK}.yaml"

    def change(self, section: str, **values: Any) -> None:
        """Change keys of one section of the stack file."""
        said = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))
        said["config"].setdefault(f"everstep:{section}", {}).update(values)
        self.stack_file.write_text(yaml.safe_dump(said), encoding="utf-8")

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run Pulumi, whatever comes of it."""
        return subprocess.run(
            [str(self.pulumi), *words, "--non-interactive", "--color=never"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )

    def must(self, *words: str) -> str:
        """Run Pulumi; it must succeed."""
        done = self.run(*words)
        assert done.returncode == 0, f"pulumi {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def planned(self) -> dict[str, str]:
        """What `preview` would do to each resource that does not stay as it is."""
        plan = json.loads(self.must("preview", "--json"))
        return {
            step["urn"].rsplit("::", 1)[-1]: step["op"]
            for step in plan["steps"]
            if step["op"] not in {"same", "read"}
        }


@pytest.fixture(scope="package")
def cluster(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The kubeconfig of a control plane without machines."""
    twin = Twin.open(f"program-{os.getpid()}")
    try:
        twin.up([], Silent())
        yield twin.kubeconfig
    finally:
        twin.down(Silent())


@pytest.fixture
def nodes(cluster: Path) -> Iterator[None]:
    """Paper nodes on that cluster."""
    with paper_nodes(cluster):
        yield


@pytest.fixture
def project(cluster: Path, tmp_path: Path) -> Project:
    """A copy of the project that is set up for that cluster."""
    return make_project(tmp_path, {"KUBECONFIG": str(cluster)})


@pytest.fixture
def lonely_project(tmp_path: Path) -> Project:
    """A copy of the project without any cluster."""
    return make_project(tmp_path, {})


def make_project(place: Path, environment: dict[str, str]) -> Project:
    """Copy what a stack is made of, and give it an empty state."""
    folder, backend, home = place / "project", place / "backend", place / "home"
    for new in (folder, backend):
        new.mkdir()
    for file in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / file, folder / file)
    shutil.copytree(ROOT / "stacks", folder / "stacks")
    for code in ("components", "manifests"):
        (folder / code).symlink_to(ROOT / code)
    pulumi = ensure_tools(["pulumi"], Silent())["pulumi"]
    inherited = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    project = Project(
        folder,
        pulumi,
        {
            **inherited,
            **install_plugins(home, pulumi),
            "PULUMI_BACKEND_URL": f"file://{backend}",
            "PULUMI_CONFIG_PASSPHRASE": "of a test",
            "PULUMI_STACK": STACK,
            **environment,
        },
    )
    project.must("stack", "init", STACK)
    return project
