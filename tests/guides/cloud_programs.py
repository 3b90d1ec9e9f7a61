"""Stand-ins for `aws`, `az` and `kubelogin` that support the guides: they write a kubeconfig and get tokens.

python -m tests.guides.cloud_programs aws KUBECONFIG_OF_THE_TWIN eks update-kubeconfig --name NAME --region REGION
"""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from everstep.cli.engine import credential_plugin
from everstep.cli.engine.credential_plugin import AKS_SERVER, value_of

PROGRAMS = ("aws", "az", "kubelogin")
SUPPORTED = frozenset(
    {
        ("aws", "eks", "update-kubeconfig"),
        ("az", "aks", "get-credentials"),
        ("kubelogin", "convert-kubeconfig"),
    }
)
"""The commands that a user types; the others get tokens for a kubeconfig."""

ROOT = Path(__file__).resolve().parents[2]
USAGE_ERROR = 2


def install(folder: Path, kubeconfig: Path) -> None:
    """Write the programs into a folder.

    Args:
        folder: created if absent.
        kubeconfig: path of the twin's kubeconfig, which may not exist yet.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        command = [sys.executable, "-m", "tests.guides.cloud_programs", name, str(kubeconfig)]
        script = f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.join(command)} "$@"\n'
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)


def login_of(program: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the `exec` section of the kubeconfig that a cloud's program writes."""
    arguments_by_program = {
        "aws": ["eks", "get-token", "--cluster-name", str(value_of("--name", arguments))],
        "az": ["get-token", "--login", "devicecode", "--server-id", AKS_SERVER],
    }
    return {
        "apiVersion": credential_plugin.API_VERSION,
        "command": "aws" if program == "aws" else "kubelogin",
        "args": arguments_by_program[program],
        "interactiveMode": "IfAvailable",
    }


def write_kubeconfig(program: str, twin: Path, arguments: Sequence[str]) -> None:
    """Write the kubeconfig of a cluster, without a credential, where the real program writes it."""
    content = yaml.safe_load(twin.read_text())
    (user,) = content["users"]
    user["user"] = {"exec": login_of(program, arguments)}
    path = Path(value_of("--file", arguments) or os.environ["KUBECONFIG"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))


def convert_kubeconfig(arguments: Sequence[str]) -> None:
    """Set the login method in the kubeconfig at $KUBECONFIG."""
    path = Path(os.environ["KUBECONFIG"])
    content = yaml.safe_load(path.read_text())
    exec_arguments = content["users"][0]["user"]["exec"]["args"]
    exec_arguments[exec_arguments.index("--login") + 1] = value_of("--login", arguments)
    path.write_text(yaml.safe_dump(content))


def main(program: str, twin: Path, arguments: Sequence[str]) -> int:
    """Run a stand-in and return its exit code."""
    if (program, *arguments[:1]) in SUPPORTED:
        convert_kubeconfig(arguments)
        return 0
    if (program, *arguments[:2]) in SUPPORTED:
        write_kubeconfig(program, twin, arguments)
        return 0
    if program in credential_plugin.REQUIRED:
        return credential_plugin.main(program, twin, arguments)
    print(f"{program}: this stand-in does not support {json.dumps(arguments)}", file=sys.stderr)
    return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
