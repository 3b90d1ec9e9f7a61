"""The processes of one node."""

import argparse
import signal
import subprocess
import sys

from everstep.interconnect.launch import group_variables, stop, wait


def start_program(text: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", text])


def options(node_rank: int) -> argparse.Namespace:
    return argparse.Namespace(nodes=3, processes=8, node_rank=node_rank, address="a", port=29400)


def test_ranks_are_unique_over_all_nodes() -> None:
    variables = [group_variables(options(node), local) for node in range(3) for local in range(8)]

    assert [int(worker["RANK"]) for worker in variables] == list(range(24))
    assert {worker["WORLD_SIZE"] for worker in variables} == {"24"}
    assert variables[9]["LOCAL_RANK"] == "1", "a process uses the GPU of this number"


def test_a_process_that_fails_ends_the_others_of_its_node() -> None:
    sleeping = start_program("import time; time.sleep(60)")
    processes = [sleeping, start_program("raise SystemExit(3)")]
    try:
        assert wait(processes) == 3
    finally:
        stop(processes)

    assert sleeping.returncode == -signal.SIGTERM


def test_the_exit_code_is_0_once_all_have_ended() -> None:
    assert wait([start_program("pass"), start_program("pass")]) == 0


def test_a_killed_process_has_the_exit_code_that_a_shell_reports() -> None:
    killed = start_program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")

    assert wait([killed]) == 128 + signal.SIGKILL
