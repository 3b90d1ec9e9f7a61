"""A containerd that ignores SIGTERM; a `sleep` process stands in for it."""

import subprocess
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.images import golden

from twin.tests.waiting import wait_until

IGNORES_SIGTERM = ("env", "--ignore-signal=TERM", "sh", "-c", "exec sleep 60")


def test_a_containerd_that_has_to_be_killed_is_an_error_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes: list[subprocess.Popen[bytes]] = []

    def wait(process: "subprocess.Popen[bytes]", log: Path) -> None:
        comm = Path(f"/proc/{process.pid}/comm")
        wait_until(lambda: comm.read_text() == "sleep\n", "the program runs", 60)
        log.write_text("no space left on device")
        processes.append(process)

    monkeypatch.setattr(golden, "KILLED_WITH_PARENT", ())
    monkeypatch.setattr(golden, "OWN_MOUNTS", IGNORES_SIGTERM)
    monkeypatch.setattr(golden, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(golden, "_wait", wait)

    with (
        pytest.raises(TwinError, match=r"did not end within 0\.1 s") as error,
        golden._containerd(tmp_path / "root"),
    ):
        pass

    assert error.value.fix == "Free some disk space."
    assert processes[0].returncode == -9
