"""Memory that this process, and thus a twin, may use: the host's, or less in a container with a limit.

A container sees the memory of the whole host in /proc/meminfo; its limit is in its cgroup. Limits of the parents apply,
too, as far up as the container sees them.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.nodes.linux.cgroups import ROOT

PROCESS = Path("/proc/self")
MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class _Files:
    """Names of the files of a memory cgroup, in one version of cgroups."""

    limit: str
    usage: str
    cache: str


_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Files("memory.max", "memory.current", "inactive_file")


def physical_bytes() -> int:
    """Return the memory of the host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def usable_bytes(root: Path = ROOT, process: Path = PROCESS) -> int:
    """Return the memory of the host, or the lowest limit of the process's cgroups if it is lower."""
    limits = (limit for limit, _ in _limits(root, process))
    return min([physical_bytes(), *limits])


def available_bytes(
    root: Path = ROOT, process: Path = PROCESS, meminfo: Path = MEMINFO
) -> int | None:
    """Return the memory that is available without swapping, within the limits of the process's cgroups.

    None: neither the host's memory nor a limit can be read.
    """
    host = [line for line in _lines(meminfo) if line.startswith("MemAvailable:")]
    amounts = [int(line.split()[1]) * 1024 for line in host]
    amounts += [limit - used for limit, used in _limits(root, process)]
    return max(0, min(amounts)) if amounts else None


def _limits(root: Path, process: Path) -> Iterator[tuple[int, int]]:
    """Yield the limit of each cgroup of the process that has one, and its used bytes without reclaimable cache."""
    is_version_2 = (root / "cgroup.controllers").exists()
    names = _V2 if is_version_2 else _V1
    top = root if is_version_2 else root / "memory"
    for folder in _cgroups(top, process, "" if is_version_2 else "memory"):
        limit = "".join(_lines(folder / names.limit))
        if limit.isdecimal():  # without a limit it is `max`
            yield int(limit), _used_bytes(folder, names)


def _cgroups(top: Path, process: Path, controller: str) -> list[Path]:
    """Return the process's cgroup and its parents; in a container, the path may begin above the visible hierarchy."""
    for line in _lines(process / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            folder = top / path.lstrip("/")
            parents = (parent for parent in folder.parents if parent.is_relative_to(top))
            return list(dict.fromkeys([folder, *parents, top]))
    return [top]


def _used_bytes(folder: Path, names: _Files) -> int:
    usage = "".join(_lines(folder / names.usage))
    cache = [line.split()[1] for line in _lines(folder / "memory.stat")
             if line.split()[0] == names.cache]  # fmt: skip
    return int(usage or 0) - sum(map(int, cache))


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; none if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
