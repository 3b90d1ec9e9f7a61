"""Puts the stand-in plugins where the engine looks, if the official ones are absent.

The engine looks on PATH (and warns), beside its own binary, then in `plugins/` of PULUMI_HOME. The
last is ours to write: nothing of the user's is touched, and what the user has installed beside the
binary or on PATH wins.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

from everstep.errors import EverstepError

KUBERNETES_VERSION = "4.34.2"  # the version that the SDK of requirements/runtime.txt asks for
LANGUAGE_VERSION = "3.259.0"
OFFICIAL = "EVERSTEP_OFFICIAL_PLUGINS"


def install_plugins(home: Path, pulumi: Path) -> dict[str, str]:
    """Make the Python language host and the `kubernetes` provider findable by the engine.

    Args:
        home: the PULUMI_HOME that the engine will run with; created if need be.
        pulumi: the `pulumi` program.

    Returns:
        Environment variables to add when running `pulumi`.

    Raises:
        EverstepError: EVERSTEP_OFFICIAL_PLUGINS=1, but an official plugin is missing.
    """
    plugins = home / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    if not _beside(pulumi, "pulumi-language-python"):
        _require_stand_in_allowed("pulumi-language-python", f"beside {pulumi} or on PATH")
        _launcher(
            plugins / f"language-python-v{LANGUAGE_VERSION}",
            "pulumi-language-python",
            "language",
        )
    _provide_kubernetes(plugins)
    return {
        "PULUMI_HOME": str(home),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }


def _provide_kubernetes(plugins: Path) -> None:
    program, ours = (
        "pulumi-resource-kubernetes",
        plugins / f"resource-kubernetes-v{KUBERNETES_VERSION}",
    )
    if shutil.which(program):
        return
    official = _official_kubernetes(plugins)
    if official is None:
        _require_stand_in_allowed(
            program, f"on PATH or, from version {KUBERNETES_VERSION}, in ~/.pulumi/plugins"
        )
        _launcher(ours, program, "kubernetes")
    elif official.parent != plugins:
        link = plugins / official.name
        if ours.exists() and _is_stand_in(ours / program):
            shutil.rmtree(ours)
        if not link.exists():
            link.symlink_to(official, target_is_directory=True)


def _official_kubernetes(plugins: Path) -> Path | None:
    """Find the newest official plugin that serves our SDK, here or in the user's own Pulumi home."""
    found = [
        folder
        for place in (plugins, Path.home() / ".pulumi" / "plugins")
        for folder in place.glob("resource-kubernetes-v*")
        if (folder / "pulumi-resource-kubernetes").exists()
        and not _is_stand_in(folder / "pulumi-resource-kubernetes")
        and _serves(_version(folder))
    ]
    return max(found, key=_version, default=None)


def _version(folder: Path) -> tuple[int, ...]:
    """Read a plugin folder's version; a pre-release or an unreadable one is older than any."""
    text = folder.name.rpartition("-v")[2]
    return tuple(map(int, text.split("."))) if text.replace(".", "").isdigit() else ()


def _serves(version: tuple[int, ...]) -> bool:
    """Tell whether the engine would take a version for our SDK: not older, and of the same major."""
    wanted = tuple(map(int, KUBERNETES_VERSION.split(".")))
    return version[:1] == wanted[:1] and version >= wanted


def _is_stand_in(program: Path) -> bool:
    with program.open("rb") as file:
        return b"twin.pulumi" in file.read(4096)


def _beside(pulumi: Path, program: str) -> bool:
    return (pulumi.resolve().parent / program).exists() or shutil.which(program) is not None


def _require_stand_in_allowed(program: str, where: str) -> None:
    if os.environ.get(OFFICIAL) == "1":
        raise EverstepError(
            f"{OFFICIAL}=1 asks for the official {program}, which is not {where}.",
            f"Install it there, or unset {OFFICIAL} to use the stand-in.",
        )


def _launcher(folder: Path, program: str, plugin: str) -> None:
    """Write a script that becomes the plugin: exec keeps the engine its parent.

    -P keeps the program's own folder, which is the working directory, off the plugin's module path.
    """
    if folder.is_symlink():  # to an official plugin that is there no more
        folder.unlink()
    folder.mkdir(exist_ok=True)
    script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m twin.pulumi {plugin} "$@"\n'
    target, aside = folder / program, folder / f".{program}.{os.getpid()}"
    if target.exists() and target.read_text() == script:
        return
    aside.write_text(script)
    aside.chmod(0o755)
    aside.replace(target)
