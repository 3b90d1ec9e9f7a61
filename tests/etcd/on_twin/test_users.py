"""The users of a real etcd with TLS, as a member's pod sets them up, and the permissions of a worker."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path

import pytest
from cloudtwin.toolchain import ensure_tools

from etcd.credentials import (
    AGENT_SECRET,
    MEMBERS_SECRET,
    PASSWORDS,
    IssuedSecret,
    contents,
    ensure,
)
from etcd.gateway import Credentials, EtcdError, authenticate, call
from etcd.users import REPAIR_OF_ROOT
from everstep.elastic.launch.launcher import DONE
from everstep.elastic.membership.etcd_client import Etcd, EtcdRefusedError, EtcdUnreachableError
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.progress import Silent
from tests.everstep.elastic.launch.launched import run_launcher
from tests.processes import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.twin

ROOT = Path(__file__).resolve().parents[3]
RUN = "fashion"
NAMES = ["DNS:localhost", "IP:127.0.0.1"]
READY_SECONDS = 200.0
PROGRAM = """
from torch import nn, optim, zeros
from torch.utils.data import TensorDataset
from everstep import elastic
model, dataset = nn.Linear(1, 1), TensorDataset(zeros(2, 1))
optimizer = optim.SGD(model.parameters(), lr=0.1)
run = elastic.Run(model, optimizer, dataset=dataset, global_batch=1, epochs=1, checkpoint="run")
for batch in run:
    for (x,) in batch.microbatches():
        batch.backward(model(x).mean(), x)
    batch.step()
"""
"""A program that trains two steps."""


class FolderSecrets:
    """Secrets in folders, as the kubelet mounts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> IssuedSecret | None:
        if not (self.folder / name).exists():
            return None
        files = {file.name: file.read_text() for file in (self.folder / name).iterdir()}
        passwords = {file: files[file] for file in PASSWORDS if file in files}
        return IssuedSecret(issuance_id=files["issuance-id"], passwords=passwords)

    def put(self, name: str, issuance_id: str, content: Mapping[str, str]) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        for file, text in {**content, "issuance-id": issuance_id}.items():
            (self.folder / name / file).write_text(text)


def write_secrets(folder: Path) -> None:
    """Write new credentials, with new passwords, to folders, as the kubelet mounts Secrets."""
    for secret, files in contents(NAMES).items():
        (folder / secret).mkdir(exist_ok=True)
        for name, content in files.items():
            (folder / secret / name).write_text(content)


@dataclass
class Pod:
    """One member of etcd and the container that sets up its users."""

    folder: Path
    client_port: int
    peer_port: int
    health_port: int

    @property
    def address(self) -> str:
        return f"https://localhost:{self.client_port}"

    @property
    def credentials(self) -> Credentials:
        return Credentials(folder=self.folder / MEMBERS_SECRET)

    @contextmanager
    def etcd(self, data: str, *flags: str) -> Iterator[None]:
        """Run the member, with additional flags."""
        members, peer_url = self.folder / MEMBERS_SECRET, f"https://localhost:{self.peer_port}"
        command = [
            str(ensure_tools(["etcd"], Silent())["etcd"]),
            f"--data-dir={self.folder / data}",
            f"--listen-client-urls=https://127.0.0.1:{self.client_port}",
            f"--advertise-client-urls={self.address}",
            f"--listen-peer-urls=https://127.0.0.1:{self.peer_port}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            f"--cert-file={members / 'server.crt'}",
            f"--key-file={members / 'server.key'}",
            f"--trusted-ca-file={members / 'ca.crt'}",
            "--client-cert-auth",
            f"--peer-cert-file={members / 'peer.crt'}",
            f"--peer-key-file={members / 'peer.key'}",
            f"--peer-trusted-ca-file={members / 'peer-ca.crt'}",
            "--peer-client-cert-auth",
            "--unsafe-no-fsync",
            *flags,
        ]
        with (self.folder / "etcd.log").open("ab") as log, running_process(command, log.fileno()):
            yield

    @contextmanager
    def users(self, run: str = RUN) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the container that sets up the users."""
        command = [sys.executable, "-m", "etcd.users", f"--address={self.address}", f"--run={run}"]
        command += [f"--credentials={self.credentials.folder}", f"--health-port={self.health_port}"]
        with (
            (self.folder / "users.log").open("ab") as log,
            running_process(command, log.fileno()) as process,
        ):
            yield process

    def is_ready(self) -> bool:
        """Return True if the readiness probe succeeds."""
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}", timeout=30) as response,
        ):
            return bool(response.status == HTTPStatus.OK)
        return False

    def probe_responds(self) -> bool:
        """Return True if the port of the readiness probe accepts connections."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.health_port), 1):
            return True
        return False

    def accepts(self, user: str, password: str) -> bool:
        """Return True if etcd accepts the password of a user."""
        try:
            authenticate(self.address, user, password, self.credentials)
        except EtcdError:
            return False
        return True

    def wait_until(self, condition: Callable[[], bool], description: str) -> None:
        """Wait until a condition holds; on a timeout, fail with the log of the container."""
        log = self.folder / "users.log"
        wait_until(condition, description, READY_SECONDS, details=log.read_text)

    def wait_until_ready(self, *, ready: bool = True) -> None:
        description = "the pod is ready" if ready else "the pod is no longer ready"
        self.wait_until(lambda: self.is_ready() == ready, description)

    def agent_options(self) -> EtcdOptions:
        """Return the options of a worker's agent."""
        folder = self.folder / AGENT_SECRET
        return EtcdOptions(
            endpoints=(f"localhost:{self.client_port}",),
            certificate_authority=str(folder / "ca.crt"),
            certificate=str(folder / "agent.crt"),
            key=str(folder / "agent.key"),
            user="agent",
            password_file=str(folder / "agent-password"),
            retry_seconds=READY_SECONDS,
        )


