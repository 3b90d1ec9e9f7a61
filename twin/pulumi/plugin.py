"""What every plugin process of the engine has in common.

How it starts, whom it answers, when it ends.

The engine starts a plugin in a process group of its own, passes its own address as the last
argument, reads the plugin's port from the first line of standard output, and ends the plugin with
SIGINT to the group. That signal is the normal end, so it leaves no traceback. An engine that was
killed sends nothing: the plugin then notices that its parent has changed. (PR_SET_PDEATHSIG would
not do: it fires when the parent's *thread* ends, and the engine's threads come and go.)
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

PARENT_CHECK_SECONDS = 1.0
# One thread serves one resource operation, and an operation mostly waits.
THREADS = 128


def engine_address(arguments: Sequence[str]) -> str:
    """Find the engine's `host:port` among a plugin's arguments.

    Logging and tracing flags come before it. The answer is empty when a person starts the plugin by
    hand.
    """
    return next((word for word in reversed(arguments) if not word.startswith("-")), "")


def serve(register: Callable[[grpc.Server], None], on_end: Callable[[], None]) -> None:
    """Answer the engine until it says or shows that it is done; then leave the process at once.

    Args:
        register: adds the plugin's services to the server.
        on_end: called once before the process ends, to end what the plugin itself started.
    """
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(THREADS), options=unlimited)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)

    engine = os.getppid()
    while not ended.wait(PARENT_CHECK_SECONDS) and os.getppid() == engine:
        pass
    on_end()
    server.stop(grace=None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread may still be in a blocking read; the engine waits for none of them
