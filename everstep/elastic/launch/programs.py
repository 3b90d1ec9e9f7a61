"""The program that a worker runs: a module, a script or an executable.

The worker is forked from a process that has imported the preloaded modules. A Python program runs in the forked
process itself, so it does not import them again.
"""

import functools
import io
import multiprocessing
import os
import runpy
import sys
from pathlib import Path

from everstep.elastic.membership.supervisor import supervise

MODULE, SCRIPT, EXECUTABLE = "module", "script", "executable"
"""Kinds of programs."""


def run_program(kind: str, name: str, *arguments: str) -> None:
    """Run a program in this process, as `python3 -m NAME`, `python3 NAME` or NAME itself would."""
    if kind == EXECUTABLE:
        os.execvp(name, [name, *arguments])  # noqa: S606  no shell needed
    if isinstance(sys.stdout, io.TextIOWrapper):  # a killed worker would lose lines in a buffer
        sys.stdout.reconfigure(line_buffering=True)
    # The method of torchrun's agent, forkserver, would run the script again in each process of a DataLoader.
    multiprocessing.set_start_method(None, force=True)
    sys.argv = [name, *arguments]
    if kind == MODULE:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(name).resolve().parent))
    runpy.run_path(name, run_name="__main__")


def run_supervised(kind: str, name: str, *arguments: str) -> None:
    """Run a program and restart it after a crash, while the node's other workers continue."""
    supervise(functools.partial(run_program, kind, name, *arguments))
