"""The options that torchrun's agent gets from the launcher's command line, and launchers as processes."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry

from everstep.elastic.launch.launcher import (
    DONE,
    NOTICE,
    PERMANENT,
    RETRY,
    TORCH_LOGGER,
    USAGE,
    Launcher,
    set_variables,
)
from everstep.elastic.launch.options import parse
from everstep.elastic.launch.programs import run_program, run_supervised
from everstep.elastic.membership.etcd_client import EtcdUnreachableError
from everstep.elastic.membership.events import RunEnded
from everstep.errors import EverstepError
from tests.everstep.elastic.launch.launched import LAUNCHER, REPOSITORY, WAIT_SECONDS, run_launcher


@pytest.fixture(autouse=True)
def torch_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discard what a launcher changes in torch: the rendezvous handler and the filters of a logger."""
    monkeypatch.setattr(rendezvous_handler_registry, "_registry", {})
    monkeypatch.setattr(logging.getLogger(TORCH_LOGGER), "filters", [])


def test_torchrun_gets_the_options_of_the_command_line() -> None:
    agent_options = [
        "--rdzv_backend=etcd",
        "--rdzv_endpoint=e:2379",
        "--rdzv_id=job",
        "--nnodes=1:3",
    ]
    options = parse(
        [*agent_options, "--nproc_per_node=2", "--max_restarts=1000", "-m", "a.b", "--x"]
    )

    config, entry, arguments = Launcher(options, "e:2379")._configure()

    assert config.rdzv_backend == "etcd-v3"
    assert (config.min_nodes, config.max_nodes, config.max_restarts) == (1, 3, 1000)
    assert (config.run_id, config.rdzv_endpoint) == ("job", "e:2379")
    assert config.nproc_per_node == 2
    assert entry is run_supervised
    assert arguments == ["module", "a.b", "--x"]


def test_a_change_of_the_group_never_uses_up_the_default_restarts() -> None:
    config, _, _ = Launcher(parse(["-m", "a.b"]), "e:2379")._configure()

    assert config.max_restarts >= 1_000_000


def test_with_a_backend_of_torch_the_program_starts_unsupervised() -> None:
    options = parse(["--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "-m", "a.b"])

    config, entry, _ = Launcher(options, "h:1")._configure()

    assert config.rdzv_backend == "c10d"
    assert entry is run_program


def test_torchs_watchdog_does_not_end_the_survivors_of_a_lost_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})

    set_variables("")

    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"


def test_a_signal_handler_that_is_interrupted_by_another_signal_ends() -> None:
    """A lock that the interrupted handler holds would never be released, and the node would be killed instead."""
    launcher = Launcher(parse(["-m", "a.b"]), "e:2379")

    def interrupt(*_: object) -> Any:
        launcher._on_signal(signal.SIGINT, None)
        return interrupt

    def handle() -> None:
        sys.settrace(interrupt)  # called before each line, but not within its own calls
        launcher._on_signal(signal.SIGTERM, None)
        sys.settrace(None)

    handler = threading.Thread(target=handle, daemon=True)
    handler.start()
    handler.join(10)

    assert not handler.is_alive()
    assert launcher._is_woken()


