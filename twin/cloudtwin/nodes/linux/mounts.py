"""The mount table of the kernel."""

import os
import re
from pathlib import Path


def mount_points_below(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """Return the mount points in a folder, including the folder itself, deepest first."""
    # Bytes: the host may have mounts whose paths are not valid text.
    lines = mountinfo.read_bytes().split(b"\n")
    targets = (Path(os.fsdecode(_unescape(line.split(b" ")[4]))) for line in lines if line)
    mount_points = {target for target in targets if target.is_relative_to(folder)}
    return sorted(mount_points, key=lambda target: len(target.parts), reverse=True)


def _unescape(target: bytes) -> bytes:
    """Decode the kernel's escapes of spaces, tabs, newlines and backslashes in a path."""
    return re.sub(rb"\\([0-7]{3})", lambda escape: bytes([int(escape[1], 8)]), target)
