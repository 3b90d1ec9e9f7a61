import os
from dataclasses import dataclass

import pytest

from twin.nodes.cloud_controller import CloudController, gone_machines
from twin.nodes.layout import Layout
from twin.nodes.processes import Process


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def controller(tmp_path, clock):
    return CloudController(Layout(tmp_path / "twin"), 5.0, clock)


def test_a_machine_is_given_up_only_after_it_has_been_gone_for_long_enough(controller, clock):
    assert controller.overdue({"gpu-0"}) == []
    clock.now += 4.9
    assert controller.overdue({"gpu-0"}) == []
    clock.now += 0.1
    assert controller.overdue({"gpu-0"}) == ["gpu-0"]


def test_a_machine_that_returns_in_time_starts_afresh(controller, clock):
    controller.overdue({"gpu-0"})
    clock.now += 3
    controller.overdue(set())
    clock.now += 3
    assert controller.overdue({"gpu-0"}) == [], "its first absence must not count"


def test_a_node_that_could_not_be_deleted_stays_overdue(controller, clock):
    controller.overdue({"gpu-0"})
    clock.now += 6

    assert controller.overdue({"gpu-0"}) == ["gpu-0"]
    assert controller.overdue({"gpu-0"}) == ["gpu-0"]


def test_only_a_machine_whose_first_process_is_dead_is_gone(tmp_path):
    for name in ("alive", "dead", "preparing"):
        (tmp_path / name).mkdir()
    me = Process.of(os.getpid())
    me.save(tmp_path / "alive" / "process.json")
    Process(me.pid, me.started - 1).save(tmp_path / "dead" / "process.json")

    assert gone_machines(tmp_path) == {"dead"}
