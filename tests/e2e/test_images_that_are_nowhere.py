"""A mistyped image on real nodes: said within bounded time, and the next `up` with the right one goes on.

The machines are a twin's, but the stack knows them as a cluster of the user's own: on its own twin
`everstep up` finds the fault before it starts anything (tests/unit/cli/test_stand_ins.py).
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

from everstep.progress import Lines
from twin.nodes import MachineSpec, Role, Twin

REPOSITORY = Path(__file__).parents[2]
EVERSTEP = str(Path(sys.executable).parent / "everstep")
TWIN = f"images-{os.getpid()}"
STUCK_SECONDS, UP_SECONDS = 6, 150

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Project:
    """A clone whose stack file may be changed."""

    folder: Path

    @property
    def stack_file(self) -> Path:
        return self.folder / "stacks" / "Pulumi.local.yaml"

    def up(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [EVERSTEP, "up", "--detach", "--yes"],
            cwd=self.folder,
            env={**os.environ, "EVERSTEP_TWIN": TWIN, "EVERSTEP_STUCK_SECONDS": str(STUCK_SECONDS)},
            capture_output=True,
            text=True,
            check=False,
            timeout=UP_SECONDS,
        )


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """A machine that stays, one with a GPU, in a state root of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERSTEP_STATE", str(tmp_path_factory.mktemp("state") / "twins"))
        twin = Twin.open(TWIN)
        try:
            twin.up([MachineSpec("system-0", Role.SYSTEM), MachineSpec("gpu-0", Role.GPU)], Lines())
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


def test_a_mistyped_image_is_named_in_time_and_the_right_one_goes_on(
    project: Project, twin: Twin
) -> None:
    right = (REPOSITORY / "stacks" / "Pulumi.local.yaml").read_text()
    own = right.replace("kind: existing", f"kind: existing\n    kubeconfig: {twin.kubeconfig}", 1)
    own = re.sub(r"^( +(?:replicas|maxReplicas|members):) 3", r"\1 1", own, flags=re.MULTILINE)
    wrong_controller = own.replace("everstep/controller:local", "everstep/contoller:local")
    wrong_job = own.replace("image: localhost/everstep/trainer", "image: localhost/everstep/trainr")

    for text, image in (
        (wrong_controller, "localhost/everstep/contoller:local"),
        (wrong_job, "localhost/everstep/trainr:local"),
    ):
        project.stack_file.write_text(text)
        began = time.monotonic()
        done = project.up()
        assert done.returncode == 1, done.stderr
        assert f"No node can get the image {image}" in done.stderr
        assert str(project.stack_file) in done.stderr
        assert time.monotonic() - began < UP_SECONDS / 2

    project.stack_file.write_text(own)
    done = project.up()

    assert done.returncode == 0, done.stderr
    assert "created" in done.stderr or "replaced" in done.stderr
