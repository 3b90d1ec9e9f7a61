"""Termination notices in the folder of a machine."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.files import DamagedFileError
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes.layout import MachineLayout
from cloudtwin.nodes.metadata import notices
from cloudtwin.nodes.metadata.notices import AKS_TAINT, Notice
from cloudtwin.nodes.model import MachineSpec, Role

AWS = MachineSpec("gpu-3", Role.GPU, cloud="aws")
POOL_TAINT = {"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}
CORDON = {"unschedulable": True}


class Clock:
    """The time of the module under test; sleeping advances it."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def folder(tmp_path: Path) -> MachineLayout:
    layout = MachineLayout(tmp_path)
    layout.acknowledgement.parent.mkdir(parents=True)
    return layout


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(notices, "time", clock)
    return clock


def test_a_notice_is_announced_once_and_may_become_a_termination(folder: MachineLayout) -> None:
    notice = notices.announce(AWS, folder, 60, terminate=False)

    assert notices.announce(AWS, folder, 5, terminate=False) == notice
    termination = notices.announce(AWS, folder, 30, terminate=True)
    assert termination != notice
    assert (
        notices.announce(AWS, folder, 1, terminate=True)
        == termination
        == Notice.load(folder.notice)
    )


def test_a_termination_is_due_at_its_deadline_or_after_its_acknowledgement(
    folder: MachineLayout, clock: Clock
) -> None:
    at_deadline = Notice("e", 0, clock.now, terminate=True)
    before_deadline = Notice("e", 0, clock.now + 1, terminate=True)

    assert notices.is_due(folder, at_deadline)
    assert not notices.is_due(folder, at_deadline, late_seconds=1)
    assert not notices.is_due(folder, before_deadline)
    folder.acknowledgement.write_text('{"event": "e"}')
    assert notices.is_due(folder, before_deadline)
    assert not notices.is_due(folder, Notice("other", 0, clock.now + 1, terminate=True))


def test_the_wait_for_the_deadline_drains_every_second(folder: MachineLayout, clock: Clock) -> None:
    drained_at: list[float] = []
    notice = Notice("e", 0, clock.now + 2.5, terminate=True)

    notices.await_due(folder, notice, lambda: drained_at.append(clock.now))

    assert drained_at == pytest.approx([1000, 1001, 1002], abs=2 * notices.NOTICE_POLL_SECONDS)
    assert clock.now == pytest.approx(notice.not_before, abs=notices.NOTICE_POLL_SECONDS)


def test_the_wait_ends_with_an_acknowledgement(folder: MachineLayout, clock: Clock) -> None:
    def acknowledge() -> None:
        folder.acknowledgement.write_text('{"event": "e"}')

    notices.await_due(folder, Notice("e", 0, clock.now + 3600, terminate=True), acknowledge)

    assert clock.now == pytest.approx(1000, abs=notices.NOTICE_POLL_SECONDS)


class OneNode(KubernetesClient):
    """A cluster with one Node without pods; it records the spec of each patch."""

    def __init__(self, taints: list[dict[str, str]]) -> None:
        self.taints, self.patches = taints, list[dict[str, Any]]()

    def get(self, path: str) -> dict[str, Any]:
        return {"spec": {"taints": self.taints}, "items": []}

    def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.patches.append(body["spec"])
        return {}


@pytest.mark.parametrize(
    ("cloud", "taints", "patches"),
    [
        ("aws", [POOL_TAINT], [CORDON]),
        ("azure", [POOL_TAINT], [{"taints": [POOL_TAINT, AKS_TAINT]}, CORDON]),
        ("azure", [AKS_TAINT], [CORDON]),
    ],
)
def test_a_notice_cordons_a_node_and_aks_adds_its_taint_only_once(
    cloud: Literal["aws", "azure"], taints: list[dict[str, str]], patches: list[dict[str, Any]]
) -> None:
    client = OneNode(taints)

    notices.begin_drain(client, MachineSpec("gpu-3", Role.GPU, cloud=cloud))

    assert client.patches == patches


def test_a_cluster_that_does_not_respond_does_not_delay_a_termination() -> None:
    class Unreachable(OneNode):
        def get(self, path: str) -> dict[str, Any]:
            raise ConnectionRefusedError("Connection refused")

    client = Unreachable([])

    notices.begin_drain(client, MachineSpec("t4-1", Role.GPU, cloud="azure"))

    assert client.patches == []


def test_a_machine_without_a_cloud_gets_no_notice(folder: MachineLayout) -> None:
    with pytest.raises(TwinError, match="belongs to no cloud"):
        notices.announce(MachineSpec("gpu-0", Role.GPU), folder, 30, terminate=True)


@pytest.mark.parametrize("text", ["", "{", '{"event": "e"}', '{"event": 1, "announced_at": "x"}'])
def test_an_invalid_notice_is_an_error(folder: MachineLayout, text: str) -> None:
    folder.notice.parent.mkdir()
    folder.notice.write_text(text)

    with pytest.raises(DamagedFileError, match=re.escape(str(folder.notice))):
        Notice.load(folder.notice)


def test_a_damaged_acknowledgement_does_not_count(folder: MachineLayout) -> None:
    notice = notices.announce(AWS, folder, 60, terminate=True)
    folder.acknowledgement.write_text("{")

    assert not notices.is_acknowledged(folder, notice)
