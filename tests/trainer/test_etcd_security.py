"""The etcd client against an etcd that trusts nobody: TLS on both sides, and etcd's own users."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from everstep.elastic.etcd import Etcd, EtcdOptions, EtcdRefusedError, EtcdUnreachableError
from tests.trainer.nodes import etcd_process, running_etcd
from twin.nodes import pki

pytestmark = [pytest.mark.twin, pytest.mark.timeout(60)]

LOOPBACK = IPv4Address("127.0.0.1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of an authority for the server and one client, and of another authority."""
    folder = tmp_path_factory.mktemp("secured")
    authority, stranger = pki.new_authority("everstep"), pki.new_authority("stranger")
    authority.save(folder, "authority")
    pki.issue(authority, "etcd", names=["localhost"], addresses=[LOOPBACK]).save(folder, "server")
    pki.issue(authority, "worker").save(folder, "client")
    stranger.save(folder, "other-authority")
    pki.issue(stranger, "worker").save(folder, "other-client")
    return folder


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[EtcdOptions]:
    """An etcd that speaks TLS to those with a certificate; how a rightful client reaches it."""
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
            patience_seconds=1,
        )


def test_with_certificates_on_both_sides_everything_passes(secured):
    with closing(Etcd(secured)) as etcd:
        lease = etcd.grant(5)
        etcd.put("/secured/a", "1", lease)

        assert [entry.value for entry in etcd.get("/secured/")[0]] == ["1"]
        assert etcd.keep_alive(lease, request_seconds=1, patience_seconds=1)
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
        "a client that speaks in the clear",
    ],
)
def test_nobody_else_is_let_in_or_believed(secured, folder, authority, client):
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
    """An etcd with users, of whom `worker` may touch `/everstep/` alone."""
    with running_etcd(tmp_path_factory.mktemp("guarded")) as endpoint:
        keys = {
            "key": "L2V2ZXJzdGVwLw==",
            "range_end": "L2V2ZXJzdGVwMA==",
        }  # /everstep/ to /everstep0
        ask(endpoint, "auth/role/add", name="root")
        ask(endpoint, "auth/role/add", name="run")
        ask(endpoint, "auth/role/grant", name="run", perm={"permType": "READWRITE", **keys})
        for user, role in (("root", "root"), ("worker", "run")):
            ask(endpoint, "auth/user/add", name=user, password="swordfish")
            ask(endpoint, "auth/user/grant", user=user, role=role)
        ask(endpoint, "auth/enable")
        yield EtcdOptions(endpoints=(endpoint,), user="worker", password="swordfish")


def ask(endpoint: str, path: str, **body: Any) -> None:
    connection = http.client.HTTPConnection(endpoint, timeout=5)
    connection.request("POST", f"/v3/{path}", json.dumps(body))
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def test_a_user_reads_and_writes_what_is_granted_and_nothing_else(guarded):
    with closing(Etcd(guarded)) as etcd:
        lease = etcd.grant(5)
        etcd.put("/everstep/a", "1", lease)

        assert etcd.seconds_left(lease, request_seconds=1) in {3, 4}
        assert [entry.value for entry in etcd.get("/everstep/")[0]] == ["1"]
        with pytest.raises(EtcdRefusedError, match="permission denied"):
            etcd.put("/other", "1")


def test_a_wrong_password_is_refused_at_once_and_shown_nowhere(guarded):
    options = replace(guarded, password="carp-in-a-pond")

    with (
        closing(Etcd(options)) as etcd,
        pytest.raises(EtcdRefusedError, match="does not accept user 'worker'") as refused,
    ):
        etcd.get("/everstep/")

    assert "carp" not in f"{refused.value} {options}"


def test_nobody_reads_without_a_user(guarded):
    options = replace(guarded, user=None, password=None)

    with closing(Etcd(options)) as etcd, pytest.raises(EtcdRefusedError):
        etcd.get("/everstep/")
