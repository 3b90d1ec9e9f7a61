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
from tests.trainer.elastic.nodes import etcd_process, running_etcd

pytestmark = [pytest.mark.twin, pytest.mark.timeout(60)]

LOOPBACK = IPv4Address("127.0.0.1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with certificates of one CA for the server and a client, and of another CA."""
    folder = tmp_path_factory.mktemp("secured")
    authority, other_authority = pki.new_authority("everstep"), pki.new_authority("other_authority")
    authority.save(folder, "authority")
    pki.issue(authority, "etcd", names=["localhost"], addresses=[LOOPBACK]).save(folder, "server")
    pki.issue(authority, "worker").save(folder, "client")
    other_authority.save(folder, "other-authority")
    pki.issue(other_authority, "worker").save(folder, "other-client")
    return folder


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[EtcdOptions]:
    """Run an etcd with mutual TLS and yield the options of an authorised client."""
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


def test_requests_succeed_with_mutual_tls(secured: EtcdOptions) -> None:
    with closing(Etcd(secured)) as etcd:
        lease = etcd.grant(5)
        etcd.put("/secured/a", "1", lease)

        assert [entry.value for entry in etcd.get("/secured/")[0]] == ["1"]
        assert etcd.keep_alive(lease, request_seconds=1, retry_seconds=1)
        with closing(etcd.watch("/secured/", 1, 5)) as watch:
            assert next(watch)[0].entry.key == "/secured/a"


@pytest.mark.parametrize(
    ("authority", "client"),
    [
        ("authority", None),
        ("authority", "other-client"),
        ("other-authority", "client"),
        (None, None),
    ],
    ids=[
        "a client without a certificate",
        "a client of another authority",
        "a server of another authority",
        "a client without TLS",
    ],
)
def test_other_clients_and_servers_are_refused(
    secured: EtcdOptions, folder: Path, authority: str | None, client: str | None
) -> None:
    options = replace(
        secured,
        certificate_authority=str(folder / f"{authority}.crt") if authority else None,
        certificate=str(folder / f"{client}.crt") if client else None,
        key=str(folder / f"{client}.key") if client else None,
    )

    with closing(Etcd(options)) as etcd, pytest.raises(EtcdUnreachableError):
        etcd.get("/secured/")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdOptions]:
    """Run an etcd with users; `worker` has access to `/everstep/` only."""
    with running_etcd(tmp_path_factory.mktemp("guarded")) as endpoint:
        keys = {
            "key": "L2V2ZXJzdGVwLw==",
            "range_end": "L2V2ZXJzdGVwMA==",
        }  # /everstep/ to /everstep0
        post(endpoint, "auth/role/add", name="root")
        post(endpoint, "auth/role/add", name="run")
        post(endpoint, "auth/role/grant", name="run", perm={"permType": "READWRITE", **keys})
        for user, role in (("root", "root"), ("worker", "run")):
            post(endpoint, "auth/user/add", name=user, password="swordfish")
            post(endpoint, "auth/user/grant", user=user, role=role)
        post(endpoint, "auth/enable")
        yield EtcdOptions(endpoints=(endpoint,), user="worker", password="swordfish")


def post(endpoint: str, path: str, **body: Any) -> None:
    connection = http.client.HTTPConnection(endpoint, timeout=5)
    connection.request("POST", f"/v3/{path}", json.dumps(body))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    connection.close()


def test_a_user_accesses_only_the_granted_keys(guarded: EtcdOptions) -> None:
    with closing(Etcd(guarded)) as etcd:
        lease = etcd.grant(5)
        etcd.put("/everstep/a", "1", lease)

        assert etcd.seconds_left(lease, request_seconds=1) in {3, 4}
        assert [entry.value for entry in etcd.get("/everstep/")[0]] == ["1"]
        with pytest.raises(EtcdRefusedError, match="permission denied"):
            etcd.put("/other", "1")


def test_a_wrong_password_is_refused_immediately_and_never_shown(guarded: EtcdOptions) -> None:
    options = replace(guarded, password="carp-in-a-pond")

    with (
        closing(Etcd(options)) as etcd,
        pytest.raises(EtcdRefusedError, match="does not accept user 'worker'") as refused,
    ):
        etcd.get("/everstep/")

    assert "carp" not in f"{refused.value} {options}"


def test_a_client_without_a_user_is_refused(guarded: EtcdOptions) -> None:
    options = replace(guarded, user=None, password=None)

    with closing(Etcd(options)) as etcd, pytest.raises(EtcdRefusedError):
        etcd.get("/everstep/")
