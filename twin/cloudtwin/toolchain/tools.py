"""The programs of the twin: found on PATH in the right version, or built once."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.paths import cache_directory
from cloudtwin.progress import Progress
from cloudtwin.toolchain import cache, gobuild
from cloudtwin.toolchain.binaries import MODULES, PROGRAMS, Module, is_accepted, reported_version

VERSION_PROBE_SECONDS = 10.0
# Variables that change the result of a build.
GO_SETTINGS = ("GOFLAGS", "GOOS", "GOARCH", "GOAMD64", "GOEXPERIMENT")
FORMAT = "1"  # raise it to rebuild from unchanged inputs


def ensure_tools(
    names: Iterable[str], progress: Progress, *, static: bool = False
) -> dict[str, Path]:
    """Return the path of each program; build missing ones.

    Args:
        names: programs, keys of `binaries.PROGRAMS`.
        progress: receiver of the steps.
        static: True to ignore PATH: a program for an image must not need libraries of this host.

    Raises:
        TwinError: Go is missing or too old, or network, disk or memory fail.
        ValueError: a name is not a program of the toolchain.
    """
    programs = list(dict.fromkeys(names))
    if unknown := [name for name in programs if name not in PROGRAMS]:
        raise ValueError(f"not a program of the toolchain: {', '.join(unknown)}")
    paths = {} if static else {name: path for name in programs if (path := on_path(name))}
    missing = {name: PROGRAMS[name].name for name in programs if name not in paths}
    folders = _ensure_modules(
        [module for module in MODULES if module.name in missing.values()], progress
    )
    built_paths = {name: folders[module] / name for name, module in missing.items()}
    return {name: paths.get(name) or built_paths[name] for name in programs}


def on_path(name: str) -> Path | None:
    """Return the path of a program if PATH has it in an accepted version, else None."""
    module = PROGRAMS[name]
    program = shutil.which(name) if module.probe else None
    if module.probe is None or program is None:
        return None
    try:
        result = subprocess.run(
            [program, *module.probe.arguments],
            capture_output=True,
            text=True,
            timeout=VERSION_PROBE_SECONDS,
            check=False,
            env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = reported_version(result.stdout)
    is_suitable = result.returncode == 0 and is_accepted(
        version, module.version, module.probe.precision
    )
    return Path(program) if is_suitable else None


def built(name: str) -> Path | None:
    """Return the path of a program if it is built from the current sources, else None."""
    module = PROGRAMS[name]
    try:
        key = module_key(module, gobuild.find_go().version)
    except TwinError:
        return None
    path = _builds_folder() / f"{module.name}-{key}" / name
    return path if path.exists() else None


def module_key(module: Module, go_version: str) -> str:
    """Return the cache key of a module's build: Go version, settings, flags and sources."""
    sources = [
        path for path in sorted(module.folder.iterdir()) if path.suffix in {".mod", ".sum", ".go"}
    ]
    files = [part for path in sources for part in (path.name, path.read_bytes())]
    settings = [platform.machine(), *(os.environ.get(name, "") for name in GO_SETTINGS)]
    return cache.digest([FORMAT, go_version, *settings, *gobuild.flags(module), *files])


def _ensure_modules(modules: list[Module], progress: Progress) -> dict[str, Path]:
    if not modules:
        return {}
    go = gobuild.find_go()
    return {module.name: _ensure_module(module, go, progress) for module in modules}


def _ensure_module(module: Module, go: gobuild.Go, progress: Progress) -> Path:
    make = partial(_make, module, go, progress)
    key = module_key(module, go.version)
    return cache.ensure(_builds_folder(), module.name, key, progress, make)


def _builds_folder() -> Path:
    return cache_directory() / "toolchain"


def _make(module: Module, go: gobuild.Go, progress: Progress, staging: Path) -> None:
    gobuild.build(module, go, staging, progress)
