"""Members of a real etcd that lose their data, one after the other."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cloudtwin.toolchain import ensure_tools

from components.platform.etcd_access import FOLDER, server_flags
from etcd.credentials import MEMBERS_SECRET, contents
from etcd.gateway import Credentials, EtcdError, call_as_root
from etcd.users import Users
from everstep.progress import Silent
from tests.waiting import wait_until

pytestmark = pytest.mark.twin

ROOT = Path(__file__).resolve().parents[3]
CLIENT_PORT, PEER_PORT = 23790, 23800  # each member has its own address, as pods do
HOSTS = {f"etcd-{index}": f"127.0.7.{index + 1}" for index in range(3)}


@dataclass(frozen=True)
class Cluster:
    """Three members; `credentials` are set for an etcd with TLS and users."""

    etcd: Path
    folder: Path
    credentials: Credentials | None = None

    def url(self, name: str, port: int) -> str:
        return f"{'https' if self.credentials else 'http'}://{HOSTS[name]}:{port}"

    def flags(self, name: str, folder: Path) -> list[str]:
        client, peer = (self.url(name, port) for port in (CLIENT_PORT, PEER_PORT))
        initial_cluster = ",".join(f"{member}={self.url(member, PEER_PORT)}" for member in HOSTS)
        return [
            f"--name={name}",
            f"--data-dir={folder / 'member'}",
            f"--listen-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--advertise-client-urls={client}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={initial_cluster}",
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
            *self.tls_flags(),
        ]

    def tls_flags(self) -> list[str]:
        if not self.credentials:
            return []
        return [flag.replace(FOLDER, str(self.credentials.folder)) for flag in server_flags()]

    def start_init_container(self, name: str, folder: Path) -> "subprocess.Popen[bytes]":
        folder.mkdir()
        command = [sys.executable, "-m", "etcd", f"--config={folder / 'etcd.json'}"]
        if self.credentials:
            command.append(f"--credentials={self.credentials.folder}")
        return subprocess.Popen([*command, "--", *self.flags(name, folder)], cwd=ROOT)

    @contextmanager
    def member(
        self, name: str, folder: Path, init_process: "subprocess.Popen[bytes] | None" = None
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the init container and then etcd, which is killed at the end of the block."""
        init_process = init_process or self.start_init_container(name, folder)
        assert init_process.wait(timeout=300) == 0
        process = subprocess.Popen([str(self.etcd), f"--config-file={folder / 'etcd.json'}"])
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def start_all(self, pods: dict[str, ExitStack]) -> dict[str, "subprocess.Popen[bytes]"]:
        """Start a new cluster: all pods start in parallel, as with `podManagementPolicy: Parallel`."""
        init_processes = {
            name: self.start_init_container(name, self.folder / name) for name in pods
        }
        processes = {
            name: pod.enter_context(self.member(name, self.folder / name, init_processes[name]))
            for name, pod in pods.items()
        }
        for name in pods:
            self.wait_until_healthy(name)
        if self.credentials:
            users = Users(self.url("etcd-0", CLIENT_PORT), "fashion", self.credentials)
            users.ensure()
            assert users.requires_user()
        return processes

    def request(self, name: str, method: str, body: dict[str, object]) -> dict[str, object]:
        return call_as_root(self.url(name, CLIENT_PORT), method, body, self.credentials)

    def members(self, name: str) -> list[str]:
        """Return the sorted names of all members, as one of them lists them."""
        members = self.request(name, "cluster/member/list", {})["members"]
        assert isinstance(members, list)
        return sorted(member["name"] for member in members)

    def wait_until_healthy(self, name: str) -> None:
        """Wait until a write through a member succeeds, which needs the quorum."""

        def has_quorum() -> bool:
            try:
                self.request(name, "kv/put", {"key": "YQ==", "value": "Yg=="})
            except EtcdError:
                return False
            return True

        wait_until(has_quorum, f"{name} has a quorum", 200, interval_seconds=0.2)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(ensure_tools(["etcd"], Silent())["etcd"], tmp_path)


@pytest.fixture
def secured_cluster(tmp_path: Path) -> Cluster:
    """Return members with TLS; their users are set up when they have started."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    secrets = contents([f"IP:{host}" for host in HOSTS.values()])
    for name, content in secrets[MEMBERS_SECRET].items():
        (folder / name).write_text(content)
    etcd = ensure_tools(["etcd"], Silent())["etcd"]
    return Cluster(etcd, tmp_path, Credentials(folder=folder))


@pytest.mark.timeout(600)
def test_the_cluster_survives_when_each_member_in_turn_loses_its_data(
    secured_cluster: Cluster,
) -> None:
    cluster = secured_cluster
    with ExitStack() as stack:
        pods = {name: stack.enter_context(ExitStack()) for name in HOSTS}
        cluster.start_all(pods)
        cluster.request("etcd-0", "kv/put", {"key": "a2V5", "value": "a2VwdA=="})
        for name, pod in pods.items():
            pod.close()
            pod.enter_context(cluster.member(name, cluster.folder / f"{name}-again"))
            cluster.wait_until_healthy(name)

        members = cluster.members("etcd-0")
        values = cluster.request("etcd-2", "kv/range", {"key": "a2V5"})["kvs"]

    assert members == sorted(HOSTS), "former identities must be removed"
    assert values, "data must survive although every member lost its own copy"


@pytest.mark.timeout(600)
def test_a_member_without_data_waits_for_silent_peers_and_loses_no_write(cluster: Cluster) -> None:
    """Its peers are frozen: they accept connections and send no response."""
    with ExitStack() as stack:
        pods = {name: stack.enter_context(ExitStack()) for name in HOSTS}
        processes = cluster.start_all(pods)
        cluster.request("etcd-0", "kv/put", {"key": "a2V5", "value": "a2VwdA=="})
        pods["etcd-1"].close()
        for name in ("etcd-0", "etcd-2"):
            processes[name].send_signal(signal.SIGSTOP)
        init_process = cluster.start_init_container("etcd-1", cluster.folder / "again")
        with pytest.raises(subprocess.TimeoutExpired):
            init_process.wait(timeout=12)

        for name in ("etcd-0", "etcd-2"):
            processes[name].send_signal(signal.SIGCONT)
        pods["etcd-1"].enter_context(
            cluster.member("etcd-1", cluster.folder / "again", init_process)
        )
        cluster.wait_until_healthy("etcd-1")
        members = cluster.members("etcd-0")
        values = cluster.request("etcd-1", "kv/range", {"key": "a2V5"})["kvs"]

    assert members == sorted(HOSTS), "its former identity must be removed"
    assert values, "a member without data that started a new cluster has lost acknowledged writes"
