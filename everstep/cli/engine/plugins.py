"""Requirements of the engine on this machine for a cloud of the twin or a real cloud.

For a cloud of the twin: its providers in the engine's home, and replacements for the programs that a kubeconfig of
that cloud runs to get a token, first on the engine's PATH. For a real cloud, all programs are
official; all missing requirements are reported together, before the engine fails on the first one.
"""

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError
from everstep.files import expand_user, write_atomically
from everstep.resources import in_clone


@dataclass(frozen=True)
class Cloud:
    """Requirements of one cloud on the machine that runs Pulumi.

    Attributes:
        name: display name.
        package: the module of its Pulumi SDK.
        extra: name of the extra of `everstep` that installs it, and of the make target in a clone.
        credential_plugin: exec credential plugin that kubeconfigs of this cloud run.
        credentials: environment variables or files in the home folder that may contain credentials.
    """

    name: str
    package: str
    extra: str
    credential_plugin: str
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
"""Clouds by the name of Pulumi's provider."""


# --- the twin's clouds --------------------------------------------------------------------------


def twin_clouds(workspace: Workspace, kubeconfig: Path, clouds: Sequence[str]) -> dict[str, str]:
    """Install the twin's providers, and return the environment variables for the engine.

    Args:
        workspace: workspace of the stack.
        kubeconfig: path of the twin's administrator kubeconfig, which may not exist yet.
        clouds: names of Pulumi's providers.

    Raises:
        EverstepError: the SDK of a cloud is not installed.
    """
    from cloudtwin.facade import install_provider

    programs = workspace.engine / "programs"
    for name in clouds:
        require_sdk(name)
        install_provider(workspace.engine / "home", name)
        _write_credential_plugin(programs / CLOUDS[name].credential_plugin, kubeconfig)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "CLOUDTWIN_NAME": workspace.twin,
        "CLOUDTWIN_STATE": str(workspace.state.parent),
    }


def _write_credential_plugin(path: Path, kubeconfig: Path) -> None:
    """Write the replacement of a cloud's credential plugin."""
    words = [
        sys.executable,
        "-P",
        "-m",
        "everstep.cli.engine.credential_plugin",
        path.name,
        str(kubeconfig),
    ]
    write_atomically(path, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', 0o700)


# --- a real cloud -------------------------------------------------------------------------------


def real_clouds(clouds: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """Return the official engine and its environment variables for real clouds.

    Home, login and backend belong to the user's own Pulumi.

    Raises:
        EverstepError: a requirement is missing; the error lists all missing requirements.
    """
    program = shutil.which("pulumi")
    missing_lines = [line for name in clouds for line in missing_requirements(CLOUDS[name])]
    if program is None or missing_lines:
        cloud_names = " and ".join(CLOUDS[name].name for name in clouds)
        raise EverstepError(
            f"prerequisites for {cloud_names} are missing on this machine",
            "\n".join(
                [*dict.fromkeys(missing_lines), "Or try the stack without an account: --twin"]
            ),
        )
    search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return Path(program), {"PATH": search_path}


def missing_requirements(cloud: Cloud) -> list[str]:
    """Return the missing prerequisites of a cloud on this machine, one line each with the fix."""
    return [
        *_missing_engine(),
        *_missing_sdk(cloud),
        *_missing_credentials(cloud),
        *_missing_credential_plugin(cloud),
    ]


def _missing_engine() -> list[str]:
    program = shutil.which("pulumi")
    if program is None:
        return ["Pulumi: not on PATH. Install the official one, which brings its own plugins."]
    host = Path(program).resolve().parent / "pulumi-language-python"
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    installed_plugins = home.glob(f"plugins/language-python-v*/{host.name}")
    if host.exists() or shutil.which(host.name) or any(installed_plugins):
        return []
    return [f"pulumi-language-python: not next to {program}. The official distribution has it."]


def has_sdk(cloud: Cloud) -> bool:
    """Return True if the cloud's SDK is installed, without importing it, which takes seconds."""
    return importlib.util.find_spec(cloud.package) is not None


def install_command(cloud: Cloud) -> str:
    """Return the command that installs the cloud's SDK, in a clone or for installed wheels."""
    if in_clone():
        return f"`make {cloud.extra}`"
    return f"`pip install 'everstep[local,{cloud.extra}]'`"


def _missing_sdk(cloud: Cloud) -> list[str]:
    if has_sdk(cloud):
        return []
    return [f"{cloud.package}: not installed. {install_command(cloud)} installs it."]


def _missing_credentials(cloud: Cloud) -> list[str]:
    if any(_exists(source) for source in cloud.credentials):
        return []
    variables = ", ".join(cloud.credentials)
    return [f"credentials for {cloud.name}: none found (looked at {variables})."]


def _exists(source: str) -> bool:
    if source.startswith("~"):
        return expand_user(source).exists()
    return bool(os.environ.get(source))


def _missing_credential_plugin(cloud: Cloud) -> list[str]:
    if shutil.which(cloud.credential_plugin):
        return []
    return [
        f"{cloud.credential_plugin}: not on PATH. Kubernetes clients run it to get a token, as the kubeconfig says."
    ]


def require_sdk(cloud: str) -> None:
    """Check that a cloud's SDK is installed.

    Raises:
        EverstepError: it is not installed; the error has the command that installs it.
    """
    if problems := _missing_sdk(CLOUDS[cloud]):
        requirement, _, fix = problems[0].partition(". ")
        raise EverstepError(f"this stack needs {requirement}", fix)
