"""The Python language host: runs Python programs and plugins for the engine.

Each program runs in its own process (`run_program`), which `Run` or `prestart` has started. It has this process's
standard output and error, which the engine turns into diagnostics. The host supports up, preview, refresh, import and
policy packs. Unlike the official host, it generates no code and no SDKs.
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

from cloudtwin.pulumi import environment, plugin, prestart
from cloudtwin.pulumi.prestart import PrestartedProgram
from cloudtwin.pulumi.run_program import ERROR_SHOWN

RUN_PROGRAM = Path(__file__).with_name("run_program.py")
CHUNK_BYTES = 1 << 16

Child = subprocess.Popen[bytes] | PrestartedProgram


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """The service that describes and runs Python programs."""

    def __init__(self, engine: str, version: str) -> None:
        self._engine = engine
        self._version = version
        self._children: set[Child] = set()
        self._lock = threading.Lock()
        self._cancelled = False

    def Handshake(
        self, request: pb.LanguageHandshakeRequest, context: ServicerContext
    ) -> pb.LanguageHandshakeResponse:
        """Store the engine's address, which may differ from the command line's."""
        self._engine = request.engine_address or self._engine
        return pb.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Empty, context: ServicerContext) -> plugin_pb2.PluginInfo:
        """Return the engine version that this host was written for."""
        return plugin_pb2.PluginInfo(version=self._version)

    def About(self, request: pb.AboutRequest, context: ServicerContext) -> pb.AboutResponse:
        """Return the interpreter that runs the program."""
        python = _interpreter(request.info, context)
        return pb.AboutResponse(
            executable=python,
            version=environment.version(python),
            metadata={"language host": "cloudtwin, a stand-in for the official one"},
        )

    def GetRequiredPackages(
        self, request: pb.GetRequiredPackagesRequest, context: ServicerContext
    ) -> pb.GetRequiredPackagesResponse:
        """Return the Pulumi packages of the program's environment; the engine checks their plugins."""
        packages = [
            plugin_pb2.PackageDependency(
                name=provider.name, kind="resource", version=provider.version
            )
            for provider in environment.providers(_interpreter(request.info, context))
        ]
        return pb.GetRequiredPackagesResponse(packages=packages)

    def GetProgramDependencies(
        self, request: pb.GetProgramDependenciesRequest, context: ServicerContext
    ) -> pb.GetProgramDependenciesResponse:
        """Return the Python distributions installed for the program."""
        distributions = environment.distributions(
            _interpreter(request.info, context), only_top_level=not request.transitiveDependencies
        )
        return pb.GetProgramDependenciesResponse(
            dependencies=[
                pb.DependencyInfo(name=distribution.name, version=distribution.version)
                for distribution in distributions
            ]
        )

    def InstallDependencies(
        self, request: pb.InstallDependenciesRequest, context: ServicerContext
    ) -> Iterator[pb.InstallDependenciesResponse]:
        """Install nothing: the project installs its environment itself, from locked hashes."""
        return iter(())

    def RuntimeOptionsPrompts(
        self, request: pb.RuntimeOptionsRequest, context: ServicerContext
    ) -> pb.RuntimeOptionsResponse:
        """Return no prompts for new projects."""
        return pb.RuntimeOptionsResponse()

    def Run(self, request: pb.RunRequest, context: ServicerContext) -> pb.RunResponse:
        """Run one program to completion. A response with `bail` means that its error was shown or it was canceled."""
        python = _interpreter(request.info, context)
        program = str(Path(request.info.program_directory) / (request.info.entry_point or "."))
        arguments = [program, *request.args]
        directory = request.pwd or request.info.program_directory
        variables = {**os.environ, **self._environment(request)}
        child = prestart.connect(python, arguments, directory, variables) or subprocess.Popen(
            [python, "-u", str(RUN_PROGRAM), *arguments],
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
        )
        with self._registered(child):
            code = child.wait()
        was_ended = code is None or code < 0
        if code == ERROR_SHOWN or (was_ended and self._cancelled):
            return pb.RunResponse(bail=True)
        return pb.RunResponse(error="" if code == 0 else _exit_message(code))

    def RunPlugin(
        self, request: pb.RunPluginRequest, context: ServicerContext
    ) -> Iterator[pb.RunPluginResponse]:
        """Run a plugin written in Python, such as a policy pack, and stream its output."""
        child = subprocess.Popen(
            [_interpreter(request.info, context), "-u", *_plugin_arguments(request)],
            cwd=request.pwd or request.info.program_directory,
            env=dict(entry.split("=", 1) for entry in request.env) or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        context.add_callback(child.terminate)  # the engine ends a plugin by canceling the call
        with self._registered(child):
            yield from _streams(child)
            yield pb.RunPluginResponse(exitcode=child.wait())

    def Cancel(self, request: Empty, context: ServicerContext) -> Empty:
        """Stop all running programs and plugins: the engine was interrupted."""
        self.end_children()
        return Empty()

    def end_children(self) -> None:
        """Terminate every program and plugin of this host, including any that starts later."""
        with self._lock:
            self._cancelled = True
            for child in self._children:
                child.terminate()

    @contextmanager
    def _registered(self, child: Child) -> Iterator[None]:
        """Register a child process to be ended with this process."""
        with self._lock:
            self._children.add(child)
            if self._cancelled:  # the engine was interrupted while the child started
                child.terminate()
        try:
            yield
        finally:
            with self._lock:
                self._children.discard(child)

    def _environment(self, request: pb.RunRequest) -> Mapping[str, str]:
        """Return the variables of a run. Configuration is never passed on a command line."""
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
            "CLOUDTWIN_RUN": json.dumps(run),
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }


def _interpreter(info: pb.ProgramInfo, context: ServicerContext) -> str:
    """Return the program's interpreter, or abort the call with the reason."""
    try:
        return environment.interpreter(info)
    except environment.NoInterpreterError as error:
        reason = str(error)
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
    raise AssertionError("abort raises")


def _plugin_arguments(request: pb.RunPluginRequest) -> list[str]:
    """Return the arguments of a Python plugin. The SDK's launcher runs a policy pack."""
    directory = request.info.program_directory
    if request.kind == "analyzer":
        return ["-m", "pulumi.policy", *request.args, directory]
    return [directory, *request.args]


def _exit_message(code: int | None) -> str:
    if code is None:
        return "the program ended without an exit code"
    if code < 0:
        return f"the program was ended by signal {-code}"
    return f"the program exited with code {code}"


def _streams(child: subprocess.Popen[bytes]) -> Iterator[pb.RunPluginResponse]:
    """Yield a child's output until both streams are closed."""
    queue: SimpleQueue[tuple[str, bytes]] = SimpleQueue()

    def pump(name: str, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), CHUNK_BYTES):
            queue.put((name, chunk))
        queue.put((name, b""))

    assert child.stdout is not None  # noqa: S101  both are pipes
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


def serve(version: str, arguments: Sequence[str]) -> None:
    """Serve the engine that started this process.

    Args:
        version: version of this plugin, the same as the version of the engine.
        arguments: the engine's arguments.
    """
    host = LanguageHost(plugin.engine_address(arguments), version)

    def register(server: grpc.Server) -> None:
        language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)

    plugin.serve(register, host.end_children)
