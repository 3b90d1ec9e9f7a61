"""A mistyped image on real nodes: `up` reports it in bounded time, and the next `up` with the right image continues.

The machines belong to a twin, but the stack uses them as an existing cluster: on its own twin
`everstep up` finds the error before it starts anything (tests/everstep/cli/engine/test_stand_ins.py).
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cloudtwin.nodes import Twin

from everstep.cli.images import OPTIONS
from everstep.cli.twin_settings import gpu_machine, system_machine
from everstep.progress import Lines

REPOSITORY = Path(__file__).parents[2]
EVERSTEP = str(Path(sys.executable).parent / "everstep")
TWIN = f"images-{os.getpid()}"
STUCK_SECONDS, UP_SECONDS = 6, 150

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Project:
    """A copy of the project whose stack file may be changed."""

    folder: Path

    @property
    def stack_file(self) -> Path:
        return self.folder / "stacks" / "Pulumi.local.yaml"

    def up(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [EVERSTEP, "up", "--detach", "--yes"],
            cwd=self.folder,
            env={
                **os.environ,
                "EVERSTEP_TWIN": TWIN,
                "CLOUDTWIN_STUCK_SECONDS": str(STUCK_SECONDS),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=UP_SECONDS,
        )


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """Start a system machine and a GPU machine in a separate state root."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDTWIN_STATE", str(tmp_path_factory.mktemp("state") / "twins"))
        twin = Twin.open(TWIN, OPTIONS)
        try:
            twin.up([system_machine("system-0"), gpu_machine("gpu-0")], Lines())
            yield twin
        finally:
            twin.down(Lines())


@pytest.fixture(scope="module")
def project(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project")
    (folder / "stacks").mkdir()
    shutil.copy(REPOSITORY / "Pulumi.yaml", folder)
    for name in ("components", "__main__.py", "manifests"):
        (folder / name).symlink_to(REPOSITORY / name)
    return Project(folder)


def test_a_mistyped_image_is_reported_in_time_and_the_right_one_continues(
    project: Project, twin: Twin
) -> None:
    right = (REPOSITORY / "stacks" / "Pulumi.local.yaml").read_text()
    stack_file = right.replace(
        "kind: existing", f"kind: existing\n    kubeconfig: {twin.kubeconfig}", 1
    )
    stack_file = re.sub(
        r"^( +(?:replicas|maxReplicas|members):) 3", r"\1 1", stack_file, flags=re.MULTILINE
    )
    wrong_controller = stack_file.replace("everstep/controller:local", "everstep/contoller:local")
    wrong_job = stack_file.replace(
        "image: localhost/everstep/trainer", "image: localhost/everstep/trainr"
    )

    for text, image in (
        (wrong_controller, "localhost/everstep/contoller:local"),
        (wrong_job, "localhost/everstep/trainr:local"),
    ):
        project.stack_file.write_text(text)
        began = time.monotonic()
        result = project.up()
        assert result.returncode == 1, result.stderr
        assert f"No node can get the image {image}" in result.stderr
        assert str(project.stack_file) in result.stderr
        assert time.monotonic() - began < UP_SECONDS / 2

    project.stack_file.write_text(stack_file)
    result = project.up()

    assert result.returncode == 0, result.stderr
    assert "created" in result.stderr or "replaced" in result.stderr
