"""A Pulumi project of a test: the real engine, a program that the test writes, its own state."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest
from cloudtwin.progress import Lines
from cloudtwin.pulumi import backend_url, install_plugins
from cloudtwin.toolchain import ensure_tools


class Project:
    """One Pulumi project with one stack, in the folders `project` and `state` of a test.

    Attributes:
        folder: the folder of the program.
        environment: variables of `pulumi` in addition to the environment of the tests.
        head: the imports at the top of every program.
        command_seconds: time after which a command is killed and its test fails.
    """

    head = "import json\nimport pulumi\nfrom pulumi import ResourceOptions as Opts\n"
    command_seconds = 250

    def __init__(self, root: Path, engine: Path, environment: Mapping[str, str]) -> None:
        self._state, self.folder, self._engine = root / "state", root / "project", engine
        self._state.mkdir()
        self.folder.mkdir()
        self.environment = {
            **environment,
            "PULUMI_BACKEND_URL": backend_url(self._state),
            "PULUMI_CONFIG_PASSPHRASE": "test",
        }
        (self.folder / "Pulumi.yaml").write_text("name: probe\nruntime: python\n")
        self.program("")
        self.pulumi("stack", "init", "test")

    def program(self, text: str) -> None:
        """Write the program below the common imports."""
        (self.folder / "__main__.py").write_text(self.head + textwrap.dedent(text))

    def use_virtual_environment(self) -> Path:
        """Run the program in a new virtual environment with the packages of the tests; return its interpreter."""
        environment = self.folder / "separate"
        venv.create(environment, symlinks=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = environment / "lib" / version / "site-packages" / "packages.pth"
        packages.write_text(f"{Path(pulumi.__file__).parents[1]}\n")
        (self.folder / "Pulumi.yaml").write_text(
            "name: probe\nruntime: {name: python, options: {virtualenv: separate}}\n"
        )
        return environment / "bin" / "python"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `pulumi` in its own process group, as an interactive shell does."""
        return subprocess.Popen(
            [self._engine, *arguments, "--non-interactive", "--color=never"],
            cwd=self.folder,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        """Run `pulumi`; return its output."""
        process = self.start(*arguments)
        try:
            output, _ = process.communicate(timeout=self.command_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert (process.returncode != 0) == fails, f"pulumi {' '.join(arguments)}:\n{output}"
        return output

    def up(self, *arguments: str, fails: bool = False) -> str:
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, fails=fails)

    def destroy(self, *, fails: bool = False) -> str:
        return self.pulumi("destroy", "--yes", "--skip-preview", fails=fails)

    def preview(self) -> dict[str, str]:
        """Return the operation on each resource in a preview, by name."""
        operations: dict[str, str] = {}
        for step in json.loads(self.pulumi("preview", "--json"))["steps"]:
            operations.setdefault(step["urn"].rpartition("::")[2], step["op"])
        return operations

    def resources(self) -> dict[str, dict[str, Any]]:
        """Return the resources of the state, by name, as `pulumi stack export` shows them."""
        file = self._state / ".pulumi" / "stacks" / "probe" / "test.json"
        state = json.loads(file.read_text())["checkpoint"]["latest"]
        return {
            resource["urn"].rpartition("::")[2]: resource for resource in state.get("resources", [])
        }


@pytest.fixture(scope="session")
def pulumi_program() -> Path:
    """Return the Pulumi engine; CLOUDTWIN_TEST_PULUMI names an existing one."""
    if program := os.environ.get("CLOUDTWIN_TEST_PULUMI"):
        return Path(program)
    return ensure_tools(["pulumi"], Lines())["pulumi"]


@pytest.fixture(scope="session")
def plugins(pulumi_program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which the engine finds the language host and the Kubernetes provider."""
    return install_plugins(tmp_path_factory.mktemp("pulumi-home"), pulumi_program)
