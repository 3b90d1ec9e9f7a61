"""Lifecycle of a plugin process of the engine: start, service and end.

The engine starts a plugin in its own process group, passes its own address as the last
argument, reads the plugin's port from the first line of standard output, and ends the plugin with
SIGINT to the group. That signal is the normal end, so it leaves no traceback. A killed engine sends
nothing; the plugin then notices that its parent has changed. (PR_SET_PDEATHSIG fires when the
parent's *thread* ends, and the engine's threads are short-lived.)
"""

import importlib.util
import os
import select
import signal
import sys
import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

PARENT_CHECK_SECONDS = 1.0
# One thread serves one resource operation, and an operation mostly waits.
THREADS = 128


def import_only_protocol() -> None:
    """Make `pulumi.runtime.proto` importable without the rest of the SDK.

    The plain import runs the whole SDK, including the Automation API: 0.45 s of CPU time in each
    plugin of each command.
    """
    spec = importlib.util.find_spec("pulumi")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit(f"the Pulumi SDK is not installed in {sys.prefix}")
    (root,) = spec.submodule_search_locations
    for name, folder in (("pulumi", root), ("pulumi.runtime", f"{root}/runtime")):
        package = types.ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package


def engine_address(arguments: Sequence[str]) -> str:
    """Return the engine's `host:port` from a plugin's arguments; empty if there is none.

    Logging and tracing flags come before it.
    """
    return next((word for word in reversed(arguments) if not word.startswith("-")), "")


def serve(register: Callable[[grpc.Server], None], on_end: Callable[[], None]) -> None:
    """Serve the engine until it ends the plugin or dies, then end the process.

    Args:
        register: function that adds the plugin's services to the server.
        on_end: function that is called once before the process ends, to end child processes.
    """
    stop_requested = pipe_of_signals(signal.SIGINT, signal.SIGTERM)
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(THREADS), options=options)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)

    engine = os.getppid()
    while not select.select([stop_requested], [], [], PARENT_CHECK_SECONDS)[0]:
        if os.getppid() != engine:
            break
    on_end()
    server.stop(grace=None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread may be in a blocking read; the engine waits for none of them


def pipe_of_signals(*numbers: signal.Signals) -> int:
    """Return a pipe that becomes readable as soon as this process receives one of these signals.

    The kernel may deliver a signal to any thread. If it is one of gRPC's, Python calls the handler only when the main
    thread next runs, and the engine would wait until the next check of the parent.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return readable
