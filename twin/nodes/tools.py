"""The programs a twin runs, from the toolchain."""

from pathlib import Path

from everstep.progress import Progress
from twin.nodes.components import PROGRAMS
from twin.nodes.records import MACHINE_PROGRAMS
from twin.toolchain import ensure_packages, ensure_tools


def control_plane_tools(progress: Progress) -> dict[str, Path]:
    """Return the programs of a control plane, built where they are missing."""
    return ensure_tools(PROGRAMS, progress)


def machine_tools(progress: Progress) -> dict[str, Path]:
    """Return the programs of a machine, built where they are missing; Debian's are installed."""
    ensure_packages(progress)
    return ensure_tools(MACHINE_PROGRAMS, progress)
