"""A Pulumi project on the twin's clouds: the real engine, the twin's providers, a separate account."""

import json
from pathlib import Path

import pytest
from cloudtwin.providers import install
from cloudtwin.providers.protocol.values import Object
from cloudtwin.pulumi import install_plugins

from twin.tests.project import Project, pulumi_program
from twin.tests.providers.offline import provider

__all__ = ["provider", "pulumi_program"]


class CloudProject(Project):
    """A project and its account."""

    @property
    def cloud(self) -> Path:
        """Folder of the account."""
        return Path(
            self.environment["CLOUDTWIN_STATE"], self.environment["CLOUDTWIN_NAME"], "cloud"
        )

    def account(self, cloud: str = "aws") -> list[Object]:
        """Return the resources in the account of a cloud."""
        path = self.cloud / f"account-{cloud}.json"
        return json.loads(path.read_text())["resources"] if path.exists() else []

    def faults(self, *faults: Object, **fields: object) -> None:
        """Replace the plan of faults; without arguments, remove all faults."""
        self.cloud.mkdir(parents=True, exist_ok=True)
        (self.cloud / "faults-used.json").unlink(missing_ok=True)
        (self.cloud / "faults.json").write_text(json.dumps({"faults": faults, **fields}))


@pytest.fixture(scope="session")
def plugins(pulumi_program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which the engine finds the language host and all providers."""
    home = tmp_path_factory.mktemp("pulumi-home")
    for cloud in ("aws", "azure-native"):
        install(home, cloud)
    return install_plugins(home, pulumi_program)


@pytest.fixture
def project(tmp_path: Path, pulumi_program: Path, plugins: dict[str, str]) -> CloudProject:
    """Return a project on offline clouds."""
    environment = {
        **plugins,
        "CLOUDTWIN_STATE": str(tmp_path / "twin"),
        "CLOUDTWIN_NAME": "default",
        "CLOUDTWIN_OFFLINE": "1",
    }
    return CloudProject(tmp_path, pulumi_program, environment)
