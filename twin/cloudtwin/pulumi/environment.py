"""The Python environment of a program: interpreter, distributions and providers.

A program may have its own virtual environment (runtime option `virtualenv`). The interpreter of that
environment describes it, once.
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

from cloudtwin.pulumi import describe_environment

DESCRIBE_SECONDS = 60
DESCRIBE_SCRIPT = Path(describe_environment.__file__)


class NoInterpreterError(Exception):
    """Error for runtime options that name a virtual environment without an interpreter."""


@dataclass(frozen=True)
class InstalledPackage:
    """A Python distribution, or a Pulumi provider whose SDK is installed."""

    name: str
    version: str


def interpreter(info: ProgramInfo) -> str:
    """Return the path of the interpreter for a program.

    Args:
        info: location of the program; its option `virtualenv` is a path from the project's root.

    Raises:
        NoInterpreterError: the option names a folder without an interpreter.
    """
    virtualenv = dict(info.options).get("virtualenv") if info.HasField("options") else None
    if not virtualenv:
        return sys.executable
    python = Path(info.root_directory) / str(virtualenv) / "bin" / "python"
    if not os.access(python, os.X_OK):
        raise NoInterpreterError(
            f"Pulumi.yaml requires the virtual environment {str(virtualenv)!r}, but {python} cannot be "
            f"run. Create it with: python3 -m venv {python.parent.parent}"
        )
    return str(python)


def version(python: str) -> str:
    """Return the version of an interpreter, such as 3.11.2."""
    if python == sys.executable:  # every command calls this; listing distributions is slow
        return platform.python_version()
    return str(_describe(python)["version"])


def distributions(python: str, *, only_top_level: bool) -> list[InstalledPackage]:
    """Return the installed distributions; with only_top_level, only distributions that no other requires."""
    return [
        InstalledPackage(name, number)
        for name, number, required in _describe(python)["distributions"]
        if not (only_top_level and required)
    ]


def providers(python: str) -> list[InstalledPackage]:
    """Return the providers whose SDKs are installed, with the versions that the SDKs require."""
    is_this_python = python == sys.executable
    packages = (
        describe_environment.providers() if is_this_python else _describe(python)["providers"]
    )
    return [InstalledPackage(name, number) for name, number in packages]


@cache
def _describe(python: str) -> dict[str, Any]:
    if python == sys.executable:
        return describe_environment.describe()
    result = subprocess.run(
        [python, "-I", str(DESCRIBE_SCRIPT)],
        capture_output=True,
        check=True,
        text=True,
        timeout=DESCRIBE_SECONDS,
    )
    description: dict[str, Any] = json.loads(result.stdout)
    return description
