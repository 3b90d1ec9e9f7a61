"""A Pulumi project without a cluster: the real engine and this package's plugins."""

from pathlib import Path

import pytest
from cloudtwin.pulumi import backend_url, install_plugins

from twin.tests.project import Project, pulumi_program

__all__ = ["pulumi_program"]


@pytest.fixture(scope="session")
def plugins(pulumi_program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which the engine finds the plugins."""
    return install_plugins(tmp_path_factory.mktemp("pulumi-home"), pulumi_program)


@pytest.fixture
def project(tmp_path: Path, pulumi_program: Path, plugins: dict[str, str]) -> Project:
    """Return a project with a separate state, on a cluster that does not respond."""
    state, folder = tmp_path / "state", tmp_path / "project"
    state.mkdir()
    folder.mkdir()
    environment = {
        **plugins,
        "PULUMI_BACKEND_URL": backend_url(state),
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "KUBECONFIG": str(tmp_path / "absent"),
    }
    return Project(folder, pulumi_program, environment)
