"""The kernel's mount table."""

import os
from pathlib import Path

from cloudtwin.nodes.linux.mounts import mount_points_below

LINE = b"36 35 98:0 / %s rw,noatime master:1 - ext3 /dev/root rw\n"


def test_mount_points_in_a_folder_are_found_deepest_first(tmp_path: Path) -> None:
    targets = [b"/twin", b"/twin/a\\040b", b"/twin/a\\040b/\\134", b"/twin-2", b"/other"]
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_bytes(b"".join(LINE % target for target in targets))

    assert mount_points_below(Path("/twin"), mountinfo) == [
        Path("/twin/a b/\\"), Path("/twin/a b"), Path("/twin"),
    ]  # fmt: skip


def test_paths_of_the_host_may_be_any_bytes(tmp_path: Path) -> None:
    targets = [b"/media/\xff", "/media/a\u2028b".encode(), b"/twin/\xff", "/twin/ü".encode()]
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_bytes(b"".join(LINE % target for target in targets))

    assert set(mount_points_below(Path("/twin"), mountinfo)) == {
        Path(os.fsdecode(b"/twin/\xff")), Path("/twin/ü"),
    }  # fmt: skip
