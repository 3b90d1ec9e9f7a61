"""Installation of the stand-in plugins where the engine looks, unless the official ones are installed.

The engine looks on PATH (with a warning), next to its own binary, then in `plugins/` of
PULUMI_HOME. Only `plugins/` is written. Official plugins on PATH, next to the binary or in the
user's own Pulumi home take precedence.
"""

import os
import shutil
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.pulumi.launcher import write_launcher

KUBERNETES_VERSION = "4.34.2"  # the version that the SDK of requirements/runtime.txt requires
OFFICIAL_ONLY = "CLOUDTWIN_OFFICIAL_PLUGINS"
LANGUAGE_HOST = "pulumi-language-python"
PROVIDER = "pulumi-resource-kubernetes"


def install_plugins(home: Path, pulumi: Path) -> dict[str, str]:
    """Make the Python language host and the `kubernetes` provider available to the engine.

    Args:
        home: the PULUMI_HOME of the engine; created if absent.
        pulumi: the `pulumi` program.

    Returns:
        Environment variables to add when running `pulumi`.

    Raises:
        TwinError: CLOUDTWIN_OFFICIAL_PLUGINS=1, but an official plugin is missing.
    """
    plugins = home / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    _install_language_host(plugins, pulumi)
    _install_provider(plugins)
    return {
        "PULUMI_HOME": str(home),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }


def _install_language_host(plugins: Path, pulumi: Path) -> None:
    if (pulumi.resolve().parent / LANGUAGE_HOST).exists() or shutil.which(LANGUAGE_HOST):
        return
    _require_stand_in_allowed(LANGUAGE_HOST, f"next to {pulumi} or on PATH")
    # Imported late: the kubernetes provider imports this module too, and needs no toolchain.
    from cloudtwin.toolchain.binaries import PROGRAMS

    version = PROGRAMS["pulumi"].version
    folder = plugins / f"language-python-v{version}"
    _create_folder(folder)
    write_launcher(folder / LANGUAGE_HOST, f"cloudtwin.pulumi {version}")


def _install_provider(plugins: Path) -> None:
    if shutil.which(PROVIDER):
        return
    stand_in = plugins / f"resource-kubernetes-v{KUBERNETES_VERSION}"
    for folder in plugins.glob("resource-kubernetes-v*"):
        if (folder / PROVIDER).is_symlink() and not (folder / PROVIDER).exists():
            shutil.rmtree(folder) if not folder.is_symlink() else folder.unlink()
    official_folder = _official_provider(plugins)
    if official_folder is None:
        _require_stand_in_allowed(
            PROVIDER, f"on PATH or, from version {KUBERNETES_VERSION}, in ~/.pulumi/plugins"
        )
        _create_folder(stand_in)
        write_launcher(stand_in / PROVIDER, "cloudtwin.providers kubernetes")
        return
    if stand_in.name != official_folder.name and _is_stand_in(stand_in / PROVIDER):
        shutil.rmtree(stand_in)
    if official_folder.parent != plugins:
        _link_files(official_folder, plugins / official_folder.name)


def _official_provider(plugins: Path) -> Path | None:
    """Return the folder of the newest official plugin that fits the SDK, or None."""
    providers = [
        folder
        for parent in (Path.home() / ".pulumi" / "plugins", plugins)
        for folder in parent.glob("resource-kubernetes-v*")
        if (folder / PROVIDER).exists()
        and not _is_stand_in(folder / PROVIDER)
        and _fits_sdk(_version(folder))
    ]
    return max(providers, key=_version, default=None)


def _version(folder: Path) -> tuple[int, ...]:
    """Return a plugin folder's version; a pre-release or an invalid one is older than any other."""
    text = folder.name.rpartition("-v")[2]
    return tuple(map(int, text.split("."))) if text.replace(".", "").isdigit() else ()


def _fits_sdk(version: tuple[int, ...]) -> bool:
    """Return True if the engine accepts a version for the SDK: not older, and with the same major version."""
    required = tuple(map(int, KUBERNETES_VERSION.split(".")))
    return version[:1] == required[:1] and version >= required


def _is_stand_in(program: Path) -> bool:
    if not program.exists():
        return False
    with program.open("rb") as file:
        return b"-m cloudtwin." in file.read(4096)


def _require_stand_in_allowed(program: str, location: str) -> None:
    if os.environ.get(OFFICIAL_ONLY) == "1":
        raise TwinError(
            f"{OFFICIAL_ONLY}=1 requires the official {program}, which is not {location}.",
            f"Install it there, or unset {OFFICIAL_ONLY} to use the stand-in.",
        )


def _link_files(official_folder: Path, folder: Path) -> None:
    """Link the files of an official plugin into a folder.

    The folder itself must be real: the engine skips plugin folders that are symbolic links.
    """
    _create_folder(folder)
    for file in official_folder.iterdir():
        link = folder / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file)


def _create_folder(folder: Path) -> None:
    """Create a folder; replace a symbolic link of this name."""
    if folder.is_symlink():
        folder.unlink()
    folder.mkdir(exist_ok=True)
