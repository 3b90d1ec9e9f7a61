"""Members of a real etcd that lose all they have, one after the other."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from everstep.progress import Silent
from spot.wire import NoAnswer, Request, ask
from twin.toolchain import ensure_tools

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


@contextmanager
def member(etcd: Path, name: str, folder: Path) -> Iterator[None]:
    """Run a pod's life: what goes before, then etcd, until the block ends; without warning."""
    folder.mkdir()
    config = folder / "etcd.json"
    rejoin = [sys.executable, "-m", "spot.rejoin", f"--config={config}", "--"]
    with subprocess.Popen([*rejoin, *flags(name, folder)], cwd=ROOT) as before:
        pass
    assert before.returncode == 0
    process = subprocess.Popen([str(etcd), f"--config-file={config}"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def call(name: str, path: str, body: object) -> dict[str, object]:
    request = Request(method="POST", path=path, body=json.dumps(body).encode())
    answer = ask(f"http://{HOSTS[name]}:{CLIENT}", request, 5)
    if answer.status != 200:
        raise NoAnswer(answer.body.decode())
    return dict(json.loads(answer.body))


def healthy(name: str) -> None:
    """Wait until a member takes part: a write through it needs the quorum."""
    deadline = time.monotonic() + 60
    while True:
        try:
            call(name, "/v3/kv/put", {"key": "YQ==", "value": "Yg=="})
        except NoAnswer:
            assert time.monotonic() < deadline, f"{name} takes no part"
            time.sleep(0.2)
        else:
            return


@pytest.mark.timeout(300)
def test_each_member_in_turn_comes_back_with_nothing_and_the_cluster_lives_on(
    tmp_path: Path,
) -> None:
    etcd = ensure_tools(["etcd"], Silent())["etcd"]
    with ExitStack() as everything:
        lives = {name: everything.enter_context(ExitStack()) for name in HOSTS}
        for name, life in lives.items():
            life.enter_context(member(etcd, name, tmp_path / name))
        for name in HOSTS:
            healthy(name)
        call("etcd-0", "/v3/kv/put", {"key": "a2V5", "value": "a2VwdA=="})
        for name, life in lives.items():
            life.close()
            life.enter_context(member(etcd, name, tmp_path / f"{name}-again"))
            healthy(name)

        listed = call("etcd-0", "/v3/cluster/member/list", {})["members"]
        kept = call("etcd-2", "/v3/kv/range", {"key": "a2V5"})["kvs"]

    assert isinstance(listed, list)
    assert sorted(one["name"] for one in listed) == sorted(HOSTS), "three, and none left over"
    assert kept, "all three have lost what they had, and the cluster has not"
