"""The configuration of the agent that sends metrics to a managed Prometheus, checked by promtool."""

from pathlib import Path

import pytest
import yaml

from components.aws.metrics_agent import EksMetricsAgentArgs, configuration
from components.aws.node_groups import SYSTEM_PLACEMENT
from components.platform.monitoring import rule_groups
from tests.components.aws.eks_stack import eks_config
from tests.monitoring.prometheus import promtool

pytestmark = pytest.mark.twin

ENDPOINT = "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-0/"
ARGS = EksMetricsAgentArgs(
    cluster="everstep",
    cluster_name="everstep",
    region="us-east-1",
    image="quay.io/prometheus/prometheus:v3.15.1",
    scrape_seconds=15,
    rules="",
    placement=SYSTEM_PLACEMENT,
)


def faults(folder: Path, text: str) -> str:
    """Return the messages of promtool about the configuration of an agent; empty if it is valid."""
    config = yaml.safe_load(text)
    for job in config["scrape_configs"]:
        del job["kubernetes_sd_configs"]  # Debian builds Prometheus without it
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    result = promtool("check", "config", "--agent", "prometheus.yml", folder=folder)
    return result.stdout + result.stderr if result.returncode else ""


def test_prometheus_accepts_the_configuration(tmp_path: Path) -> None:
    assert not faults(tmp_path, configuration(ENDPOINT, ARGS))


def test_prometheus_accepts_the_rules_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rule_groups(eks_config()))

    result = promtool("check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path)

    assert result.returncode == 0, result.stdout + result.stderr


def test_an_invalid_configuration_is_detected(tmp_path: Path) -> None:
    invalid_text = configuration(ENDPOINT, ARGS).replace("sigv4:", "sigv5:")

    assert "sigv5 not found" in faults(tmp_path, invalid_text)
