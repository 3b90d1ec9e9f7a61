"""Supervision of one worker: after a crash it starts again while the node's other workers continue.

torchrun's agent handles a node's workers only together: when one of its processes ends, it ends the
others and starts all again. So torchrun watches this process instead of the worker. This process forks the
worker and waits for it. It has imported everything that the worker needs and has no other state, so the
next start takes milliseconds.

The agent decides whether a crashed worker may start again, by the rule of `crashes`.
"""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.accounting.journal import flush_all
from everstep.elastic.recovery.worker_process import FAILED, RESTART
from everstep.elastic.transport import channel

PAUSE_SECONDS = 0.5
"""Pause before a restart, which takes CPU time from the recovery of the other workers."""
_PR_SET_PDEATHSIG = 1  # prctl(2)


def supervise(work: Callable[[], None]) -> None:
    """Run `work` in a child process and restart it after a crash; return when it is done.

    End this process with the worker's exit status if the worker may not start again, or if it ended itself with
    `RESTART` or `FAILED`, which torchrun handles.
    """
    while True:
        worker, code = _run(work)
        if code == 0:
            _report_end(worker)
            return
        if code in (RESTART, FAILED) or not _may_restart(worker):
            _end_as(code)
        time.sleep(PAUSE_SECONDS)


def _run(work: Callable[[], None]) -> tuple[int, int]:
    """Run one worker; return its process ID and its exit code or, negative, the signal that ended it."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    worker = os.fork()
    if worker == 0:
        _work_as_child(work, parent)
    _, status = os.waitpid(worker, 0)
    return worker, os.waitstatus_to_exitcode(status)


def _work_as_child(work: Callable[[], None], parent: int) -> NoReturn:
    # The kernel kills this process when its parent ends, for any reason.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the request to the kernel
        os._exit(RESTART)
    code = 0
    try:
        work()
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException:
        traceback.print_exc()
        code = 1
    if code == 0:  # a crashed worker must not keep its group waiting
        _finish()
    sys.stdout.flush()
    sys.stderr.flush()
    flush_all()
    os._exit(code)


def _finish() -> None:
    """Wait for the program's threads and call its exit handlers, as the interpreter does at its end."""
    threading._shutdown()  # type: ignore[attr-defined] # as multiprocessing's own processes do
    atexit._run_exitfuncs()


def _exit_code(end: SystemExit) -> int:
    """Return the exit code of a SystemExit as the interpreter does: 0 for None, 1 for a message, which is printed."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    sys.stderr.write(f"{end.code}\n")
    return 1


def _report_end(worker: int) -> None:
    """Report to the agent, if there is one, that a worker has ended without an error and does not start again.

    Wait for its response: torchrun ends the agent as soon as all supervisors have ended, and until then the outcome
    of the run can arrive.
    """
    _request({"ended": worker}, "noted")


def _may_restart(worker: int) -> bool:
    """Return True if the agent allows a restart; False without a response."""
    return _request({"crashed": worker}, "again")


def _request(message: channel.Message, name: str) -> bool:
    """Send a message to the agent and return the value `name` of its response; False without a response."""
    try:
        stream = _connect(message)
    except OSError:
        return False
    while stream and (response := stream.receive()) is not None:
        if name in response:
            stream.close()
            return bool(response[name])
    return False


def _connect(message: channel.Message) -> channel.MessageStream | None:
    """Send a message to the agent of this node; return the connection, or None if there is no agent.

    Raises:
        OSError: the agent is gone.
    """
    path = os.environ.get(AGENT_VARIABLE)
    if not path:
        return None
    stream = channel.connect(path)
    stream.send({"hello": os.getpid(), **message})
    return stream


def _end_as(code: int) -> NoReturn:
    if code < 0:
        os.kill(os.getpid(), -code)
        time.sleep(PAUSE_SECONDS)  # reached only if the signal does not end a process
    os._exit(code % 256)
