import socket
from pathlib import Path

import pytest

from everstep.errors import EverstepError
from twin.nodes import host, relay, root_folder

ALL = 0x1FFFFFFFFFF


@pytest.fixture
def process(tmp_path):
    """A process that may do everything, as /proc shows it."""
    (tmp_path / "ns").mkdir()
    for name in host.NAMESPACES:
        (tmp_path / "ns" / name).touch()
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{ALL:016x}\n")
    return tmp_path


def test_whatever_is_missing_is_named(process, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (process / "ns" / "pid").unlink()
    (process / "status").write_text(f"CapEff:\t{ALL & ~(1 << 21):016x}\n")

    assert host.missing_abilities(process) == ["root", "pid namespaces", "CAP_SYS_ADMIN"]


def test_the_way_out_is_a_cluster_of_one_s_own(process, monkeypatch):
    monkeypatch.setattr(host, "missing_abilities", lambda: ["root"])

    with pytest.raises(EverstepError, match="missing: root") as caught:
        host.require_abilities()

    assert "kubeconfig" in caught.value.remedy
    assert "everstep:cluster" in caught.value.remedy


def test_a_host_may_lack_no_capability_that_a_twin_can_do_without(process, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(host, "_may_unshare", lambda: True)
    (process / "status").write_text(f"CapEff:\t{ALL & ~(1 << 24):016x}\n")  # CAP_SYS_RESOURCE

    assert host.missing_abilities(process) == []


def test_the_relay_keeps_its_port_and_takes_another_where_it_is_taken():
    with relay.listen(0) as first:
        port = first.getsockname()[1]
        with relay.listen(port) as second:
            assert second.getsockname()[1] not in {0, port}
    with relay.listen(port) as again:
        assert again.getsockname() == ("127.0.0.1", port)


def test_the_relay_listens_on_loopback_only():
    with relay.listen(0) as listener:
        assert listener.family is socket.AF_INET
        assert listener.getsockname()[0] == "127.0.0.1"


def test_only_what_a_machine_would_not_see_is_shown_to_it_separately():
    paths = [
        Path("/usr/bin/kubelet"),
        Path("/var/cache/kubelet"),
        Path("/tmp/build/kubelet"),
        Path("/home/a/b"),
    ]

    assert root_folder.hidden(paths) == [Path("/tmp/build/kubelet"), Path("/var/cache/kubelet")]
