"""The Python language host: what the engine asks to run a Python program or plugin.

Programs run in a child process each (`run_program`); the child inherits this process' standard
output and error, which the engine turns into diagnostics. Only what the engine needs for up,
preview, refresh, import and policy packs is here; generating code and SDKs is the official host's
and is refused by name.
"""

# ruff: noqa: N802, ARG002  (gRPC names the methods and passes each of them the same arguments)

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import grpc
from google.protobuf.empty_pb2 import Empty
from grpc import ServicerContext
from pulumi.runtime.proto import language_pb2 as pb
from pulumi.runtime.proto import language_pb2_grpc, plugin_pb2

from twin.pulumi import environment, plugin
from twin.pulumi.run_program import SHOWN

VERSION = "3.259.0"
RUN_PROGRAM = Path(__file__).with_name("run_program.py")
CHUNK_BYTES = 1 << 16


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Answers the engine's questions about Python programs and runs them."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._cancelled = False

    def Handshake(
        self, request: pb.LanguageHandshakeRequest, context: ServicerContext
    ) -> pb.LanguageHandshakeResponse:
        """Take the engine's address, which may differ from the one on the command line."""
        self._engine = request.engine_address or self._engine
        return pb.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Empty, context: ServicerContext) -> plugin_pb2.PluginInfo:
        """Say which engine version this host was written for."""
        return plugin_pb2.PluginInfo(version=VERSION)

    def About(self, request: pb.AboutRequest, context: ServicerContext) -> pb.AboutResponse:
        """Describe the interpreter that would run the program."""
        python = _interpreter(request.info, context)
        return pb.AboutResponse(
            executable=python,
            version=environment.version(python),
            metadata={"language host": "everstep twin, a stand-in for the official one"},
        )

    def GetRequiredPackages(
        self, request: pb.GetRequiredPackagesRequest, context: ServicerContext
    ) -> pb.GetRequiredPackagesResponse:
        """List the Pulumi packages beside the program, whose plugins the engine then checks."""
        packages = [
            plugin_pb2.PackageDependency(name=found.name, kind="resource", version=found.version)
            for found in environment.providers(_interpreter(request.info, context))
        ]
        return pb.GetRequiredPackagesResponse(packages=packages)

    def GetProgramDependencies(
        self, request: pb.GetProgramDependenciesRequest, context: ServicerContext
    ) -> pb.GetProgramDependenciesResponse:
        """List the Python distributions installed for the program."""
        found = environment.distributions(
            _interpreter(request.info, context), only_top_level=not request.transitiveDependencies
        )
        return pb.GetProgramDependenciesResponse(
            dependencies=[pb.DependencyInfo(name=each.name, version=each.version) for each in found]
        )

    def InstallDependencies(
        self, request: pb.InstallDependenciesRequest, context: ServicerContext
    ) -> Iterator[pb.InstallDependenciesResponse]:
        """Install nothing.

        The project's own environment is made by its `make`, from locked hashes.
        """
        return iter(())

    def RuntimeOptionsPrompts(
        self, request: pb.RuntimeOptionsRequest, context: ServicerContext
    ) -> pb.RuntimeOptionsResponse:
        """Ask nothing of somebody who creates a project."""
        return pb.RuntimeOptionsResponse()

    def Run(self, request: pb.RunRequest, context: ServicerContext) -> pb.RunResponse:
        """Run one program to its end; an answer with `bail` means the user has been told what failed."""
        python = _interpreter(request.info, context)
        program = str(Path(request.info.program_directory) / (request.info.entry_point or "."))
        child = subprocess.Popen(
            [python, "-u", str(RUN_PROGRAM), program, *request.args],
            cwd=request.pwd or request.info.program_directory,
            env={**os.environ, **self._environment(request)},
            stdin=subprocess.DEVNULL,
        )
        with self._watching(child):
            code = child.wait()
        if code == SHOWN or (code < 0 and self._cancelled):
            return pb.RunResponse(bail=True)
        return pb.RunResponse(error=_ended(code) if code else "")

    def RunPlugin(
        self, request: pb.RunPluginRequest, context: ServicerContext
    ) -> Iterator[pb.RunPluginResponse]:
        """Run a plugin written in Python, such as a policy pack directory, and stream what it prints."""
        child = subprocess.Popen(
            [_interpreter(request.info, context), "-u", *_plugin_arguments(request)],
            cwd=request.pwd or request.info.program_directory,
            env=dict(entry.split("=", 1) for entry in request.env) or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        context.add_callback(child.terminate)  # the engine ends a plugin by cancelling the call
        with self._watching(child):
            yield from _streams(child)
            yield pb.RunPluginResponse(exitcode=child.wait())

    def Cancel(self, request: Empty, context: ServicerContext) -> Empty:
        """End the programs that run: the engine has been interrupted."""
        self._cancelled = True
        self.end_children()
        return Empty()

    def end_children(self) -> None:
        """End every program and plugin that this host started."""
        with self._lock:
            for child in self._children:
                child.terminate()

    @contextmanager
    def _watching(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        """Count a child among those that end with this process."""
        with self._lock:
            self._children.add(child)
        try:
            yield
        finally:
            with self._lock:
                self._children.discard(child)

    def _environment(self, request: pb.RunRequest) -> Mapping[str, str]:
        """Pass the run's settings.

        Configuration travels in the environment, never on a command line.
        """
        run = {
            "project": request.project,
            "stack": request.stack,
            "organization": request.organization or "organization",
            "root": request.info.root_directory,
            "monitor": request.monitor_address,
            "engine": self._engine,
            "parallel": request.parallel,
            "preview": request.dryRun,
        }
        return {
            "EVERSTEP_RUN": json.dumps(run),
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }


def _interpreter(info: pb.ProgramInfo, context: ServicerContext) -> str:
    """Find the program's interpreter; where there is none, end the call and say so."""
    try:
        return environment.interpreter(info)
    except environment.NoInterpreterError as error:
        what = str(error)
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, what)
    raise AssertionError("abort raises")


def _plugin_arguments(request: pb.RunPluginRequest) -> list[str]:
    """Build the arguments of a Python plugin; a policy pack goes through the SDK's own launcher."""
    directory = request.info.program_directory
    if request.kind == "analyzer":
        return ["-m", "pulumi.policy", *request.args, directory]
    return [directory, *request.args]


def _ended(code: int) -> str:
    if code < 0:
        return f"the program was ended by signal {-code}"
    return f"the program exited with code {code}"


def _streams(child: subprocess.Popen[bytes]) -> Iterator[pb.RunPluginResponse]:
    """Yield what a child prints, as it prints it, until both its streams are closed."""
    queue: SimpleQueue[tuple[str, bytes]] = SimpleQueue()

    def pump(name: str, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), CHUNK_BYTES):
            queue.put((name, chunk))
        queue.put((name, b""))

    assert child.stdout is not None  # noqa: S101  both were asked for as pipes
    assert child.stderr is not None  # noqa: S101
    streams = {"stdout": child.stdout, "stderr": child.stderr}
    for name, stream in streams.items():
        threading.Thread(target=pump, args=(name, stream), daemon=True).start()
    while streams:
        name, chunk = queue.get()
        if chunk:
            yield (
                pb.RunPluginResponse(stdout=chunk)
                if name == "stdout"
                else pb.RunPluginResponse(stderr=chunk)
            )
        else:
            streams.pop(name).close()


def serve(arguments: Sequence[str]) -> None:
    """Serve the engine that started this process; arguments are those that it gave."""
    host = LanguageHost(plugin.engine_address(arguments))

    def register(server: grpc.Server) -> None:
        language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)

    plugin.serve(register, host.end_children)