@pytest.mark.parametrize("is_running", [True, False])
def test_a_complete_run_is_over_once_the_workers_of_this_node_have_ended(
    is_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise code after the training loop, such as saving the model, is killed after 10 to 20 s."""
    monkeypatch.setattr("everstep.elastic.launch.launcher.RUN_CHECK_SECONDS", 0.01)
    launcher = Launcher(parse(["-m", "a.b"]), "e:2379")
    handler: Any = SimpleNamespace(
        outcome=RunEnded(finished=True, reason="8 steps"), has_running_workers=is_running
    )
    launcher._handler = handler

    assert launcher._is_run_over() is not is_running


@pytest.mark.parametrize(("has_late_failure", "code"), [(True, PERMANENT), (False, DONE)])
def test_a_failure_after_the_run_decides_the_exit_code(has_late_failure: bool, code: int) -> None:
    launcher = Launcher(parse(["-m", "a.b"]), "e:2379")
    handler: Any = SimpleNamespace(
        outcome=RunEnded(finished=True, reason="8 steps"), has_late_failure=has_late_failure
    )
    launcher._handler = handler

    assert launcher._exit_code() == code


FAILURE = EverstepError("a worker has ended its program", "Call run.stop().")


@pytest.mark.parametrize(
    ("is_assigned", "leaves", "failure", "code"),
    [
        (True, False, FAILURE, PERMANENT),
        (True, False, EtcdUnreachableError("no response"), RETRY),
        (True, False, None, RETRY),
        (True, True, FAILURE, NOTICE),
        (False, False, None, DONE),
    ],
)
def test_workers_that_end_without_an_outcome_of_their_run_are_no_success(
    is_assigned: bool,
    leaves: bool,
    failure: Exception | None,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller marks a job as succeeded when a launcher exits with 0."""
    launcher = Launcher(parse(["-m", "a.b"]), "e:2379")
    handler: Any = SimpleNamespace(
        outcome=None, has_late_failure=False, has_been_assigned=is_assigned, failure=failure
    )
    launcher._handler, launcher._leave_requested = handler, leaves
    monkeypatch.setattr(launcher, "_launch", launcher._exit_code)

    launcher._run_agent()

    assert launcher._code == code


class SlowHandler:
    """A rendezvous of a node that does not depart; its `wait_departed` waits for `wait_seconds`."""

    def __init__(
        self, outcome: RunEnded | None, failure: Exception | None, wait_seconds: float
    ) -> None:
        self.outcome, self.failure, self._wait_seconds = outcome, failure, wait_seconds

    def leave(self) -> None:
        """Do nothing."""

    def wait_departed(self, seconds: float) -> bool:
        time.sleep(min(self._wait_seconds, seconds))
        return False


COMPLETE, FAILED = RunEnded(finished=True, reason="8 steps"), RunEnded(finished=False, reason="-")


@pytest.mark.parametrize(
    ("outcome", "failure", "has_agent_ended", "grace_seconds", "message"),
    [
        (None, None, True, 60.0, "no group to leave"),  # etcd was unreachable at the start
        (COMPLETE, None, True, 60.0, "the run is complete: there was no group to leave"),
        (COMPLETE, None, False, 0.0, "code after it had not ended at the deadline"),
        (FAILED, None, False, 60.0, "no group to leave"),
        (None, EtcdUnreachableError("gone"), False, 60.0, "no group to leave"),
        (None, None, False, 0.0, "left at the deadline: steps are repeated"),
    ],
)
def test_a_node_that_has_nothing_to_leave_ends_immediately_and_reports_no_loss(
    outcome: RunEnded | None,
    failure: Exception | None,
    has_agent_ended: bool,
    grace_seconds: float,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(
        "everstep.elastic.launch.launcher.seconds_to_leave", lambda *_: grace_seconds
    )
    launcher = Launcher(parse(["-m", "a.b"]), "e:2379")
    handler: Any = SlowHandler(outcome, failure, wait_seconds=60.0 if has_agent_ended else 0.0)
    launcher._handler = handler
    if has_agent_ended:
        launcher._agent_ended.set()
    started_at = time.monotonic()

    assert launcher._leave() == NOTICE

    assert time.monotonic() - started_at < 5
    assert message in caplog.text
    assert ("steps are repeated" in caplog.text) == ("steps are repeated" in message)


def test_a_node_that_must_leave_waits_for_the_code_after_a_complete_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program saves its model there."""
    monkeypatch.setattr("everstep.elastic.launch.launcher.seconds_to_leave", lambda *_: 60.0)
    launcher = Launcher(parse(["-m", "a.b"]), "e:2379")
    handler: Any = SlowHandler(COMPLETE, None, wait_seconds=0.0)
    launcher._handler, launcher._code = handler, DONE
    timer = threading.Timer(0.2, launcher._agent_ended.set)
    timer.start()

    assert launcher._leave() == DONE


def write_script(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(text)
    return "program.py"


PRINT_ENVIRONMENT = """
import os, sys
rank, workers = os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]
# In one write: workers share an unbuffered output.
print(f"worker {rank} of {workers} {__name__} {sys.argv[1:]}\\n", end="")
initial_environment = open("/proc/self/environ", "rb").read()
print(f"huge pages: {b'glibc.malloc.hugetlb=1' in initial_environment}\\n", end="")
"""
WAIT_PROGRAM = "import time; print('started', flush=True); time.sleep(600)"


@pytest.mark.twin
def test_two_workers_of_one_machine_run_a_script_and_leave_no_etcd(tmp_path: Path) -> None:
    arguments = ["--nproc-per-node", "2", write_script(tmp_path, PRINT_ENVIRONMENT), "--lr", "1"]
    with run_launcher(tmp_path, *arguments, program=LAUNCHER) as launcher:
        assert launcher.wait() == DONE, launcher.log

        assert "worker 0 of 2 __main__ ['--lr', '1']" in launcher.log
        assert "worker 1 of 2 __main__ ['--lr', '1']" in launcher.log
        assert launcher.log.count("huge pages: True") == 2, "malloc reads it when a process begins"
        assert "each worker ran on its own" in launcher.log, "the script does not use the library"
        launcher.wait_until_etcd_is_removed()


STOP_PROGRAM = """
import os, torch
from everstep import elastic
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
data = torch.utils.data.TensorDataset(torch.randn(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = elastic.Run(model, optimizer, dataset=data, global_batch=8, epochs=50, checkpoint="run")
for batch in run:
    for (x,) in batch.microbatches():
        batch.backward(model(x).square().mean())
    if batch.number >= 20 and os.environ["LOCAL_RANK"] == "1":
        run.stop()
    batch.step()
print(f"worker {os.environ['LOCAL_RANK']} ends after step {run.step}\\n", end="")
"""


@pytest.mark.twin
def test_one_worker_that_stops_the_run_ends_it_on_all_workers(tmp_path: Path) -> None:
    with run_launcher(
        tmp_path, "--nproc-per-node", "2", write_script(tmp_path, STOP_PROGRAM)
    ) as launcher:
        assert launcher.wait() == DONE, launcher.log

    (step,) = set(re.findall(r"worker [01] ends after step (\d+)", launcher.log))
    assert int(step) >= 20
    assert launcher.log.count(f"ends after step {step}") == 2
    assert (tmp_path / "run" / "checkpoints" / f"step-{int(step):08d}").exists()


@pytest.mark.twin
@pytest.mark.parametrize("end", ["break", "raise SystemExit(0)"])
def test_a_program_that_leaves_its_loop_early_is_an_error(tmp_path: Path, end: str) -> None:
    """Otherwise the controller would mark the job as succeeded, and the last checkpoint would be missing."""
    program = STOP_PROGRAM.replace(
        "    batch.step()\n", f"    batch.step()\n    if run.step == 5: {end}\n"
    )
    with run_launcher(tmp_path, write_script(tmp_path, program)) as launcher:
        assert launcher.wait() == PERMANENT, launcher.log

    assert "a worker has ended its program before the run was complete" in launcher.log
    assert "Call run.stop() to end a run early" in launcher.log


@pytest.mark.twin
def test_etcd_and_its_folder_are_removed_with_a_killed_launcher(tmp_path: Path) -> None:
    with run_launcher(tmp_path, write_script(tmp_path, WAIT_PROGRAM)) as launcher:
        launcher.wait_for("started\n")
        assert launcher.etcd_processes()

        launcher.process.kill()
        launcher.process.wait()

        launcher.wait_until_etcd_is_removed()


@pytest.mark.twin
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_launcher_with_the_code_of_a_departure(
    tmp_path: Path, number: signal.Signals
) -> None:
    with run_launcher(tmp_path, write_script(tmp_path, WAIT_PROGRAM), program=LAUNCHER) as launcher:
        launcher.wait_for("started\n")

        launcher.process.send_signal(number)

        assert launcher.wait() == NOTICE, launcher.log
        for text in ("resource_tracker", "Traceback", "exitcode"):
            assert text not in launcher.log, "a departure is not an error"
        launcher.wait_until_etcd_is_removed()


@pytest.mark.twin
def test_a_program_that_cannot_start_ends_the_launcher_with_its_error(tmp_path: Path) -> None:
    with run_launcher(
        tmp_path, write_script(tmp_path, "import this_module_does_not_exist"), program=LAUNCHER
    ) as launcher:
        assert launcher.wait() == PERMANENT, "after another code it would be restarted endlessly"

        assert "No module named 'this_module_does_not_exist'" in launcher.log
        assert "4 consecutive times before they joined the run" in launcher.log


@pytest.mark.twin
def test_a_launcher_whose_etcd_does_not_respond_exits_with_the_code_for_a_retry(
    tmp_path: Path,
) -> None:
    arguments = [
        "--rdzv-endpoint=127.0.0.1:1",
        "--run-id=x",
        "--nnodes=1",
        "--rdzv-conf=retry_seconds=1",
    ]
    with run_launcher(
        tmp_path, *arguments, write_script(tmp_path, WAIT_PROGRAM), program=LAUNCHER
    ) as launcher:
        assert launcher.wait() == RETRY, launcher.log


def test_without_an_etcd_on_path_the_error_names_a_fix(tmp_path: Path) -> None:
    result = subprocess.run(
        [*LAUNCHER, write_script(tmp_path, WAIT_PROGRAM)],
        cwd=tmp_path,
        env={"PATH": "/nowhere", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert result.returncode == USAGE
    assert result.stderr.startswith("error: there is no etcd on PATH")
    assert "apt install etcd-server" in result.stderr
    assert "--rendezvous-endpoint HOST:PORT" in result.stderr
