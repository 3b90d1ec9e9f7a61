"""A Pulumi project of a test: the real engine, a program that the test writes, its own state."""

import json
import os
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.progress import Lines
from cloudtwin.toolchain import ensure_tools


class Project:
    """One Pulumi project with one stack.

    Attributes:
        folder: the folder of the program.
        environment: variables of `pulumi` in addition to the environment of the tests.
        head: the imports at the top of every program.
        command_seconds: time after which a command is killed and its test fails.
    """

    head = "import json\nimport pulumi\nfrom pulumi import ResourceOptions as Opts\n"
    command_seconds = 250

    def __init__(self, folder: Path, pulumi: Path, environment: dict[str, str]) -> None:
        self.folder, self._pulumi, self.environment = folder, pulumi, environment
        (folder / "Pulumi.yaml").write_text("name: probe\nruntime: python\n")
        self.program("")
        self.pulumi("stack", "init", "test")

    def program(self, text: str) -> None:
        """Write the program below the common imports."""
        (self.folder / "__main__.py").write_text(self.head + textwrap.dedent(text))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `pulumi` in its own process group, as a terminal does."""
        return subprocess.Popen(
            [self._pulumi, *arguments, "--non-interactive", "--color=never"],
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
        """Return the resources of the state, by name."""
        state = json.loads(self.pulumi("stack", "export"))
        return {
            resource["urn"].rpartition("::")[2]: resource
            for resource in state["deployment"].get("resources", [])
        }


@pytest.fixture(scope="session")
def pulumi_program() -> Path:
    """Return the Pulumi engine; CLOUDTWIN_TEST_PULUMI names an existing one."""
    if program := os.environ.get("CLOUDTWIN_TEST_PULUMI"):
        return Path(program)
    return ensure_tools(["pulumi"], Lines())["pulumi"]
