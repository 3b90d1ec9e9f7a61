"""A fork server that shares the modules of the process that started it, and nothing else of its state."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.everstep.elastic.launch.launched import REPOSITORY, WAIT_SECONDS
from tests.waiting import wait_until

HEAD = """
import logging, multiprocessing, os, pathlib, signal, sys
from everstep.elastic.launch import fork_server

def run(target, *args):
    process = multiprocessing.get_context("forkserver").Process(target=target, args=args)
    process.start()
    process.join()
    assert process.exitcode == 0, process.exitcode
"""


def run_program(folder: Path, functions: str, main: str) -> list[str]:
    """Run a program that starts a fork server; return the lines of its output."""
    body = textwrap.indent(textwrap.dedent(main).strip(), "    ")
    text = f'{HEAD}\n{textwrap.dedent(functions)}\nif __name__ == "__main__":\n{body}\n'
    (folder / "program.py").write_text(text)
    result = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{REPOSITORY}:{folder}"},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_a_worker_shares_the_modules_that_were_imported_before_the_fork(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / f"{name}.py").write_text(f"print('imported {name}', flush=True)")

    lines = run_program(
        tmp_path,
        """
        def report():
            import after, before
            print("worker", flush=True)
        """,
        """
        import before
        fork_server.start(["before", "after"])
        run(report)
        run(report)
        """,
    )

    assert lines == ["imported before", "imported after", "worker", "worker"]


def test_a_worker_has_the_signal_handlers_logging_and_descriptors_of_a_new_interpreter(
    tmp_path: Path,
) -> None:
    lines = run_program(
        tmp_path,
        """
        def report(descriptor):
            print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
            print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
            print(logging.root.handlers, logging.root.level == logging.WARNING)
            print(pathlib.Path(f"/proc/self/fd/{descriptor}").exists(), flush=True)
        """,
        """
        logging.basicConfig(level=logging.INFO)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        descriptor = os.dup2(os.open("/dev/null", os.O_RDONLY), 200)
        fork_server.start([])
        run(report, descriptor)
        """,
    )

    assert lines == ["True", "True", "[] True", "False"]


def test_a_worker_can_start_processes_of_its_own(tmp_path: Path) -> None:
    lines = run_program(
        tmp_path,
        """
        def report():
            print("process of a worker", flush=True)

        def start_process():
            run(report)
        """,
        """
        fork_server.start([])
        run(start_process)
        """,
    )

    assert lines == ["process of a worker"], "it must not wait for a lock of the first process"


def test_the_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    lines = run_program(
        tmp_path,
        "",
        """
        fork_server.start([])
        print(fork_server.forkserver._forkserver._forkserver_pid, flush=True)
        os._exit(0)
        """,
    )

    pid = int(lines[0])
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the server ends", WAIT_SECONDS)
