"""Run one Pulumi program in its own process, as the official language host does.

A process per run gives each program its own working directory, module cache and event loop. This
file is started by its path and imports nothing from this package, which may not be installed in the
program's virtual environment.

Usage: python -u run_program.py PROGRAM, with the run as a JSON object in CLOUDTWIN_RUN, and the
configuration in PULUMI_CONFIG and PULUMI_CONFIG_SECRET_KEYS, where the SDK reads it.
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
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pulumi.runtime import Settings

ERROR_SHOWN = 32  # exit code: the error has been shown to the user
THREADS_PER_RESOURCE = 4
NEW_OBJECTS_PER_COLLECTION = 1_000_000
"""The default of Python 3.11 is 700. The objects of a program, such as an SDK's classes and resources, live until
its end; garbage collections among them take a fifth of its run time. A program with 150 resources has
400,000 objects."""
DEBUG_SECONDS = 0.1


def user_traceback(error: BaseException, program: str) -> str:
    """Return an exception's traceback without the frames of the host above the program."""
    top = error.__traceback__
    frame: TracebackType | None = top
    while frame is not None and not _belongs(frame.tb_frame.f_code.co_filename, program):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame or top))


def _belongs(file: str, program: str) -> bool:
    entry = program if program.endswith(".py") else os.path.join(program, "__main__.py")  # noqa: PTH118  start-up stays lean
    return os.path.abspath(file) == os.path.abspath(entry)  # noqa: PTH100  frames hold strings


class BufferedEngine:
    """The SDK's engine stub, with debug messages sent in the background.

    The SDK sends about five debug messages per resource and blocks until each is received. Here a
    thread sends all messages of a short interval in one request.
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

    def Log(self, request: Any) -> Any:  # noqa: ANN401, N802  the protocol's name
        """Log a message. A message for the user has reached the engine on return."""
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
        """Send the remaining messages."""
        self._ending.set()
        self._sender.join()


def _settings(run: dict[str, Any], engine: BufferedEngine) -> "Settings":
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
    engine = BufferedEngine(run["engine"])
    pulumi.runtime.configure(_settings(run, engine))
    # After a failure the futures of other resources are never awaited; asyncio logs each.
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
    """Ignore the program's globals: a returned value would become stack outputs."""


def main() -> int:
    """Run the program of the command line. Return the exit code for the language host."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the engine's cancellation: no traceback
    program, run = sys.argv[1], json.loads(os.environ.pop("CLOUDTWIN_RUN"))
    sys.argv = sys.argv[1:]
    try:
        import pulumi
    except ImportError:
        print(
            f"The Pulumi SDK is not installed in {sys.prefix}. "
            "Install the program's requirements there.",
            file=sys.stderr,
        )
        return ERROR_SHOWN
    try:
        _run(program, run)
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        return ERROR_SHOWN
    except SystemExit as ending:
        return _exit_code(ending)
    except Exception as error:
        text = user_traceback(error, program)
        with contextlib.suppress(Exception):  # the engine may have ended
            pulumi.log.error(f"Program failed with an unhandled exception:\n{text}")
        return ERROR_SHOWN
    return 0


def _exit_code(ending: SystemExit) -> int:
    """Return the exit code that Python defines for an exception; print the message if it has one."""
    if ending.code is None or isinstance(ending.code, int):
        return ending.code or 0
    print(ending.code, file=sys.stderr)
    return 1


def end(code: int) -> NoReturn:
    """End the process without a last garbage collection, which takes seconds with an SDK."""
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its modules are not the program's
    gc.set_threshold(NEW_OBJECTS_PER_COLLECTION)
    end(main())
