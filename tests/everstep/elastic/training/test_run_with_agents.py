"""Two real agents train one model with `Run`; a worker is killed and returns; the result equals a plain loop's."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.everstep.elastic.training.any_optimizer import SAMPLES, train_plainly
from tests.trainer.elastic.nodes import Nodes, running_etcd

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("any_optimizer.py")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as endpoint:
        yield endpoint


@pytest.mark.parametrize("name", ["AdamW", "Adafactor"])  # the trainer's tests have SGD
def test_a_kill_and_a_join_leave_the_result_of_a_plain_loop(
    name: str, endpoint: str, tmp_path: Path
) -> None:
    # A worker on its own is slow, so that steps remain when the other one has started again.
    options = ["--optimizer", name, "--step-seconds", "0.2", "--alone-seconds", "4"]
    nodes = Nodes(tmp_path, endpoint, options, job=name, program=(str(SCRIPT),), preloaded=True)
    try:
        nodes.start("w0")
        nodes.start("w1")
        first_step = nodes.next_step(0, world_size=2, seconds=240)
        os.kill(nodes.worker("w0"), signal.SIGKILL)
        nodes.next_step(first_step["at"], world_size=1)
        nodes.next_step(time.time(), world_size=2, seconds=240)
        assert [nodes.exit_code(node, 240) for node in ("w0", "w1")] == [0, 0], nodes.logs()
    finally:
        nodes.close()

    weights = json.loads((nodes.run / "weights.json").read_text())
    assert weights == pytest.approx(train_plainly(name), abs=2e-4)
    last_commit = json.loads((nodes.run / "ledger.jsonl").read_text().splitlines()[-1])
    assert last_commit["samples"] == 4 * SAMPLES, "each sample counts once per epoch"
    assert any(entry["received_bytes"] for entry in nodes.journal("generation")), (
        "the new worker process of w0 has the state of w1"
    )
