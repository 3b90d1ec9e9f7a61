"""Living workers and what is around them: an etcd that is away, several workers a node, bounds that change."""

import signal
import time

import pytest

from tests.trainer.nodes import Nodes, etcd_process, small_data, until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

OUTAGE_SECONDS = 30
ENDLESS = ("--global-batch", "12", "--epochs", "1000")


@pytest.fixture
def cluster(tmp_path):
    """Starts nodes of a job, with so many workers each; gives them and etcd's process."""
    data = small_data(tmp_path, samples=1200)
    fixed = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    started: list[Nodes] = []
    with etcd_process(tmp_path) as (endpoint, etcd):

        def begin(*names: str, **more) -> tuple[Nodes, object]:
            options = [*fixed, "--checkpoint-seconds", "2", *ENDLESS]
            nodes = Nodes(tmp_path, endpoint, options, **more)
            started.append(nodes)
            for name in names:
                nodes.start(name)
            return nodes, etcd

        yield begin
        etcd.send_signal(signal.SIGCONT)
        for nodes in started:
            nodes.close()


def workers_started(nodes: Nodes, name: str) -> int:
    return sum(entry["node"] == f"node-{name}" for entry in nodes.journal("start"))


def test_half_a_minute_without_etcd_costs_no_step_and_commits_go_through_after_it(cluster):
    nodes, etcd = cluster("w0", "w1", "w2")
    first = nodes.next_step(0, world_size=3, seconds=300)
    until(lambda: nodes.journal("checkpoint"), 60, f"something is committed\n{nodes.logs()}")

    etcd.send_signal(signal.SIGSTOP)
    away = time.time()
    time.sleep(OUTAGE_SECONDS)
    back = time.time()
    etcd.send_signal(signal.SIGCONT)
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
