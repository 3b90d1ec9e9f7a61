"""Requirements of a twin on its host, and the port of its relay."""

import socket
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.nodes.control_plane import relay
from cloudtwin.nodes.linux import requirements

ALL_CAPABILITIES = 0x1FFFFFFFFFF


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """Return the /proc folder of a process with every capability."""
    (tmp_path / "ns").mkdir()
    for name in requirements.NAMESPACES:
        (tmp_path / "ns" / name).touch()
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{ALL_CAPABILITIES:016x}\n")
    return tmp_path


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    """Return the mount point of writable cgroups."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    (folder / "cgroup.controllers").touch()
    return folder


def test_a_host_with_read_only_cgroups_is_refused(
    process: Path, cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.access", lambda *_arguments: False)

    assert requirements.missing_requirements(process, cgroups) == [
        f"writable cgroups (read-only cgroups: {cgroups})"
    ]


def test_every_missing_requirement_is_named(process: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (process / "ns" / "pid").unlink()
    (process / "status").write_text(f"CapEff:\t{ALL_CAPABILITIES & ~(1 << 21):016x}\n")

    assert requirements.missing_requirements(process) == ["root", "pid namespaces", "CAP_SYS_ADMIN"]


@pytest.mark.parametrize(
    ("capability", "bit"),  # bits of capability.h
    [("CAP_KILL", 5), ("CAP_NET_ADMIN", 12), ("CAP_SYS_CHROOT", 18), ("CAP_SYS_ADMIN", 21)],
)
def test_a_missing_capability_is_named(
    process: Path, cgroups: Path, monkeypatch: pytest.MonkeyPatch, capability: str, bit: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (process / "status").write_text(f"CapEff:\t{ALL_CAPABILITIES & ~(1 << bit):016x}\n")

    assert requirements.missing_requirements(process, cgroups) == [capability]


def test_a_host_whose_security_module_forbids_namespaces_is_refused(
    process: Path, cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "_may_unshare", lambda: False)

    assert requirements.missing_requirements(process, cgroups) == [
        "permission to create namespaces"
    ]


def test_the_error_suggests_an_existing_cluster(
    process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "missing_requirements", lambda: ["root"])

    with pytest.raises(TwinError, match="missing: root") as error:
        requirements.require_host_support()

    assert "kubeconfig" in error.value.fix


def test_a_capability_that_a_twin_does_not_need_may_be_missing(
    process: Path, cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "_may_unshare", lambda: True)
    cap_sys_resource = 1 << 24
    (process / "status").write_text(f"CapEff:\t{ALL_CAPABILITIES & ~cap_sys_resource:016x}\n")

    assert requirements.missing_requirements(process, cgroups) == []


def test_the_relay_listens_on_its_port_and_on_another_if_it_is_in_use() -> None:
    with socket.socket() as reservation:  # bound and not listening: only the relay can use the port
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        port = reservation.getsockname()[1]

        with relay.listen(port) as first, relay.listen(port) as second:
            assert first.getsockname() == ("127.0.0.1", port)
            assert second.getsockname()[1] not in {0, port}


def test_the_relay_listens_on_loopback_only() -> None:
    with relay.listen(0) as listener:
        assert listener.family is socket.AF_INET
        assert listener.getsockname()[0] == "127.0.0.1"
