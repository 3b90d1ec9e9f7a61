"""The registry of the twin has the rules of ECR and ACR, and keeps the pushed images."""

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cloudtwin.images import oci_layout
from cloudtwin.images.registry_client import Login, Registry, RegistryError
from cloudtwin.progress import Silent
from cloudtwin.toolchain import ensure_tools

from twin.tests.images.tars import write_tar
from twin.tests.waiting import wait_until

ECR = "111122223333.dkr.ecr.us-east-1.amazonaws.com"
ACR = "everstepprod.azurecr.io"
NODES, PUSHER = Login("AWS-nodes", "of-nodes"), Login("AWS", "of-a-person")
RULES = {
    "registries": {
        ECR: {
            "id": "111122223333",
            "pull": {NODES.user: NODES.password},
            "push": {PUSHER.user: PUSHER.password},
            "repositories": {"everstep/trainer": True, "everstep/mutable": False},
        },
        ACR: {"push": {"token": "secret"}, "pull": {}, "repositories": None},
    },
    "publishers": {"publisher": "secret"},
}

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]


@dataclass
class Server:
    """A registry as a process."""

    folder: Path
    program: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start the process and wait until it listens."""
        self.process = subprocess.Popen(
            [str(self.program), f"-listen=127.0.0.1:{self.port}", f"-data={self.folder / 'data'}",
             f"-rules={self.folder / 'rules'}"]
        )  # fmt: skip
        wait_until(self.listens, "the registry listens", 100, interval_seconds=0.05)

    def listens(self) -> bool:
        """Return True if the process accepts connections."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        """Kill the process, without a chance to shut down."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def registry(self, host: str, login: Login | None = None) -> Registry:
        """Return a client for one of its hosts."""
        return Registry(host, login, f"http://127.0.0.1:{self.port}/v2/{host}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("registry")
    (folder / "rules").mkdir()
    for name, rules in RULES.items():
        (folder / "rules" / f"{name}.json").write_text(json.dumps({name: rules}))
    # Below the ephemeral ports: a connection could take one of those between a stop and the next start.
    port = 12_000 + os.getpid() % 8_000
    server = Server(folder, ensure_tools(["registry"], Silent())["registry"], port)
    server.start()
    yield server
    server.stop()


def write_image(folder: Path, content: str) -> Path:
    """Write the layout folder of an image with one file; return it."""
    folder.mkdir(exist_ok=True)
    layer = write_tar(folder / "layer.tar", file=content.encode())
    oci_layout.single_layer(folder / "oci", layer, "localhost/x:1", {})
    return folder / "oci"


def refusal(registry: Registry, repository: str) -> RegistryError:
    with pytest.raises(RegistryError) as error:
        registry.digest(repository, "1")
    return error.value


@pytest.mark.parametrize(
    "login", [None, Login("AWS", "wrong"), Login("root", PUSHER.password)], ids=str
)
def test_a_private_registry_refuses_wrong_credentials(server: Server, login: Login | None) -> None:
    error = refusal(server.registry(ECR, login), "everstep/trainer")

    assert (error.status, error.code) == (401, "UNAUTHORIZED")
    assert ECR in error.problem
    assert "wrong" not in str(error), "a password must not appear in an error"


def test_nodes_may_pull_and_not_push(server: Server, tmp_path: Path) -> None:
    nodes = server.registry(ECR, NODES)

    assert nodes.digest("everstep/trainer", "missing") is None
    with pytest.raises(RegistryError) as error:
        nodes.check_push("everstep/trainer")
    assert error.value.status == 401
    with pytest.raises(RegistryError) as error:
        nodes.upload(write_image(tmp_path / "a", "a"), "everstep/trainer", "1", Silent())
    assert error.value.status == 401


def test_an_ecr_repository_must_exist_before_the_push(server: Server) -> None:
    pusher = server.registry(ECR, PUSHER)

    with pytest.raises(RegistryError) as error:
        pusher.check_push("everstep/other")
    assert error.value.code == "NAME_UNKNOWN"
    assert "'everstep/other' does not exist in the registry with id '111122223333'" in str(
        error.value
    )
    pusher.check_push("everstep/trainer")


def test_an_immutable_tag_keeps_its_image_and_a_mutable_one_does_not(
    server: Server, tmp_path: Path
) -> None:
    pusher = server.registry(ECR, PUSHER)
    first, second = write_image(tmp_path / "one", "1"), write_image(tmp_path / "other", "2")

    digest = pusher.upload(first, "everstep/trainer", "immutable", Silent())
    with pytest.raises(RegistryError, match="tag is immutable") as error:
        pusher.upload(second, "everstep/trainer", "immutable", Silent())
    pusher.upload(first, "everstep/mutable", "1", Silent())
    new_digest = pusher.upload(second, "everstep/mutable", "1", Silent())

    assert (error.value.status, error.value.code) == (400, "TAG_INVALID")
    assert pusher.digest("everstep/trainer", "immutable") == digest
    assert pusher.digest("everstep/trainer", digest) == digest
    assert pusher.digest("everstep/mutable", "1") == new_digest != digest


def test_acr_creates_a_repository_at_its_first_push(server: Server, tmp_path: Path) -> None:
    registry = server.registry(ACR, Login("token", "secret"))

    digest = registry.upload(write_image(tmp_path, "acr"), "team/new", "1", Silent())

    assert registry.digest("team/new", "1") == digest
    assert refusal(server.registry(ACR), "team/new").status == 401
    assert refusal(server.registry(ECR, PUSHER), "team/new").code == "NAME_UNKNOWN", (
        "each host has its own images"
    )


def test_public_registries_allow_anonymous_pulls_and_authenticated_pushes(
    server: Server, tmp_path: Path
) -> None:
    source = write_image(tmp_path, "public")

    with pytest.raises(RegistryError) as error:
        server.registry("ghcr.io").upload(source, "team/x", "1", Silent())
    assert error.value.status == 401
    publisher = server.registry("ghcr.io", Login("publisher", "secret"))
    digest = publisher.upload(source, "team/x", "1", Silent())

    assert server.registry("ghcr.io").digest("team/x", "1") == digest


def test_a_restarted_registry_has_its_images(server: Server, tmp_path: Path) -> None:
    pusher = server.registry(ECR, PUSHER)
    digest = pusher.upload(write_image(tmp_path, "kept"), "everstep/mutable", "kept", Silent())

    server.stop()
    server.start()

    assert pusher.digest("everstep/mutable", "kept") == digest
