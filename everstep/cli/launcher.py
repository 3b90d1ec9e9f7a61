"""`everstep launch` without the command line's packages: an image needs only torch and this distribution.

The launcher replaces this process, so that signals reach it and it does not keep the command line's modules in memory.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from everstep.elastic.launch.local_etcd import PROGRAM_VARIABLE
from everstep.elastic.launch.options import parse, requests_help
from everstep.errors import EverstepError


def run_launcher(arguments: Sequence[str]) -> NoReturn:
    """Replace this process with a launcher."""
    if not _finds_etcd() and _needs_etcd(arguments):
        _use_etcd_of_twin()
    os.execv(  # noqa: S606  no shell needed
        sys.executable, [sys.executable, "-m", "everstep.elastic.launch", *arguments]
    )


def _finds_etcd() -> bool:
    return bool(os.environ.get(PROGRAM_VARIABLE) or shutil.which("etcd"))


def _needs_etcd(arguments: Sequence[str]) -> bool:
    """Return True if the launcher would start an etcd; the launcher itself reports errors of the command line."""
    if requests_help(arguments):
        return False
    with contextlib.suppress(EverstepError):
        options = parse(arguments)
        return options.supervised and options.endpoint is None
    return False


def _use_etcd_of_twin() -> None:
    """Use the etcd of the twin's toolchain if the twin is installed; build it the first time."""
    try:
        from cloudtwin.facade import TwinError, ensure_tools

        from everstep.cli.console import progress
        from everstep.cli.twin_settings import configure_twin
    except ImportError:  # the launcher states how to install etcd
        return
    configure_twin()
    with contextlib.suppress(TwinError, OSError):
        os.environ[PROGRAM_VARIABLE] = str(ensure_tools(["etcd"], progress())["etcd"])
