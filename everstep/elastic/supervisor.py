"""Keeps one worker running: starts it again when it crashes, so that its neighbours on the node live on.

torchrun's agent knows a node's workers only all together: when one of its processes ends, it ends
the others and starts all anew. So what it watches is not the worker but this process, which forks
the worker and waits for it. It has imported all that the worker needs and holds nothing else, so the
next start takes milliseconds.

Whether a crashed worker may start again is the agent's to say, by the rule of `crashes`.
"""

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from everstep.elastic import channel
from everstep.elastic.worker import FAILED, RESTART

PAUSE_SECONDS = (
    0.5  # those who go on come first: where processors are shared, a start would take theirs
)
_PR_SET_PDEATHSIG = 1  # prctl(2)


def supervise(work: Callable[[], None]) -> None:
    """Do the work in a process of its own, and again where that crashes; returns when it is done.

    Ends this process as the worker's ended where it may not start again, or asked for what only
    torchrun can do.
    """
    while True:
        worker, code = _run(work)
        if code == 0:
            return
        if code in (RESTART, FAILED) or not _may_start_again(worker):
            _end_as(code)
        time.sleep(PAUSE_SECONDS)


def _run(work: Callable[[], None]) -> tuple[int, int]:
    """One worker's life: its process id, and its exit code or, negative, the signal that ended it."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    worker = os.fork()
    if worker == 0:
        _be_worker(work, parent)
    _, status = os.waitpid(worker, 0)
    return worker, os.waitstatus_to_exitcode(status)


def _be_worker(work: Callable[[], None], parent: int) -> NoReturn:
    # The kernel kills this process when its parent ends, whatever ends it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before that could be asked for
        os._exit(RESTART)
    code = 0
    try:
        work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _may_start_again(worker: int) -> bool:
    """Ask the agent; no answer is a no."""
    path = os.environ.get(channel.SOCKET_VARIABLE)
    if not path:
        return False
    try:
        line = channel.connect(path)
        line.send({"hello": os.getpid(), "crashed": worker})
    except OSError:
        return False
    while (message := line.receive()) is not None:
        if "again" in message:
            line.close()
            return bool(message["again"])
    return False


def _end_as(code: int) -> NoReturn:
    if code < 0:
        os.kill(os.getpid(), -code)
        time.sleep(PAUSE_SECONDS)  # unless the signal is one that ends nothing
    os._exit(code % 256)
