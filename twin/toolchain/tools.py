"""Where the programs of the twin are: on PATH in the right version, else built once."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from everstep.progress import Progress
from twin.paths import cache_directory
from twin.toolchain import cache, gobuild
from twin.toolchain.binaries import MODULES, PROGRAMS, Module, reported_version, will_do

PROBE_SECONDS = 10.0
GO_SETTINGS = ("GOFLAGS", "GOOS", "GOARCH", "GOAMD64", "GOEXPERIMENT")  # they shape what is built
FORMAT = "1"  # raise it when the same inputs should be built anew


def ensure_tools(
    names: Iterable[str], progress: Progress, *, static: bool = False
) -> dict[str, Path]:
    """Return the path of each program, building what is missing.

    Args:
        names: programs, keys of `binaries.PROGRAMS`.
        progress: told of every build.
        static: take none from PATH: what goes into an image must need no library of this host.

    Raises:
        EverstepError: Go is missing or too old, or network, disk or memory fail.
        ValueError: a name that the toolchain does not know.
    """
    wanted = list(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in PROGRAMS]:
        raise ValueError(f"no such program in the toolchain: {', '.join(unknown)}")
    found = {} if static else {name: path for name in wanted if (path := on_path(name))}
    lacking = {name: PROGRAMS[name].name for name in wanted if name not in found}
    folders = _ensure_modules(
        [module for module in MODULES if module.name in lacking.values()], progress
    )
    built = {name: folders[module] / name for name, module in lacking.items()}
    return {name: found.get(name) or built[name] for name in wanted}


def on_path(name: str) -> Path | None:
    """Return where PATH has this program in a version that will do, or None."""
    module = PROGRAMS[name]
    program = shutil.which(name) if module.probe else None
    if module.probe is None or program is None:
        return None
    try:
        asked = subprocess.run(
            [program, *module.probe.arguments],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
            env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = reported_version(asked.stdout)
    fits = asked.returncode == 0 and will_do(version, module.version, module.probe.precision)
    return Path(program) if fits else None


def module_key(module: Module, go_version: str) -> str:
    """Return the key of a module's build: all that shapes its programs."""
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
    folder = cache_directory().absolute() / "toolchain"
    return {module.name: _ensure_module(module, go, folder, progress) for module in modules}


def _ensure_module(module: Module, go: gobuild.Go, folder: Path, progress: Progress) -> Path:
    make = partial(_make, module, go, progress)
    return cache.ensure(folder, module.name, module_key(module, go.version), progress, make)


def _make(module: Module, go: gobuild.Go, progress: Progress, staging: Path) -> None:
    gobuild.build(module, go, staging, progress)
