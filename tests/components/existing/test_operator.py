"""The check for a Prometheus operator in an existing cluster, against a fake API server."""

import pytest
import yaml

from components.config import StackConfig, from_mapping
from components.config.faults import ConfigurationError
from components.existing.operator import require_operator
from components.platform.operator_objects import KINDS
from tests.components.existing.api_server import api_server, kubeconfig
from tests.processes import free_port


def config(kind: str) -> StackConfig:
    return from_mapping({"platform": {"monitoring": {"kind": kind}}})


def test_a_cluster_without_the_operator_is_refused_with_a_fix() -> None:
    with api_server(404) as (kubeconfig_text, _), pytest.raises(ConfigurationError) as caught:
        require_operator(config("operator"), kubeconfig_text)

    message = str(caught.value)
    assert "everstep:platform.monitoring.kind: operator" in message
    assert "PodMonitor, ServiceMonitor, PrometheusRule" in message
    assert "install one first" in message


def test_a_single_missing_kind_is_named() -> None:
    with (
        api_server(200, *KINDS[:2]) as (kubeconfig_text, _),
        pytest.raises(ConfigurationError) as caught,
    ):
        require_operator(config("operator"), kubeconfig_text)

    assert "does not serve PrometheusRule of" in str(caught.value)


def test_a_cluster_with_the_operator_is_accepted() -> None:
    with api_server(200, *KINDS) as (kubeconfig_text, paths):
        require_operator(config("operator"), kubeconfig_text)

    assert paths == ["/apis/monitoring.coreos.com/v1"]


def test_a_stack_without_monitoring_sends_no_request() -> None:
    with api_server(404) as (kubeconfig_text, paths):
        require_operator(config("none"), kubeconfig_text)

    assert paths == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_request_is_a_warning(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", warnings.append)
    with api_server(status) as (kubeconfig_text, _):
        require_operator(config("operator"), kubeconfig_text)

    (warning,) = warnings
    assert str(status) in warning


def test_a_cluster_that_does_not_respond_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", warnings.append)

    require_operator(config("operator"), kubeconfig(free_port()))

    (warning,) = warnings
    assert "cannot check whether" in warning


def test_a_kubeconfig_with_invalid_base64_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", warnings.append)
    content = yaml.safe_load(kubeconfig(free_port()))
    content["clusters"][0]["cluster"] = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": "a",
    }

    require_operator(config("operator"), yaml.safe_dump(content))

    (warning,) = warnings
    assert "cannot check whether" in warning
