"""An existing cluster: finding its kubeconfig, and the errors if that fails."""

from pathlib import Path

import pytest

from components.config import ExistingClusterConfig
from components.config.faults import ConfigurationError
from components.existing.cluster import read_kubeconfig

KUBECONFIG = "contexts: [{name: kind-one}, {name: kind-two}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG, encoding="utf-8")
    return path


def test_the_stack_overrides_the_environment(file: Path) -> None:
    config = ExistingClusterConfig.model_validate({"kubeconfig": str(file), "context": "kind-two"})

    assert read_kubeconfig(config, {"KUBECONFIG": "/nowhere"}) == KUBECONFIG


def test_the_environment_is_used_if_the_stack_sets_no_kubeconfig(file: Path) -> None:
    assert read_kubeconfig(ExistingClusterConfig(), {"KUBECONFIG": str(file)}) == KUBECONFIG


def test_a_missing_kubeconfig_is_an_error(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}

    with pytest.raises(ConfigurationError, match=r"(?s)kubeconfig.*is not set.*everstep up"):
        read_kubeconfig(ExistingClusterConfig(), home)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)absent.*No such file"):
        read_kubeconfig(ExistingClusterConfig(), {"KUBECONFIG": str(tmp_path / "absent")})


@pytest.mark.parametrize("content", ["", "contexts: 3", "a: [", "- 1", "contexts: [x]"])
def test_a_file_that_is_not_a_kubeconfig_is_refused(file: Path, content: str) -> None:
    file.write_text(content, encoding="utf-8")

    with pytest.raises(ConfigurationError, match="is not a valid kubeconfig"):
        read_kubeconfig(ExistingClusterConfig(), {"KUBECONFIG": str(file)})


def test_a_binary_file_is_refused(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigurationError, match="is not a valid kubeconfig"):
        read_kubeconfig(ExistingClusterConfig(), {"KUBECONFIG": str(file)})


def test_an_unknown_context_is_reported_with_the_nearest_names(file: Path) -> None:
    config = ExistingClusterConfig.model_validate({"kubeconfig": str(file), "context": "kind-on"})

    with pytest.raises(ConfigurationError, match=r"(?s)cluster\.context: kind-on.*kind-one"):
        read_kubeconfig(config)


def test_no_error_shows_the_content_of_the_file(file: Path) -> None:
    file.write_text("token: hunter2\n", encoding="utf-8")

    with pytest.raises(ConfigurationError) as error:
        read_kubeconfig(ExistingClusterConfig(), {"KUBECONFIG": str(file)})

    assert "hunter2" not in str(error.value)
