"""The agent of a cloud's machine: storage drivers and startup taints."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes.machine import agent, configuration


def test_a_damaged_list_of_drivers_changes_no_driver_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "ACCOUNT", tmp_path)
    (tmp_path / "drivers.json").write_text('{"drivers": [')

    class Drivers(agent.RunningDrivers):
        def update(self, drivers: Sequence[str]) -> None:
            raise AssertionError(f"changed to {drivers}")

    drivers = Drivers("gpu-0", KubernetesClient(tmp_path, "agent", "127.0.0.1", 1), tmp_path)

    assert f"{tmp_path / 'drivers.json'} is damaged" in agent.update_drivers(drivers)


def test_one_taint_is_removed_only_from_the_resource_version_that_was_read() -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    node = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}}

    patch = agent.without_taint(node, "b")

    assert patch == {"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints[:1]}}
    assert agent.without_taint(node, "c") is None
