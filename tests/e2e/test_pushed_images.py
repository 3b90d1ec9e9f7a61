"""The order of a first `up` in a cloud, on the twin: the registry, the images, then the stack that pulls them.

The stack is eks-dev with its own registry and a trainer image that no release publishes.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from cloudtwin.facade import Login, Registry, RegistryError
from cloudtwin.nodes import Twin
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.control_plane import registry as registry_process
from cloudtwin.nodes.layout import Layout

from everstep.catalog.names import RELEASED_IMAGE
from everstep.progress import Lines
from tests.e2e.life_cycle import EVERSTEP, copy_project

STACK = "eks-dev"
HOST = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
COMMAND_SECONDS, UP_SECONDS = 300, 600

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(4 * COMMAND_SECONDS + 2 * UP_SECONDS)]


@dataclass(frozen=True)
class Project:
    """A copy of the project whose stack file may be changed, with its own twin."""

    folder: Path

    @property
    def stack_file(self) -> Path:
        return self.folder / "stacks" / f"Pulumi.{STACK}.yaml"

    @property
    def layout(self) -> Layout:
        return Layout(self.folder / "state" / "images")

    def run(
        self, *arguments: str, seconds: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the stack, on the twin."""
        state = {"EVERSTEP_STATE": str(self.folder / "state"), "EVERSTEP_TWIN": "images"}
        return subprocess.run(
            [EVERSTEP, *arguments, "--stack", STACK, "--twin"],
            cwd=self.folder, env={**os.environ, **state},
            capture_output=True, text=True, check=False, timeout=seconds,
        )  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(copy_project(tmp_path_factory.mktemp("project")))
    text = project.stack_file.read_text()
    text = text.replace("    kind: none", "    kind: ecr", 1)
    text = text.replace(RELEASED_IMAGE.format("trainer"), f"{HOST}/everstep/trainer:mine", 1)
    project.stack_file.write_text(text)
    yield project
    project.run("down", seconds=UP_SECONDS)
    Twin(project.layout).down(Lines())


def test_without_a_registry_nothing_is_pushed(project: Project) -> None:
    result = project.run("images", "push")

    assert result.returncode == 1
    assert "does not exist yet" in result.stderr
    assert f"everstep up --stack {STACK} --target registry" in result.stderr


def test_the_stack_runs_once_its_registry_and_images_exist(project: Project) -> None:
    registry_result = project.run("up", "--target", "registry", "--yes")
    assert registry_result.returncode == 0, registry_result.stderr
    assert registry_result.stdout.strip() == f"{HOST}/everstep"
    assert "NodeGroup" not in registry_result.stderr, "`--target registry` creates nothing else"

    early_result = project.run("up", "--yes", "--detach")
    assert early_result.returncode == 1, "a stack without its images must fail"
    assert f"no registry has the image {HOST}/everstep/trainer:mine" in early_result.stderr
    assert f"everstep images push --stack {STACK} --twin" in early_result.stderr

    push_result = project.run("images", "push", "--json")
    assert push_result.returncode == 0, push_result.stderr
    report = json.loads(push_result.stdout)
    assert report["changed"] == ["job.image", "platform.spot.image"]
    config = yaml.safe_load(project.stack_file.read_text())["config"]
    image = config["everstep:job"]["image"]
    assert image == report["images"]["trainer"]["reference"]
    assert image.startswith(f"{HOST}/everstep/trainer@sha256:")

    second_report = json.loads(project.run("images", "push", "--json").stdout)
    assert second_report["changed"] == [], "a second push changes nothing"
    assert all(image["existed"] for image in second_report["images"].values())

    up_result = project.run("up", "--yes", "--detach", seconds=UP_SECONDS)
    assert up_result.returncode == 0, up_result.stderr[-4000:]
    pods = admin_client(project.layout).get("/api/v1/namespaces/elastic-job/pods")["items"]
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert image in images, "pods name the digest"
    ids = {
        container_status["imageID"]
        for pod in pods
        for container_status in pod["status"].get("containerStatuses", ())
    }
    assert image in ids, "a node pulled that digest from the registry"


def test_the_registry_refuses_wrong_passwords_and_unknown_repositories(project: Project) -> None:
    endpoint = registry_process.endpoint(project.layout, HOST)
    unauthorized = Registry(HOST, Login("AWS", "expired"), endpoint)

    with pytest.raises(RegistryError, match="401 UNAUTHORIZED"):
        unauthorized.digest("everstep/trainer", "mine")
    with pytest.raises(RegistryError, match="does not exist in the registry"):
        registry_process.client(project.layout, HOST).check_push("everstep/other")
