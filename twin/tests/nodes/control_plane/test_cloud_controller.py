"""The cloud controller: machines that are gone, and the grace period of their Nodes."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from cloudtwin.nodes import node_objects
from cloudtwin.nodes.control_plane.cloud_controller import CloudController, gone_machines
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux.processes import Process


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def controller(tmp_path: Path, clock: Clock) -> CloudController:
    return CloudController(Layout(tmp_path / "twin"), 5.0, clock)


def test_a_machine_is_overdue_only_after_the_grace_period(
    controller: CloudController, clock: Clock
) -> None:
    assert controller.overdue({"gpu-0"}) == []
    clock.now += 4.9
    assert controller.overdue({"gpu-0"}) == []
    clock.now += 0.1
    assert controller.overdue({"gpu-0"}) == ["gpu-0"]


def test_a_return_in_time_resets_the_grace_period(
    controller: CloudController, clock: Clock
) -> None:
    controller.overdue({"gpu-0"})
    clock.now += 3
    controller.overdue(set())
    clock.now += 3
    assert controller.overdue({"gpu-0"}) == [], "its first absence must not count"


def test_a_node_that_could_not_be_deleted_stays_overdue(
    controller: CloudController, clock: Clock
) -> None:
    controller.overdue({"gpu-0"})
    clock.now += 6

    assert controller.overdue({"gpu-0"}) == ["gpu-0"]
    assert controller.overdue({"gpu-0"}) == ["gpu-0"]


def test_only_a_machine_whose_init_process_is_dead_is_gone(tmp_path: Path) -> None:
    for name in ("alive", "dead", "preparing"):
        (tmp_path / name).mkdir()
    process = Process.of(os.getpid())
    assert process is not None
    process.save(tmp_path / "alive" / "process.json")
    Process(process.pid, process.started - 1).save(tmp_path / "dead" / "process.json")

    assert gone_machines(tmp_path) == {"dead"}


def test_a_machine_that_returns_while_another_node_is_deleted_keeps_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, process = Layout(tmp_path), Process.of(os.getpid())
    assert process is not None
    for name in ("gpu-0", "gpu-1"):
        Process(process.pid, process.started - 1).save(layout.machine(name).process)
    deleted: list[str] = []

    def delete(_: object, name: str) -> None:
        deleted.append(name)
        process.save(layout.machine("gpu-1").process)

    monkeypatch.setattr(node_objects, "delete", delete)

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(CloudController(layout, 0.0).run(), 0.3))

    assert deleted == ["gpu-0"]
