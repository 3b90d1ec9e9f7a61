"""Puts a cloud's stand-in provider where the engine looks."""

import os
import shlex
import sys
from pathlib import Path

from everstep.errors import EverstepError
from twin.clouds.wire.store import SDKS, sdk_version

CLOUDS = tuple(SDKS)


def install(home: Path, cloud: str) -> None:
    """Make the provider of a cloud findable by the engine.

    An official plugin that stands in the same home is replaced: who asks for the twin's cloud must
    not reach a real account.

    Args:
        home: the PULUMI_HOME that the engine will run with; created if need be.
        cloud: aws or azure-native.

    Raises:
        EverstepError: there is no such cloud, or its SDK is not installed.
    """
    if cloud not in CLOUDS:
        raise EverstepError(f"The twin has no cloud {cloud!r}.", f"It has: {', '.join(CLOUDS)}.")
    folder = home / "plugins" / f"resource-{cloud}-v{sdk_version(cloud)}"
    if folder.is_symlink():
        folder.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / f"pulumi-resource-{cloud}", cloud)


def _write(target: Path, cloud: str) -> None:
    """Write a script that becomes the provider; -P keeps the program's folder off its module path."""
    script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m twin.clouds {cloud} "$@"\n'
    if target.exists() and target.read_bytes() == script.encode():
        return
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    aside.write_text(script)
    aside.chmod(0o755)
    aside.replace(target)
