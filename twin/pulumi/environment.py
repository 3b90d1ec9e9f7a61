"""What is installed for a Python program.

Which interpreter runs it, which distributions and providers it has.

A program may live in another virtual environment than ours (runtime option `virtualenv`), so the
answers come from that interpreter, asked once, and not from our own metadata.
"""

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pulumi.runtime.proto.language_pb2 import ProgramInfo

from twin.pulumi import describe_environment

ASK_SECONDS = 60
DESCRIBE = Path(describe_environment.__file__)


class NoInterpreterError(Exception):
    """The runtime options name a virtual environment without an interpreter."""


@dataclass(frozen=True)
class Package:
    """A Python distribution, or the Pulumi provider that one brings an SDK for."""

    name: str
    version: str


def interpreter(info: ProgramInfo) -> str:
    """Return the path of the interpreter for a program.

    Args:
        info: where the program is; its option `virtualenv` is a path from the project's root.

    Raises:
        NoInterpreterError: the option names a folder without an interpreter.
    """
    chosen = dict(info.options).get("virtualenv") if info.HasField("options") else None
    if not chosen:
        return sys.executable
    python = Path(info.root_directory) / str(chosen) / "bin" / "python"
    if not os.access(python, os.X_OK):
        raise NoInterpreterError(
            f"Pulumi.yaml asks for the virtual environment {str(chosen)!r}, but {python} cannot be "
            f"run. Create it with: python3 -m venv {python.parent.parent}"
        )
    return str(python)


def version(python: str) -> str:
    """Return the version of an interpreter, such as 3.11.2."""
    if python == sys.executable:  # the engine asks in every command: walk no distributions for it
        return platform.python_version()
    return str(_ask(python)["version"])


def distributions(python: str, *, only_top_level: bool) -> list[Package]:
    """List what is installed; only_top_level leaves out what something else there requires."""
    return [
        Package(name, number)
        for name, number, required in _ask(python)["distributions"]
        if not (only_top_level and required)
    ]


def providers(python: str) -> list[Package]:
    """List the providers whose SDKs are installed, with the versions that these SDKs want."""
    ours = python == sys.executable
    found = describe_environment.providers() if ours else _ask(python)["providers"]
    return [Package(name, number) for name, number in found]


@cache
def _ask(python: str) -> dict[str, Any]:
    if python == sys.executable:
        return describe_environment.describe()
    done = subprocess.run(
        [python, "-I", str(DESCRIBE)],
        capture_output=True,
        check=True,
        text=True,
        timeout=ASK_SECONDS,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
