"""A Pulumi project without a cluster: the real engine and this package's plugins."""

from pathlib import Path

import pytest

from twin.tests.project import Project, plugins, pulumi_program

__all__ = ["plugins", "pulumi_program"]


@pytest.fixture
def project(tmp_path: Path, pulumi_program: Path, plugins: dict[str, str]) -> Project:
    """Return a project whose kubeconfig does not exist."""
    environment = {**plugins, "KUBECONFIG": str(tmp_path / "absent")}
    return Project(tmp_path, pulumi_program, environment)
