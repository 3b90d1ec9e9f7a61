"""Start of multiprocessing's fork server, from which workers are forked, as a fork of this process.

By default multiprocessing starts its fork server as a new interpreter. On each node, torchrun's agent and the fork
server would then both import torch, which costs each of them two CPU seconds and private memory. A fork shares
the modules that this process has imported.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
from collections.abc import Sequence
from multiprocessing import forkserver, resource_tracker, util
from typing import Any

STANDARD_STREAMS = {0, 1, 2}


def start(preload: Sequence[str]) -> None:
    """Fork the server, which then imports modules while this process continues.

    It must be called before this process has threads: a lock that another thread holds would never be released in
    the fork.

    Args:
        preload: names of the modules.
    """
    multiprocessing.set_forkserver_preload(list(preload))
    resource_tracker.ensure_running()  # it still runs in its own interpreter
    start_interpreter = util.spawnv_passfds
    util.spawnv_passfds = _fork
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = start_interpreter


def _fork(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Fork this process, run the interpreter's `-c` code in the child, and return the child's process ID.

    Args:
        path: the interpreter, which is not started.
        args: its command line, with the code at the end.
        passfds: file descriptors that the code uses.
    """
    del path
    if pid := os.fork():
        return pid
    try:
        _forget_parent({*STANDARD_STREAMS, *passfds})
        exec(args[-1])  # noqa: S102  the code is from multiprocessing
    finally:
        os._exit(1)


def _forget_parent(descriptors: set[int]) -> None:
    """Reset this process to the state of a new interpreter, except for imported modules.

    Args:
        descriptors: file descriptors to keep open.
    """
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208  names only
        if descriptor not in descriptors:
            with contextlib.suppress(OSError):  # the folder's own
                os.close(descriptor)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    # The parent holds the fork server's lock now, and a worker may start processes of its own.
    forkserver.ForkServer.__init__(forkserver._forkserver)
    resource_tracker.ResourceTracker.__init__(resource_tracker._resource_tracker)