@contextmanager
def running_process(command: list[str], log: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process, which is killed at the end of the block."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def new_pod(folder: Path) -> Pod:
    write_secrets(folder)
    return Pod(folder, free_port(), free_port(), free_port())


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a member whose users are set up."""
    member = new_pod(tmp_path_factory.mktemp("pod"))
    with member.etcd("data"), member.users():
        member.wait_until_ready()
        yield member


def test_an_agent_reads_and_writes_the_keys_of_its_run(pod: Pod) -> None:
    with closing(Etcd(pod.agent_options())) as etcd:
        lease = etcd.grant(60)
        etcd.put(f"/everstep/{RUN}/members/w0", "{}", lease)

        assert [entry.value for entry in etcd.get(f"/everstep/{RUN}/")[0]] == ["{}"]
        assert etcd.keep_alive(lease, request_seconds=5, retry_seconds=5)
        etcd.revoke(lease)
        assert etcd.get(f"/everstep/{RUN}/")[0] == []


@pytest.mark.parametrize("key", ["generation", "committed", "ended", "members/w9"])
@pytest.mark.parametrize("run", ["other", f"{RUN}-2", f"{RUN}0"])
def test_an_agent_can_neither_read_nor_write_another_run(pod: Pod, run: str, key: str) -> None:
    with closing(Etcd(pod.agent_options())) as etcd:
        for attempt in (
            lambda: etcd.put(f"/everstep/{run}/{key}", "{}"),
            lambda: etcd.delete(f"/everstep/{run}/{key}"),
            lambda: etcd.get(f"/everstep/{run}/"),
            lambda: etcd.put_while_unchanged(
                f"/everstep/{run}/{key}",
                "{}",
                guard_key=f"/everstep/{RUN}/generation",
                mod_revision=0,
            ),
        ):
            with pytest.raises(EtcdRefusedError, match="permission denied"):
                attempt()


def test_a_launcher_of_another_run_may_put_its_keys_below_the_keys_of_the_run(
    pod: Pod, tmp_path: Path
) -> None:
    """`everstep scale` trains with the credentials of the stack's job, in separate runs."""
    connection = {
        "protocol": "https",
        "cacert": pod.agent_options().certificate_authority,
        "cert": pod.agent_options().certificate,
        "key": pod.agent_options().key,
        "user": "agent",
        "password_file": pod.agent_options().password_file,
        "etcd_prefix": RUN,
    }
    (tmp_path / "program.py").write_text(PROGRAM)
    options = (
        f"--rdzv_endpoint=localhost:{pod.client_port}",
        "--rdzv_backend=etcd",
        "--rdzv_id=study",
        "--nnodes=1",
        "--rdzv_conf=" + ",".join(f"{key}={value}" for key, value in connection.items()),
    )

    with (
        run_launcher(tmp_path, *options, "program.py") as launcher,
        closing(Etcd(pod.agent_options())) as etcd,
    ):
        assert launcher.wait() == DONE, launcher.log

        keys = {entry.key for entry in etcd.get(f"/everstep/{RUN}/")[0]}
        assert {f"/everstep/{RUN}/study/{key}" for key in ("generation", "ended")} <= keys


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("cluster/member/add", {"peerURLs": ["https://localhost:1"]}),
        ("auth/disable", {}),
        ("auth/user/add", {"name": "second", "password": "x"}),
        ("auth/user/changepw", {"name": "root", "password": "x"}),
        ("auth/role/grant", {"name": "run", "perm": {"permType": "READWRITE", "key": "Lw=="}}),
        ("maintenance/snapshot", {}),
    ],
)
def test_an_agent_may_not_administer_etcd(pod: Pod, method: str, body: dict[str, object]) -> None:
    with closing(Etcd(pod.agent_options())) as etcd, pytest.raises(EtcdRefusedError):
        etcd.call(method, body)


