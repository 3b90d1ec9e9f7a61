"""The Python language host: what the engine asks to run a Python program or plugin.

Programs run in a child process each (`run_program`); the child inherits this process' standard output and error,
which the engine turns into diagnostics. Only what the engine needs for up, preview, refresh, import and policy
packs is here; generating code and SDKs is the official host's and is refused by name.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

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

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002  gRPC's name
        """Take the engine's address, which may differ from the one on the command line."""
        self._engine = request.engine_address or self._engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002  gRPC's name
        """Say which engine version this host was written for."""
        return plugin_pb2.PluginInfo(version=VERSION)

    def About(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002  gRPC's name
        """Describe the interpreter that would run the program."""
        python = environment.interpreter(request.info)
        return language_pb2.AboutResponse(
            executable=python,
            version=environment.version(python),
            metadata={"language host": "everstep twin, a stand-in for the official one"},
        )

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002  gRPC's name
        """List the Pulumi packages installed beside the program, so the engine can check their plugins."""
        packages = [
            plugin_pb2.PackageDependency(name=found.name, kind="resource", version=found.version)
            for found in environment.providers(environment.interpreter(request.info))
        ]
        return language_pb2.GetRequiredPackagesResponse(packages=packages)

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002  gRPC's name
        """List the Python distributions installed for the program."""
        found = environment.distributions(
            environment.interpreter(request.info), only_top_level=not request.transitiveDependencies
        )
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[
                language_pb2.DependencyInfo(name=each.name, version=each.version) for each in found
            ]
        )

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802, ARG002  gRPC's name
        """Install nothing: the project's own environment is made by its `make`, from locked hashes."""
        return iter(())

    def RuntimeOptionsPrompts(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002  gRPC's name
        """Ask nothing of somebody who creates a project."""
        return language_pb2.RuntimeOptionsResponse()

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002  gRPC's name
        """Run one program to its end; an answer with `bail` means the user has been told what failed."""
        try:
            command = [
                environment.interpreter(request.info),
                "-u",
                str(RUN_PROGRAM),
                _entry(request),
            ]
        except environment.NoInterpreterError as error:
            return language_pb2.RunResponse(error=str(error))
        child = subprocess.Popen(
            [*command, *request.args],
            cwd=request.pwd or request.info.program_directory,
            env={**os.environ, **self._environment(request)},
            stdin=subprocess.DEVNULL,
        )
        code = self._wait(child)
        if code == SHOWN:
            return language_pb2.RunResponse(bail=True)
        if code:
            return language_pb2.RunResponse(error=_ended(code))
        return language_pb2.RunResponse()

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802  gRPC's name
        """Run a plugin written in Python, such as a policy pack directory, and stream what it prints."""
        python = environment.interpreter(request.info)
        child = subprocess.Popen(
            [python, "-u", *_plugin_arguments(request)],
            cwd=request.pwd or request.info.program_directory,
            env=dict(entry.split("=", 1) for entry in request.env) or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        # The engine ends a plugin by cancelling the call.
        context.add_callback(child.terminate)
        yield from _streams(child)
        yield language_pb2.RunPluginResponse(exitcode=self._wait(child))

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002  gRPC's name
        """End the programs that run: the engine has been interrupted."""
        self.end_children()
        return empty_pb2.Empty()

    def end_children(self) -> None:
        """End every program and plugin that this host started."""
        with self._lock:
            for child in self._children:
                child.terminate()

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        with self._lock:
            self._children.add(child)
        try:
            return child.wait()
        finally:
            with self._lock:
                self._children.discard(child)

    def _environment(self, request: Any) -> Mapping[str, str]:
        """Pass the run's settings; configuration travels in the environment, never on a command line."""
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


def _entry(request: Any) -> str:
    """Find what to run: the entry point in the program's directory; "." stands for its __main__.py."""
    return str(Path(request.info.program_directory) / (request.info.entry_point or "."))


def _plugin_arguments(request: Any) -> list[str]:
    """Build the arguments of a Python plugin; a policy pack goes through the SDK's own launcher."""
    directory = request.info.program_directory
    if request.kind == "analyzer":
        return ["-m", "pulumi.policy", *request.args, directory]
    return [directory, *request.args]


def _ended(code: int) -> str:
    if code < 0:
        return f"the program was ended by signal {-code}"
    return f"the program exited with code {code}"


def _streams(child: subprocess.Popen[bytes]) -> Iterator[Any]:
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
            yield language_pb2.RunPluginResponse(**{name: chunk})
        else:
            streams.pop(name).close()


def main() -> None:
    """Serve the engine that started this process."""
    host = LanguageHost(plugin.engine_address(sys.argv[1:]))

    def register(server: grpc.Server) -> None:
        language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)

    plugin.serve(register, host.end_children)


if __name__ == "__main__":
    main()
