"""The log of machines: type, pool and purchase option of each, even after its node is gone."""

from dataclasses import replace
from pathlib import Path

import pytest

from everstep.cli.kubernetes_client import node_view
from everstep.cli.report.machines import MachineKind, MachineLog, ReportedMachine

LABELS = {"everstep.dev/pool": "gpu-spot", "node.kubernetes.io/instance-type": "g5.xlarge"}
ZONE = {"topology.kubernetes.io/zone": "us-east-1a"}
CREATED_AT = "2026-11-23T12:00:00Z"
SPOT = ReportedMachine(MachineKind("g5.xlarge", "a", on_demand=False), "us-east-1a", 1795435200.0)


def labeled_node(name: str, **labels: str) -> dict[str, object]:
    keys = {key.replace("_", "-"): value for key, value in labels.items()}
    all_labels = LABELS | ZONE | {f"everstep.dev/{key}": value for key, value in keys.items()}
    return {"metadata": {"name": name, "labels": all_labels, "creationTimestamp": CREATED_AT}}


def test_a_machine_stays_in_the_log_after_its_node_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "machines.json"
    MachineLog(path).add([node_view(labeled_node("gpu-0", gpu_pool="a"), ())])

    second_log = MachineLog(path)
    second_log.add([node_view(labeled_node("gpu-1", gpu_pool="b", capacity="on-demand"), ())])

    assert MachineLog(path).observed == {
        "gpu-0": SPOT,
        "gpu-1": replace(SPOT, kind=MachineKind("g5.xlarge", "b", on_demand=True)),
    }


def test_a_log_of_an_older_version_has_no_zones(tmp_path: Path) -> None:
    path = tmp_path / "machines.json"
    path.write_text('{"gpu-0": {"machine_type": "g5.xlarge", "pool": "a", "on_demand": false}}')

    assert MachineLog(path).observed == {"gpu-0": ReportedMachine(SPOT.kind)}


def test_nodes_without_gpus_are_not_machines_of_the_training(tmp_path: Path) -> None:
    log = MachineLog(tmp_path / "machines.json")

    log.add([node_view(labeled_node("system-0", pool="system"), ())])

    assert log.observed == {}
    assert not log.path.exists()


def test_a_reused_name_stands_for_its_newest_machine(tmp_path: Path) -> None:
    log = MachineLog(tmp_path / "machines.json")
    for pool in ("b", "a"):
        log.add([node_view(labeled_node("gpu-0", gpu_pool=pool), ())])

    assert MachineLog(log.path).observed == log.observed == {"gpu-0": SPOT}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"gpu-0": {"pool": 1}}', b'{"gpu-0": 1}', b"\xff"]
)
def test_a_damaged_log_is_treated_as_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "machines.json"
    path.write_bytes(content)

    assert MachineLog(path).observed == {}
