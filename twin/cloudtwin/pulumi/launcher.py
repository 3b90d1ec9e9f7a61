"""The script that the engine starts as a plugin."""

import os
import shlex
import sys
from pathlib import Path


def write_launcher(target: Path, command: str) -> None:
    """Write a script that becomes the plugin; `exec` keeps the engine as its parent.

    -P keeps the working directory, which is the program's folder, off the plugin's module path.

    Args:
        target: path of the script, in an existing folder; a symbolic link is replaced.
        command: name and arguments of the Python module.
    """
    script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m {command} "$@"\n'
    if not target.is_symlink() and target.exists() and target.read_bytes() == script.encode():
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_text(script)
    temporary.chmod(0o755)
    temporary.replace(target)
