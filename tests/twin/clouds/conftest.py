"""A Pulumi project on the twin's clouds: the real engine, our providers, an account of the test's own."""

import json
from pathlib import Path

import pytest

from tests.twin.project import Project, pulumi_program
from twin.clouds import install
from twin.pulumi import install_plugins

__all__ = ["pulumi_program"]


class CloudProject(Project):
    """A project, and the account that it is about."""

    command_seconds = 200

    @property
    def cloud(self) -> Path:
        """The folder of the account."""
        return Path(self.environment["EVERSTEP_STATE"], self.environment["EVERSTEP_TWIN"], "cloud")

    def account(self, cloud: str = "aws") -> list[dict]:
        path = self.cloud / f"account-{cloud}.json"
        return json.loads(path.read_text())["resources"] if path.exists() else []

    def faults(self, *faults: dict, **rest: object) -> None:
        self.cloud.mkdir(parents=True, exist_ok=True)
        (self.cloud / "faults-used.json").unlink(missing_ok=True)
        (self.cloud / "faults.json").write_text(json.dumps({"faults": faults, **rest}))


@pytest.fixture(scope="session")
def plugins(pulumi_program, tmp_path_factory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("pulumi-home")
    for cloud in ("aws", "azure-native"):
        install(home, cloud)
    return install_plugins(home, pulumi_program)


@pytest.fixture
def project(tmp_path, pulumi_program, plugins) -> CloudProject:
    """A project whose clouds keep books only, in a folder of its own."""
    state, folder = tmp_path / "state", tmp_path / "project"
    state.mkdir()
    folder.mkdir()
    environment = {
        **plugins,
        "PULUMI_BACKEND_URL": f"file://{state}",
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "EVERSTEP_STATE": str(tmp_path / "twin"),
        "EVERSTEP_TWIN": "default",
        "EVERSTEP_PAPER_CLOUD": "1",
    }
    return CloudProject(folder, pulumi_program, environment)
