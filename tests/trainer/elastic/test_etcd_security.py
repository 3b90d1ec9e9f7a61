"""The etcd client against a secured etcd: mutual TLS and etcd users."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.nodes.control_plane import pki

from everstep.elastic.membership.etcd_client import Etcd, EtcdRefusedError, EtcdUnreachableError
from everstep.elastic.membership.etcd_connection import EtcdOptions
from tests.trainer.elastic.nodes import etcd_process
from tests.waiting import wait_until

pytestmark = pytest.mark.twin

TOKEN_SECONDS = 1
LOOPBACK = IPv4Address("127.0.0.1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with certificates of one CA for the server and a client, and of another CA."""
    folder = tmp_path_factory.mktemp("secured")
    ca, other_ca = pki.new_ca("everstep"), pki.new_ca("other")
    ca.save(folder, "authority")
    pki.issue(ca, "etcd", names=["localhost"], addresses=[LOOPBACK]).save(folder, "server")
    pki.issue(ca, "worker").save(folder, "client")
    other_ca.save(folder, "other-authority")
    pki.issue(other_ca, "worker").save(folder, "other-client")
    return folder


@pytest.fixture(scope="module")
def tls_options(folder: Path) -> Iterator[EtcdOptions]:
    """Run an etcd with mutual TLS and yield the options of an authorized client."""
    flags = (
        f"--cert-file={folder / 'server.crt'}",
        f"--key-file={folder / 'server.key'}",
        f"--trusted-ca-file={folder / 'authority.crt'}",
        "--client-cert-auth",
    )
    with etcd_process(folder, *flags, scheme="https") as (endpoint, _):
        yield EtcdOptions(
            endpoints=(endpoint,),
            certificate_authority=str(folder / "authority.crt"),
            certificate=str(folder / "client.crt"),
            key=str(folder / "client.key"),
            retry_seconds=1,
        )


def test_requests_succeed_with_mutual_tls(tls_options: EtcdOptions) -> None:
    with closing(Etcd(replace(tls_options, retry_seconds=60))) as etcd:
        lease = etcd.grant(60)
        etcd.put("/secured/a", "1", lease)

        assert [entry.value for entry in etcd.get("/secured/")[0]] == ["1"]
        assert etcd.keep_alive(lease, request_seconds=30, retry_seconds=60)
        with closing(etcd.watch("/secured/", 1, 100)) as watch:
            assert next(watch)[0].entry.key == "/secured/a"


@pytest.mark.parametrize(
    ("ca", "client"),
    [
        ("authority", None),
        ("authority", "other-client"),
        ("other-authority", "client"),
        (None, None),
    ],
    ids=[
        "a client without a certificate",
        "a client of another CA",
        "a server of another CA",
        "a client without TLS",
    ],
)
def test_clients_and_servers_without_a_trusted_certificate_are_refused(
    tls_options: EtcdOptions, folder: Path, ca: str | None, client: str | None
) -> None:
    options = replace(
        tls_options,
        certificate_authority=str(folder / f"{ca}.crt") if ca else None,
        certificate=str(folder / f"{client}.crt") if client else None,
        key=str(folder / f"{client}.key") if client else None,
    )

    with closing(Etcd(options)) as etcd, pytest.raises(EtcdUnreachableError):
        etcd.get("/secured/")


@pytest.fixture(scope="module")
def user_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdOptions]:
    """Run an etcd with users and tokens that expire after one second; `worker` has access to `/everstep/` only."""
    folder = tmp_path_factory.mktemp("guarded")
    with etcd_process(folder, f"--auth-token-ttl={TOKEN_SECONDS}") as (endpoint, _):
        add_users(endpoint)
        yield worker(folder, endpoint)


def worker(folder: Path, endpoint: str) -> EtcdOptions:
    """Return the options of a worker, with its password in a file."""
    (folder / "password").write_text("swordfish\n")
    return EtcdOptions(endpoints=(endpoint,), user="worker", password_file=str(folder / "password"))


def add_users(endpoint: str) -> None:
    """Set up the users of an etcd without users and enable authentication."""
    # The range from /everstep/ to /everstep0, in base64.
    keys = {"key": "L2V2ZXJzdGVwLw==", "range_end": "L2V2ZXJzdGVwMA=="}
    post(endpoint, "auth/role/add", name="root")
    post(endpoint, "auth/role/add", name="run")
    post(endpoint, "auth/role/grant", name="run", perm={"permType": "READWRITE", **keys})
    for user, role in (("root", "root"), ("worker", "run")):
        post(endpoint, "auth/user/add", name=user, password="swordfish")
        post(endpoint, "auth/user/grant", user=user, role=role)
    post(endpoint, "auth/enable")


