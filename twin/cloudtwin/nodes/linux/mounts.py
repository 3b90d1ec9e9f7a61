"""The mount table of the kernel."""

from pathlib import Path


def mount_points_below(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """Return the mount points in a folder, including itself, the deepest first."""
    targets = (_unescape(line.split()[4]) for line in mountinfo.read_text().splitlines())
    mount_points = {Path(target) for target in targets if Path(target).is_relative_to(folder)}
    return sorted(mount_points, key=lambda target: len(target.parts), reverse=True)


def _unescape(target: str) -> str:
    """Decode the kernel's escapes of blanks, tabs, line ends and backslashes in a path."""
    return target.encode().decode("unicode_escape").encode("latin-1").decode()
