"""Servers for tests: MinIO for S3, Azurite for Blob Storage, and moto's mock of S3.

`make test-staging` installs MinIO and Azurite into build/servers; where they are absent, their tests are skipped.
"""

import contextlib
import functools
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.images.confine import KILLED_WITH_PARENT

from tests.processes import free_port
from tests.waiting import wait_until

SERVERS = Path(__file__).parents[4] / "build" / "servers"
MINIO = SERVERS / "minio"
AZURITE = SERVERS / "node_modules" / ".bin" / "azurite-blob"
START_SECONDS = 60.0
KEY_ID, SECRET = "everstep", "not-a-secret-of-anyone"

AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = (  # the published key of every Azurite
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """Run moto's server in this process; yield its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()


@functools.cache  # creating a client takes a tenth of a second
def client_of(address: str) -> Any:
    """Return a client of the S3 server at an address."""
    import boto3

    keys = {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET}
    return boto3.client("s3", endpoint_url=address, region_name="us-east-1", **keys)


@contextlib.contextmanager
def minio(folder: Path) -> Iterator[str]:
    """Run MinIO; yield its address."""
    port, console = free_port(), free_port()
    addresses = ["--address", f"127.0.0.1:{port}", "--console-address", f"127.0.0.1:{console}"]
    command = [str(MINIO), "server", "--quiet", *addresses, str(folder)]
    environment = minio_environment(folder)
    address = f"http://127.0.0.1:{port}"
    with run_server(MINIO, command, environment, f"{address}/minio/health/ready", folder):
        yield address


def minio_environment(folder: Path) -> dict[str, str]:
    """Return the environment of MinIO."""
    return {"MINIO_ROOT_USER": KEY_ID, "MINIO_ROOT_PASSWORD": SECRET, "HOME": str(folder)}


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Run Azurite; yield its address."""
    host, port = "127.0.0.1", free_port()
    command, environment = azurite_command(folder, host, port)
    address = f"http://{host}:{port}"
    with run_server(AZURITE, command, environment, address, folder):
        yield address


def azurite_command(folder: Path, host: str, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of Azurite and its environment."""
    command = [str(AZURITE), "--silent", "--blobHost", host, "--blobPort", str(port)]
    options = ["--location", str(folder), "--skipApiVersionCheck", "--disableTelemetry"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    return [*command, *options], environment


def container_token(container: str) -> str:
    """Return a SAS token that permits listing and reading one container of Azurite's account, and nothing else."""
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    token: str = generate_container_sas(
        AZURITE_ACCOUNT,
        container,
        account_key=AZURITE_KEY,
        permission=ContainerSasPermissions(read=True, list=True),
        expiry=datetime.now(UTC) + timedelta(days=1),
    )
    return token


@contextlib.contextmanager
def run_server(
    program: Path, command: list[str], environment: dict[str, str], ready_address: str, folder: Path
) -> Iterator[None]:
    """Run a server until the end of the block; skip the test if it is not installed."""
    if not program.exists():
        pytest.skip(f"{program.name} is not installed: `make test-staging` installs it")
    log = (folder / "log").open("w")
    command = [*KILLED_WITH_PARENT, *command]
    with log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as server:
        try:
            wait_until_ready(server, ready_address, folder / "log")
            yield
        finally:
            server.terminate()


def wait_until_ready(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Wait until a server responds, with any status."""

    def responds() -> bool:
        assert server.poll() is None, f"the server has ended:\n{log.read_text()}"
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            return False
        return True

    wait_until(responds, f"{address} responds", START_SECONDS, details=log.read_text)