def test_no_client_is_admitted_without_a_user(pod: Pod) -> None:
    """The certificate has no common name, so it does not identify a user."""
    with closing(Etcd(replace(pod.agent_options(), user=None))) as etcd:
        for attempt in (
            lambda: etcd.put(f"/everstep/{RUN}/ended", "{}"),
            lambda: etcd.get(f"/everstep/{RUN}/"),
        ):
            with pytest.raises(EtcdRefusedError, match="permission denied"):
                attempt()


def test_no_client_is_admitted_without_a_certificate_of_this_etcd(pod: Pod, tmp_path: Path) -> None:
    write_secrets(tmp_path)
    other_options = replace(pod, folder=tmp_path).agent_options()
    valid_options = replace(pod.agent_options(), retry_seconds=0)
    refused_options = {
        "plain text": EtcdOptions(endpoints=valid_options.endpoints, retry_seconds=0),
        "no certificate": replace(valid_options, certificate=None, key=None),
        "a certificate of another CA": replace(
            valid_options, certificate=other_options.certificate, key=other_options.key
        ),
        "a server of another CA": replace(
            valid_options, certificate_authority=other_options.certificate_authority
        ),
    }
    for options in refused_options.values():
        with closing(Etcd(options)) as etcd, pytest.raises(EtcdUnreachableError):
            etcd.get(f"/everstep/{RUN}/")


def test_a_workers_certificate_is_refused_on_the_peer_port(pod: Pod) -> None:
    agent, members = pod.folder / AGENT_SECRET, pod.folder / MEMBERS_SECRET
    statuses = []
    for name, folder in (("peer", members), ("agent", agent)):
        context = ssl.create_default_context(cafile=str(members / "peer-ca.crt"))
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
        try:
            with urllib.request.urlopen(
                f"https://localhost:{pod.peer_port}/version", timeout=100, context=context
            ) as response:
                statuses.append(response.status)
        except OSError:
            statuses.append(None)

    assert statuses == [HTTPStatus.OK, None]


@pytest.mark.parametrize("rotated", [False, True], ids=["same credentials", "new credentials"])
def test_an_etcd_that_returns_empty_gets_its_users_again_and_an_agent_continues(
    tmp_path: Path, rotated: bool
) -> None:
    pod = new_pod(tmp_path)
    with pod.users(), closing(Etcd(pod.agent_options())) as etcd:
        with pod.etcd("data"):
            pod.wait_until_ready()
            etcd.put(f"/everstep/{RUN}/committed", "1")
        pod.wait_until_ready(ready=False)
        if rotated:  # a rotation replaces all keys, CAs and passwords
            write_secrets(tmp_path)
        with pod.etcd("returned"):
            pod.wait_until_ready()

            etcd.put(f"/everstep/{RUN}/committed", "2")

            assert [entry.value for entry in etcd.get(f"/everstep/{RUN}/")[0]] == ["2"]
            with pytest.raises(EtcdRefusedError, match="permission denied"):
                etcd.put("/everstep/other/committed", "2")


