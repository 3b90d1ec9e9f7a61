"""Mounts, in a mount namespace of a child process."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.twin

PROGRAM = """
import errno, sys
from pathlib import Path
from cloudtwin.nodes.linux import syscalls
from cloudtwin.nodes.linux.syscalls import Mount, Namespace

source, target = Path(sys.argv[1]) / "source", Path(sys.argv[1]) / "target"
syscalls.unshare(Namespace.MOUNT)
syscalls.mount("none", Path("/"), flags=Mount.PRIVATE | Mount.RECURSIVE)
(source / "below").mkdir(parents=True)
target.mkdir()
syscalls.mount("tmpfs", source / "below", "tmpfs")
syscalls.bind(source, target, read_only=True, recursive=True)
for folder in (target, target / "below"):
    try:
        (folder / "file").write_text("x")
    except OSError as error:
        print(errno.errorcode[error.errno])
    else:
        print("written")
(source / "below" / "file").write_text("x")
print("source is writable")
"""


def test_a_recursive_read_only_mount_protects_the_mounts_below_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)

    assert result.stdout.split("\n")[:-1] == ["EROFS", "EROFS", "source is writable"], result.stderr
