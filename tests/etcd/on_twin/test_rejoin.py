"""Members of a real etcd that lose their data, one after the other."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cloudtwin.toolchain import ensure_tools

from etcd.gateway import EtcdError, call
from everstep.progress import Silent

pytestmark = pytest.mark.twin

ROOT = Path(__file__).resolve().parents[3]
CLIENT, PEER = 23790, 23800  # each member has an address of its own, as pods do
HOSTS = {f"etcd-{index}": f"127.0.7.{index + 1}" for index in range(3)}
CLUSTER = ",".join(f"{name}=http://{host}:{PEER}" for name, host in HOSTS.items())


def flags(name: str, folder: Path) -> list[str]:
    client, peer = (f"http://{HOSTS[name]}:{port}" for port in (CLIENT, PEER))
    return [
        f"--name={name}",
        f"--data-dir={folder / 'member'}",
        f"--listen-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--advertise-client-urls={client}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={CLUSTER}",
        "--initial-cluster-token=test-3",
        "--initial-cluster-state=new",
        "--enable-v2",
        "--heartbeat-interval=200",
        "--election-timeout=1200",
        "--quota-backend-bytes=268435456",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        "--logger=zap",
        "--log-level=error",
    ]


def init_container(name: str, folder: Path) -> "subprocess.Popen[bytes]":
    folder.mkdir()
    rejoin = [sys.executable, "-m", "etcd", f"--config={folder / 'etcd.json'}", "--"]
    return subprocess.Popen([*rejoin, *flags(name, folder)], cwd=ROOT)


@contextmanager
def member(
    etcd: Path, name: str, folder: Path, init: "subprocess.Popen[bytes] | None" = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the init container and then etcd, which is killed at the end of the block."""
    init = init or init_container(name, folder)
    assert init.wait(timeout=120) == 0
    process = subprocess.Popen([str(etcd), f"--config-file={folder / 'etcd.json'}"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def start_all(
    etcd: Path, tmp_path: Path, pods: dict[str, ExitStack]
) -> dict[str, "subprocess.Popen[bytes]"]:
    """Start a new cluster: as in a StatefulSet, all pods start in parallel."""
    inits = {name: init_container(name, tmp_path / name) for name in pods}
    processes = {
        name: pod.enter_context(member(etcd, name, tmp_path / name, inits[name]))
        for name, pod in pods.items()
    }
    for name in pods:
        wait_until_healthy(name)
    return processes


def request(name: str, method: str, body: dict[str, object]) -> dict[str, object]:
    return call(f"http://{HOSTS[name]}:{CLIENT}", method, body)


def wait_until_healthy(name: str) -> None:
    """Wait until a write through a member succeeds, which needs the quorum."""
    deadline = time.monotonic() + 60
    while True:
        try:
            request(name, "kv/put", {"key": "YQ==", "value": "Yg=="})
        except EtcdError:
            assert time.monotonic() < deadline, f"{name} has no quorum"
            time.sleep(0.2)
        else:
            return


@pytest.mark.timeout(300)
def test_the_cluster_survives_when_each_member_in_turn_loses_its_data(
    tmp_path: Path,
) -> None:
    etcd = ensure_tools(["etcd"], Silent())["etcd"]
    with ExitStack() as stack:
        pods = {name: stack.enter_context(ExitStack()) for name in HOSTS}
        start_all(etcd, tmp_path, pods)
        request("etcd-0", "kv/put", {"key": "a2V5", "value": "a2VwdA=="})
        for name, pod in pods.items():
            pod.close()
            pod.enter_context(member(etcd, name, tmp_path / f"{name}-again"))
            wait_until_healthy(name)

        listed = request("etcd-0", "cluster/member/list", {})["members"]
        kept = request("etcd-2", "kv/range", {"key": "a2V5"})["kvs"]

    assert isinstance(listed, list)
    assert sorted(listed_member["name"] for listed_member in listed) == sorted(HOSTS), (
        "former identities must be removed"
    )
    assert kept, "data must survive although every member lost its own copy"


@pytest.mark.timeout(300)
def test_a_member_without_data_waits_for_silent_peers_and_loses_no_write(tmp_path: Path) -> None:
    """Its peers are cut off for longer than any reasonable number of attempts."""
    etcd = ensure_tools(["etcd"], Silent())["etcd"]
    with ExitStack() as stack:
        pods = {name: stack.enter_context(ExitStack()) for name in HOSTS}
        processes = start_all(etcd, tmp_path, pods)
        request("etcd-0", "kv/put", {"key": "a2V5", "value": "a2VwdA=="})
        pods["etcd-1"].close()
        for name in ("etcd-0", "etcd-2"):
            processes[name].send_signal(signal.SIGSTOP)
        init = init_container("etcd-1", tmp_path / "again")
        with pytest.raises(subprocess.TimeoutExpired):
            init.wait(timeout=12)

        for name in ("etcd-0", "etcd-2"):
            processes[name].send_signal(signal.SIGCONT)
        pods["etcd-1"].enter_context(member(etcd, "etcd-1", tmp_path / "again", init))
        wait_until_healthy("etcd-1")
        kept = request("etcd-1", "kv/range", {"key": "a2V5"})["kvs"]

    assert kept, "a member without data that started a new cluster has lost acknowledged writes"
