"""Living workers and what is around them: an etcd that is away, several workers a node, bounds that change."""

import os
import signal
import time

import pytest

from tests.trainer.nodes import Nodes, until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

OUTAGE_SECONDS = 30


def workers_started(nodes: Nodes, name: str) -> int:
    return sum(entry["node"] == f"node-{name}" for entry in nodes.journal("start"))


def test_half_a_minute_without_etcd_costs_no_step_and_commits_go_through_after_it(start, etcd):
    nodes, server = start(), etcd[1]
    first = nodes.next_step(0, world_size=3, seconds=300)
    until(lambda: nodes.journal("checkpoint"), 60, f"something is committed\n{nodes.logs()}")

    server.send_signal(signal.SIGSTOP)
    away = time.time()
    time.sleep(OUTAGE_SECONDS)
    back = time.time()
    server.send_signal(signal.SIGCONT)
    until(
        lambda: [entry for entry in nodes.journal("checkpoint") if entry["at"] > back],
        60,
        f"commits go on\n{nodes.logs()}",
    )
    nodes.next_step(back + 10, world_size=3)

    steps = nodes.journal("step")
    during = [entry for entry in steps if away + 3 < entry["at"] < back]
    assert len({entry["step"] for entry in during}) > 5, "training goes on"
    assert {entry["generation"] for entry in steps} == {first["generation"]}, nodes.logs()
    taken = [(entry["file"], entry["step"]) for entry in steps]
    assert len(taken) == len(set(taken)), "no step is repeated"
    assert [workers_started(nodes, name) for name in ("w0", "w1", "w2")] == [1, 1, 1]


def test_a_worker_that_dies_is_replaced_and_its_neighbour_on_the_node_lives_on(start):
    nodes = start(names=("w0", "w1"), workers=2)
    nodes.next_step(0, world_size=4, seconds=400)

    killed = time.time()
    os.kill(nodes.worker("w1"), signal.SIGKILL)
    after = nodes.next_step(killed, world_size=2)
    again = nodes.next_step(after["at"], world_size=4, seconds=300)

    assert after["at"] - killed < 30
    assert again["generation"] > after["generation"]
    assert workers_started(nodes, "w0") == 2, "the other node's workers have lived through it"
    assert workers_started(nodes, "w1") == 3
    done = sorted({e["step"] for e in nodes.journal("step") if not e.get("again")})
    assert done == list(range(1, done[-1] + 1)), "no step may be missing"


def test_bounds_that_are_raised_while_they_train_let_a_spare_in_and_restart_nobody(start, tmp_path):
    bounds = tmp_path / "nnodes"
    bounds.write_text("1:1")
    nodes = start(names=("w0",), bounds_file=bounds)
    nodes.next_step(0, world_size=1, seconds=300)
    nodes.start("w1")
    until(lambda: nodes.members() == 2, 300, f"w1 is warm and waits\n{nodes.logs()}")
    spare = time.time() + 2
    nodes.next_step(spare, world_size=1)

    bounds.write_text("1:2")

    nodes.next_step(spare, world_size=2, seconds=200)
    assert [workers_started(nodes, name) for name in ("w0", "w1")] == [1, 1]