def rotate(folder: Path) -> None:
    """Rotate the credentials as documented: delete the workers' Secret, and run the Job again."""
    shutil.rmtree(folder / AGENT_SECRET)
    assert ensure(FolderSecrets(folder), NAMES)


def test_after_a_rotation_an_etcd_with_its_data_is_ready_again_and_an_agent_continues(
    tmp_path: Path,
) -> None:
    ensure(FolderSecrets(tmp_path), NAMES)
    pod = Pod(tmp_path, free_port(), free_port(), free_port())
    with closing(Etcd(pod.agent_options())) as etcd:
        with pod.etcd("data"), pod.users():
            pod.wait_until_ready()
            etcd.put(f"/everstep/{RUN}/committed", "1")
        first_authority = (tmp_path / MEMBERS_SECRET / "ca.crt").read_text()
        rotate(tmp_path)
        assert (tmp_path / MEMBERS_SECRET / "ca.crt").read_text() != first_authority
        with pod.etcd("data"), pod.users():
            pod.wait_until_ready()

            assert [entry.value for entry in etcd.get(f"/everstep/{RUN}/")[0]] == ["1"]
            etcd.put(f"/everstep/{RUN}/committed", "2")


def test_a_password_that_does_not_fit_the_data_is_reported_with_its_repair(tmp_path: Path) -> None:
    pod = new_pod(tmp_path)
    former_password = pod.credentials.password("root")
    with pod.etcd("data"):
        with pod.users():
            pod.wait_until_ready()
        password_file = pod.credentials.folder / "root-password"
        password_file.write_text("lost")
        with pod.users():
            log = tmp_path / "users.log"
            pod.wait_until(lambda: REPAIR_OF_ROOT in log.read_text(), "the repair is logged")
            assert not pod.is_ready()

            password_file.write_text(former_password)

            pod.wait_until_ready()


def test_another_run_replaces_the_previous_run(tmp_path: Path) -> None:
    pod = new_pod(tmp_path)
    with pod.etcd("data"), closing(Etcd(pod.agent_options())) as etcd:
        with pod.users():
            pod.wait_until_ready()
            etcd.put(f"/everstep/{RUN}/committed", "1")
        with pod.users("second"):
            pod.wait_until_ready()

            etcd.put("/everstep/second/committed", "1")

            with pytest.raises(EtcdRefusedError, match="permission denied"):
                etcd.put(f"/everstep/{RUN}/committed", "2")


def test_replaced_passwords_take_effect(tmp_path: Path) -> None:
    pod = new_pod(tmp_path)
    folder = pod.credentials.folder
    with pod.etcd("data"), closing(Etcd(pod.agent_options())) as etcd, pod.users():
        pod.wait_until_ready()
        etcd.put(f"/everstep/{RUN}/committed", "1")
        for user in ("root", "agent"):
            (folder / f"{user}-password").write_text(f"new-{user}")
        pod.wait_until(
            lambda: pod.accepts("agent", "new-agent"), "etcd accepts the agent's new password"
        )
        (tmp_path / AGENT_SECRET / "agent-password").write_text("new-agent")

        etcd.put(f"/everstep/{RUN}/committed", "2")

        authenticate(pod.address, "root", "new-root", pod.credentials)


def test_the_container_ends_immediately_with_its_pod(tmp_path: Path) -> None:
    """A signal without a handler has no effect on PID 1 of a container."""
    pod = new_pod(tmp_path)
    with pod.users() as process:
        pod.wait_until(pod.probe_responds, "the port of the probe accepts connections")

        process.terminate()

        assert process.wait(READY_SECONDS) == 0, "the handler ended it, not the signal"


def test_members_that_set_up_the_users_at_the_same_time_agree(tmp_path: Path) -> None:
    pod = new_pod(tmp_path)
    other_members = [replace(pod, health_port=free_port()) for _ in range(2)]
    with pod.etcd("data"), ExitStack() as stack:
        for member_pod in (pod, *other_members):
            stack.enter_context(member_pod.users())
        for member_pod in (pod, *other_members):
            member_pod.wait_until_ready()

        root = authenticate(pod.address, "root", pod.credentials.password("root"), pod.credentials)
        response = call(pod.address, "auth/user/list", {}, pod.credentials, root)

    assert response["users"] == ["agent", "root"]