def post(endpoint: str, path: str, token: str = "", **body: Any) -> Any:
    with closing(http.client.HTTPConnection(endpoint, timeout=60)) as connection:
        headers = {"Authorization": token} if token else {}
        connection.request("POST", f"/v3/{path}", json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read()
        assert response.status == 200, content
        return json.loads(content)


def test_a_user_accesses_only_the_granted_keys(user_options: EtcdOptions) -> None:
    with closing(Etcd(user_options)) as etcd:
        lease = etcd.grant(60)
        etcd.put("/everstep/a", "1", lease)

        assert etcd.seconds_left(lease, request_seconds=30) in range(60)
        assert [entry.value for entry in etcd.get("/everstep/")[0]] == ["1"]
        with pytest.raises(EtcdRefusedError, match="permission denied"):
            etcd.put("/other", "1")


def test_a_wrong_password_is_refused_immediately_and_never_shown(
    user_options: EtcdOptions, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("carp-in-a-pond")
    options = replace(user_options, password_file=str(tmp_path / "password"))

    with (
        closing(Etcd(options)) as etcd,
        pytest.raises(EtcdRefusedError, match="does not accept user 'worker'") as refusal,
    ):
        etcd.get("/everstep/")

    assert "carp" not in f"{refusal.value} {options}"


def test_a_client_without_a_user_is_refused(user_options: EtcdOptions) -> None:
    options = replace(user_options, user=None, password_file=None)

    with closing(Etcd(options)) as etcd, pytest.raises(EtcdRefusedError):
        etcd.get("/everstep/")


def wait_until_expired(endpoint: str, token: str) -> None:
    """Wait until etcd refuses a token. Requests are rare, because each one extends the token."""

    def is_refused() -> bool:
        with closing(http.client.HTTPConnection(endpoint, timeout=60)) as connection:
            body = json.dumps({"key": "L2V2ZXJzdGVwLw=="})
            connection.request("POST", "/v3/kv/range", body, {"Authorization": token})
            return connection.getresponse().status == http.client.UNAUTHORIZED

    wait_until(is_refused, "the token has expired", 60, interval_seconds=3 * TOKEN_SECONDS)


def test_an_expired_token_is_renewed_within_one_attempt_while_lease_and_watch_continue(
    user_options: EtcdOptions,
) -> None:
    with closing(Etcd(user_options)) as etcd:
        lease = etcd.grant(120)
        etcd.put("/everstep/expiry/a", "1", lease)
        _, revision = etcd.get("/everstep/expiry/")
        with closing(etcd.watch("/everstep/expiry/", revision, 100)) as watch:
            assert next(watch)[0].entry.value == "1"
            expired_token = etcd._token
            assert expired_token
            wait_until_expired(user_options.endpoints[0], expired_token)

            assert etcd.keep_alive(lease, request_seconds=30, retry_seconds=0)
            assert etcd.seconds_left(lease, request_seconds=30), (
                "it fails if the renewal needs a second attempt"
            )
            etcd.put("/everstep/expiry/a", "2", lease)

            assert next(watch)[0].entry.value == "2", "the watch continues without the token"
            assert etcd._token != expired_token
        with closing(etcd.watch("/everstep/expiry/", revision, 100)) as watch:
            assert next(watch)[0].entry.value == "1", "a later watch uses the new token"


def test_the_password_file_is_read_again_after_a_password_change_in_etcd(tmp_path: Path) -> None:
    with etcd_process(tmp_path) as (endpoint, _):
        add_users(endpoint)
        with closing(Etcd(worker(tmp_path, endpoint))) as etcd:
            etcd.put("/everstep/a", "1")
            root = post(endpoint, "auth/authenticate", name="root", password="swordfish")["token"]
            post(endpoint, "auth/user/changepw", root, name="worker", password="trout")
            with pytest.raises(EtcdUnreachableError, match="does not accept user 'worker'"):
                etcd.call("kv/range", {"key": "YQ=="}, retry_seconds=0)

            (tmp_path / "password").write_text("trout")

            assert [entry.value for entry in etcd.get("/everstep/")[0]] == ["1"]


def test_a_client_waits_for_the_users_of_an_etcd_that_has_lost_its_data(tmp_path: Path) -> None:
    """A client that starts before the users exist again must not write without authentication."""
    with etcd_process(tmp_path) as (endpoint, _):
        options = replace(worker(tmp_path, endpoint), retry_seconds=0)
        with closing(Etcd(options)) as etcd:
            with pytest.raises(EtcdUnreachableError, match="authentication is not enabled"):
                etcd.put("/everstep/a", "1")

            add_users(endpoint)

            assert etcd.get("/everstep/")[0] == []
            etcd.put("/everstep/a", "1")
