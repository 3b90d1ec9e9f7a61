"""Runs one Pulumi program, in a process of its own, as the official language host does.

A process per run gives the program its own working directory, module cache and event loop, so that
several programs can run in turn and none sees another. This file is started by its path and may
import nothing of ours: the interpreter can be that of the project's own virtual environment, where
this package is not installed.

Usage: python -u run_program.py PROGRAM, with one JSON object of settings in EVERSTEP_RUN, and
configuration in PULUMI_CONFIG and PULUMI_CONFIG_SECRET_KEYS, where the SDK looks for them.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import runpy
import signal
import sys
import threading
import traceback
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulumi.runtime import Settings

SHOWN = 32  # exit code that tells the language host: the user has seen why
THREADS_PER_RESOURCE = 4
NEW_OBJECTS_PER_COLLECTION = 200_000
"""Python's own 700 suit a process that makes garbage. A program makes the classes of an SDK and its
resources, all of which stay: looking through them again and again is a fifth of its time."""
DEBUG_SECONDS = 0.1


def user_traceback(error: BaseException, program: str) -> str:
    """Format an exception without the frames above the program.

    They are the host's, not the user's.
    """
    first = error.__traceback__
    frame: TracebackType | None = first
    while frame is not None and not _belongs(frame.tb_frame.f_code.co_filename, program):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame or first))


def _belongs(file: str, program: str) -> bool:
    entry = program if program.endswith(".py") else os.path.join(program, "__main__.py")  # noqa: PTH118  start-up stays lean
    return os.path.abspath(file) == os.path.abspath(entry)  # noqa: PTH100  frames hold strings


class Engine:
    """The engine as the SDK sees it, but nobody waits for it to take a debug message.

    The SDK tells it five things a resource, mostly unseen, and stands still until each is answered.
    A thread of its own sends them on instead, all that came meanwhile in one request.
    """

    def __init__(self, address: str) -> None:
        import grpc
        from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
        from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

        channel = grpc.insecure_channel(address, options=_GRPC_CHANNEL_OPTIONS)
        self._engine = engine_pb2_grpc.EngineStub(channel)
        self._request, self._level = engine_pb2.LogRequest, engine_pb2.DEBUG
        self._debug: deque[str] = deque()
        self._ending = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def Log(self, request: Any) -> Any:  # noqa: ANN401, N802  as the protocol has it
        """Take a message; one for the user is with the engine when this returns."""
        if request.severity == self._level and not request.urn:
            return self._debug.append(request.message)
        return self._engine.Log(request)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  the rest of the protocol
        return getattr(self._engine, name)

    def _send(self) -> None:
        while not self._ending.wait(DEBUG_SECONDS):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        messages = [self._debug.popleft() for _ in range(len(self._debug))]
        if messages:
            with contextlib.suppress(Exception):  # as in `main`: the engine may be gone
                self._engine.Log(self._request(severity=self._level, message="\n".join(messages)))

    def close(self) -> None:
        """Send what is left."""
        self._ending.set()
        self._sender.join()


def _settings(run: dict[str, Any], engine: Engine) -> "Settings":
    from pulumi.runtime import Settings

    return Settings(
        project=run["project"],
        stack=run["stack"],
        organization=run["organization"],
        root_directory=run["root"],
        monitor=run["monitor"],
        engine=engine,
        parallel=run["parallel"],
        dry_run=run["preview"],
    )


def _run(program: str, run: dict[str, Any]) -> None:
    import pulumi

    pulumi.runtime.set_all_config(
        pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env()
    )
    engine = Engine(run["engine"])
    pulumi.runtime.configure(_settings(run, engine))
    # Futures of a graph that broke off are never awaited; asyncio would complain about each.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with ThreadPoolExecutor(max(run["parallel"], 1) * THREADS_PER_RESOURCE) as executor:
        loop.set_default_executor(executor)
        try:
            loop.run_until_complete(
                pulumi.runtime.run_in_stack(
                    lambda: _discard(runpy.run_path(program, run_name="__main__"))
                )
            )
        finally:
            loop.close()
            engine.close()


def _discard(globals_of_program: dict[str, Any]) -> None:
    """Drop the program's globals: what a program returns would become stack outputs."""


def main() -> int:
    """Run the program named on the command line; returns the exit code for the language host."""
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # the engine's way to say stop; a traceback would be noise
    gc.set_threshold(NEW_OBJECTS_PER_COLLECTION)
    program, run = sys.argv[1], json.loads(os.environ.pop("EVERSTEP_RUN"))
    sys.argv = sys.argv[1:]
    try:
        import pulumi
    except ImportError:
        print(
            f"The Pulumi SDK is not installed in {sys.prefix}. "
            "Install the program's requirements there.",
            file=sys.stderr,
        )
        return SHOWN
    try:
        _run(program, run)
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        return SHOWN
    except Exception as error:
        what = user_traceback(error, program)
        # The engine may be gone: then nobody is left to tell, and this process is about to end
        # anyway.
        with contextlib.suppress(Exception):
            pulumi.log.error(f"Program failed with an unhandled exception:\n{what}")
        return SHOWN
    return 0


if __name__ == "__main__":
    sys.path.pop(
        0
    )  # this folder holds a package named `kubernetes`; the program means the one from PyPI
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)
