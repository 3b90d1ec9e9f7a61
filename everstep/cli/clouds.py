"""What the engine needs beyond itself for a cloud: the twin's, or the real one.

The twin's: stand-in providers in the engine's home, and stand-ins of the programs by which a
kubeconfig of that cloud asks for a token, first on the engine's PATH. The real one: everything
official; what of it is missing is said at once, before the engine fails on the first of it.
"""

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.cli.workspace import Workspace, write_whole
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from twin.nodes import Twin

BACKEND = ("PULUMI_HOME", "PULUMI_BACKEND_URL")
"""Variables by which a user says where their own Pulumi keeps things."""


@dataclass(frozen=True)
class Cloud:
    """What one cloud asks of the machine that a stack is brought up from.

    Attributes:
        name: as people call it.
        package: the module of its Pulumi SDK.
        target: what `make` is told to install that.
        token_program: what a kubeconfig of this cloud runs to get a token.
        credentials: variables or files below the home folder, any of which may hold credentials.
    """

    name: str
    package: str
    target: str
    token_program: str
    credentials: tuple[str, ...]


CLOUDS = {
    "aws": Cloud(
        "AWS",
        "pulumi_aws",
        "aws",
        "aws",
        ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ROLE_ARN", "~/.aws/config", "~/.aws/credentials"),
    ),
    "azure-native": Cloud(
        "Azure",
        "pulumi_azure_native",
        "azure",
        "kubelogin",
        ("ARM_CLIENT_ID", "ARM_USE_OIDC", "ARM_USE_MSI", "~/.azure/azureProfile.json"),
    ),
}
"""By the name of Pulumi's provider."""


# --- the twin's clouds --------------------------------------------------------------------------


def of_twin(workspace: Workspace, kubeconfig: Path, clouds: Sequence[str]) -> dict[str, str]:
    """Make the twin's clouds findable by the engine; give the variables to run it with.

    Args:
        workspace: the stack's.
        kubeconfig: an administrator's of the twin, whether it is there yet or not.
        clouds: names of Pulumi's providers.

    Raises:
        EverstepError: the SDK of a cloud is not installed.
    """
    from twin.clouds import install

    programs = workspace.engine / "programs"
    for name in clouds:
        require_sdk(name)
        install(workspace.engine / "home", name)
        _write_token_program(programs / CLOUDS[name].token_program, kubeconfig)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "EVERSTEP_TWIN": workspace.twin,
        "EVERSTEP_STATE": str(workspace.state.parent),
    }


def _write_token_program(path: Path, kubeconfig: Path) -> None:
    """Write the stand-in of a cloud's program for tokens."""
    words = [sys.executable, "-P", "-m", "everstep.cli.token_program", path.name, str(kubeconfig)]
    write_whole(path, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', 0o700)


def volume(twin: "Twin") -> Path | None:
    """The folder of the twin's shared disk that holds the stack's volume; None before there is one."""
    from twin.nodes import files

    volumes = files.read_json(twin.layout.volumes) or {}
    folders = sorted({str(entry["folder"]) for entry in volumes.values()})
    return twin.shared / folders[0] if folders else None


# --- a real cloud -------------------------------------------------------------------------------


def real(clouds: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """Give the official engine and the variables to run it with against real clouds.

    It works in the user's own Pulumi home, whose plugins are official, and keeps the state where
    PULUMI_BACKEND_URL says, if it says so.

    Raises:
        EverstepError: something is missing; everything that is, is named at once.
    """
    program = shutil.which("pulumi")
    lacking = [line for name in clouds for line in missing(CLOUDS[name])]
    if program is None or lacking:
        named = " and ".join(CLOUDS[name].name for name in clouds)
        raise EverstepError(
            f"{named} cannot be reached from here yet",
            "\n".join([*dict.fromkeys(lacking), "Or try the stack without an account: --twin"]),
        )
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    own = {name: os.environ[name] for name in BACKEND if name in os.environ}
    return Path(program), {"PULUMI_HOME": str(Path.home() / ".pulumi"), **own, "PATH": search}


def missing(cloud: Cloud) -> list[str]:
    """What stands between this machine and a cloud, one line each, with what to do about it."""
    return [
        *_missing_engine(),
        *_missing_sdk(cloud),
        *_missing_credentials(cloud),
        *_missing_token_program(cloud),
    ]


def _missing_engine() -> list[str]:
    program = shutil.which("pulumi")
    if program is None:
        return ["Pulumi: not on PATH. Install the official one, which brings its own plugins."]
    host = Path(program).resolve().parent / "pulumi-language-python"
    if host.exists() or shutil.which(host.name):
        return []
    return [f"pulumi-language-python: not beside {program}. The official distribution has it."]


def has_sdk(cloud: Cloud) -> bool:
    """Whether the cloud's SDK can be imported, without doing so: that would take seconds."""
    return importlib.util.find_spec(cloud.package) is not None


def _missing_sdk(cloud: Cloud) -> list[str]:
    if has_sdk(cloud):
        return []
    return [f"{cloud.package}: not installed. `make {cloud.target}` installs it."]


def _missing_credentials(cloud: Cloud) -> list[str]:
    if any(_holds(place) for place in cloud.credentials):
        return []
    named = ", ".join(cloud.credentials)
    return [f"credentials for {cloud.name}: none found (looked at {named})."]


def _holds(place: str) -> bool:
    if place.startswith("~"):
        return Path(place).expanduser().exists()
    return bool(os.environ.get(place))


def _missing_token_program(cloud: Cloud) -> list[str]:
    if shutil.which(cloud.token_program):
        return []
    return [f"{cloud.token_program}: not on PATH. Kubernetes asks it for a token."]


def require_sdk(cloud: str) -> None:
    """Make sure that the program can import a cloud's SDK.

    Raises:
        EverstepError: it is not installed; with what installs it.
    """
    if lacking := _missing_sdk(CLOUDS[cloud]):
        what, _, remedy = lacking[0].partition(". ")
        raise EverstepError(f"this stack needs {what}", remedy)
