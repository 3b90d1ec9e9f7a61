"""An existing cluster: its kubeconfig, and the errors if it cannot be read."""

from pathlib import Path

import pytest

from components.config import ExistingClusterConfig
from components.config.faults import ConfigurationError
from components.existing.cluster import read_kubeconfig
from components.job.elastic_job import ACCEPTED_CONDITION
from tests.components.existing.existing_stack import SPOT, SYSTEM, declare_existing
from tests.components.recorder import Graph

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


def test_several_kubeconfigs_are_refused_with_the_command_that_merges_them(file: Path) -> None:
    environment = {"KUBECONFIG": f"{file}:{file.parent}/other"}

    with pytest.raises(ConfigurationError, match=r"(?s)names several files.*kubectl config view"):
        read_kubeconfig(ExistingClusterConfig(), environment)


@pytest.mark.parametrize("paths", [":{}", "{}:", "::{}"])
def test_empty_parts_of_the_environment_are_ignored_as_by_kubectl(file: Path, paths: str) -> None:
    environment = {"KUBECONFIG": paths.format(file)}

    assert read_kubeconfig(ExistingClusterConfig(), environment) == KUBECONFIG


def test_the_home_folder_of_an_unknown_user_is_named() -> None:
    config = ExistingClusterConfig.model_validate({"kubeconfig": "~no-such-user/config"})

    with pytest.raises(
        ConfigurationError, match=r"(?s)~no-such-user/config.*home folder does not exist"
    ):
        read_kubeconfig(config, {})


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


def test_on_a_cluster_that_scales_from_zero_nothing_waits_for_a_gpu_node() -> None:
    platform = {"gpuPlugin": {"enabled": True}, "spot": {"enabled": True}}
    waiting, immediate = (
        declare_existing(
            platform=platform,
            cluster={"gpuPool": SPOT, "systemPool": SYSTEM, "scalesFromZero": scales},
        )
        for scales in (False, True)
    )

    def annotations(graph: Graph) -> list[dict[str, str]]:
        daemons = graph.of_type("DaemonSet")
        return [daemon.inputs["metadata"]["annotations"] for daemon in daemons]

    assert len(annotations(waiting)) == 2
    assert all("pulumi.com/waitFor" in annotation for annotation in annotations(waiting))
    assert annotations(immediate) == [{"pulumi.com/skipAwait": "true"}] * 2
    job = immediate.one("ElasticJob").inputs["metadata"]["annotations"]["pulumi.com/waitFor"]
    assert job == ACCEPTED_CONDITION
