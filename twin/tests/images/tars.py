"""Tar files of a few bytes."""

import io
import tarfile
from pathlib import Path


def write_tar(path: Path, **files: bytes) -> Path:
    """Write a tar file with files, given as name=content; return its path."""
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path
