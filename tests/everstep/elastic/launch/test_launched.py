"""The launchers that tests, and scripts that draw pictures, run as processes."""

import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.elastic.launch.launcher import DONE
from tests.everstep.elastic.launch.launched import (
    REPOSITORY,
    WAIT_SECONDS,
    run_launcher,
)
from tests.trainer.elastic.nodes import running_etcd
from tests.waiting import wait_until

PARENT = """
import sys, time
from pathlib import Path
from tests.everstep.elastic.launch.launched import LauncherProcess

launcher = LauncherProcess(Path(sys.argv[1]), "600", program=["sleep"])
print(launcher.process.pid, flush=True)
time.sleep(600)
"""

LATE_LAUNCHER = """
import sys
from everstep.elastic.launch.launcher import launch
from everstep.elastic.membership import earlier_run

earlier_run.NEW_RUN_SECONDS = float(sys.argv.pop(1))
launch(sys.argv[1:])
"""
"""A launcher that does not wait for ten minutes."""

PROGRAM = """
import sys
import torch
from everstep import elastic

model = torch.nn.Linear(2, 1)
run = elastic.Run(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1),
    dataset=torch.utils.data.TensorDataset(torch.zeros(8, 2)),
    global_batch=4,
    epochs=int(sys.argv[1]),
    checkpoint="run",
)
for batch in run:
    for (x,) in batch.microbatches():
        (model(x).mean() * batch.weight(x)).backward()
    batch.step()
"""


@pytest.mark.twin
@pytest.mark.timeout(4 * WAIT_SECONDS)
def test_a_node_that_starts_after_the_end_of_its_run_ends_and_a_new_run_of_the_name_trains(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "etcd").mkdir()
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(running_etcd(tmp_path / "etcd"))
        options = ["--nnodes", "2", "--rendezvous-endpoint", endpoint, "--run-id", "tiny"]

        def run_nodes(epochs: int) -> None:
            arguments = [*options, "train.py", str(epochs)]
            nodes = [
                stack.enter_context(run_launcher(tmp_path, *arguments, name=name))
                for name in ("n0", "n1")
            ]
            assert [node.wait() for node in nodes] == [DONE, DONE], nodes[0].log

        run_nodes(epochs=2)
        late_node = stack.enter_context(
            run_launcher(
                tmp_path,
                "2",
                *options,
                "train.py",
                "2",
                name="n2",
                program=[sys.executable, "-c", LATE_LAUNCHER],
            )
        )
        assert late_node.wait() == DONE, late_node.log
        assert "the run is complete: it had ended before this node started" in late_node.log

        run_nodes(epochs=3)
        assert "the run is complete: 6 steps" in (tmp_path / "n0.log").read_text()


@pytest.mark.twin
def test_a_launcher_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, cwd=REPOSITORY
    ) as parent:
        try:
            assert parent.stdout
            launcher = int(parent.stdout.readline())
            name = Path(f"/proc/{launcher}/comm")
            wait_until(lambda: name.read_text() == "sleep\n", "the launcher runs", WAIT_SECONDS)
            process_handle = os.pidfd_open(launcher)
        finally:
            parent.terminate()

    has_ended = select.select([process_handle], [], [], WAIT_SECONDS)[0]
    os.close(process_handle)
    assert has_ended, "SIGTERM to a script that draws pictures would leave the launcher behind"
