"""The expiry of etcd's certificate: from real handshakes, and from arbitrary certificates."""

import asyncio
import math
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from controller import etcd_certificate
from controller.etcd_certificate import expiry, not_after, tls_endpoint
from controller.metrics import Metrics
from controller.operator import CERTIFICATE_RETRY_SECONDS, Operator
from etcd.certificates import VALIDITY_DAYS, Certificate, issue
from tests.controller.builders import spec
from tests.controller.connections import serving_one_connection

KEY = ec.generate_private_key(ec.SECP256R1())
TLS = "--rdzv_conf=protocol=https,cacert=/etc/ca.crt"


def certificate(end: datetime, name: str = "etcd", serial: int = 1) -> bytes:
    """Return a certificate in DER."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, KEY.public_key(), serial)
    builder = builder.not_valid_before(end - timedelta(days=1)).not_valid_after(end)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@contextmanager
def etcd(folder: Path) -> Iterator[int]:
    """Yield the port of a TLS server with etcd's certificate, which refuses clients without a certificate."""
    for name, content in issue("ca", [Certificate(name="server", names=["DNS:etcd"])]).items():
        (folder / name).write_text(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED

    def handshake(connection: socket.socket) -> None:
        context.wrap_socket(connection, server_side=True)

    with serving_one_connection(handshake) as port:
        yield port


def job_spec(endpoint: str, *args: str) -> dict[str, Any]:
    container = {"name": "elasticjob-worker", "image": "x", "args": [*args, "train.py"]}
    template = {"spec": {"containers": [container]}}
    worker = {"replicas": 1, "template": template}
    return {**spec(1), "rdzvEndpoint": endpoint, "replicaSpecs": {"Worker": worker}}


def test_the_expiry_is_read_from_a_server_that_requires_client_certificates(
    tmp_path: Path,
) -> None:
    with etcd(tmp_path) as port:
        expires_at = expiry("127.0.0.1", port)

    remaining = datetime.fromtimestamp(expires_at, UTC) - datetime.now(UTC)
    assert VALIDITY_DAYS - 1 <= remaining / timedelta(days=1) <= VALIDITY_DAYS


def test_a_server_without_tls_is_an_error() -> None:
    def refuse(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    with serving_one_connection(refuse) as port, pytest.raises(OSError, match="SSL"):
        expiry("127.0.0.1", port)


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)),  # noqa: DTZ001 - hypothesis wants naive limits
    st.text(st.characters(categories=["L"]), min_size=1, max_size=15),
    st.integers(1, 2**158),
)
def test_the_expiry_of_any_certificate_is_read(end: datetime, name: str, serial: int) -> None:
    end = end.replace(microsecond=0, tzinfo=UTC)

    assert not_after(certificate(end, name, serial)) == end.timestamp()


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not an X\.509 certificate$"):
        not_after(data)


@pytest.mark.parametrize("text", [b"261301000000Z", b"2601010000000", b"\xff60101000000Z"])
def test_a_certificate_with_an_invalid_expiry_is_refused(text: bytes) -> None:
    content = certificate(datetime(2026, 1, 1, tzinfo=UTC))
    assert b"260101000000Z" in content

    with pytest.raises(ValueError, match=r"^not an X\.509 certificate$"):
        not_after(content.replace(b"260101000000Z", text))


@pytest.mark.parametrize(
    ("body", "endpoint"),
    [
        (job_spec("etcd.ns.svc:2379", TLS), ("etcd.ns.svc", 2379)),
        (job_spec("etcd.ns.svc:2379", "--rdzv_conf=cacert=/etc/ca.crt"), ("etcd.ns.svc", 2379)),
        (
            job_spec("etcd.ns.svc:2379", "--rdzv-conf", "user=a,protocol=https"),
            ("etcd.ns.svc", 2379),
        ),
        (job_spec("etcd", TLS), ("etcd", 2379)),
        (job_spec("[fd00::7]", TLS), ("fd00::7", 2379)),
        (job_spec("[fd00::7]:2380", TLS), ("fd00::7", 2380)),
        (job_spec("etcd-0:2380,etcd-1:2380", TLS), ("etcd-0", 2380)),
        (job_spec("etcd.ns.svc:2379"), None),
        (job_spec("etcd.ns.svc:2379", "--rdzv_conf=protocol=http,cacert="), None),
        (job_spec("etcd.ns.svc:2379", "--url=https://x/?protocol=https"), None),
        (job_spec(",", TLS), None),
        ({"rdzvEndpoint": "etcd:2379", "replicaSpecs": None}, None),
        ({}, None),
    ],
)
def test_only_the_etcd_of_a_job_with_tls_is_queried(
    body: dict[str, Any], endpoint: tuple[str, int] | None
) -> None:
    assert tls_endpoint(body) == endpoint


class ReconcilerWithMetrics:
    """A stand-in for the reconciler, of which the operator uses only the metrics."""

    def __init__(self) -> None:
        self.metrics = Metrics()


def test_the_controller_exports_the_expiry_of_a_jobs_etcd_and_forgets_it_with_the_job(
    tmp_path: Path,
) -> None:
    reconciler = ReconcilerWithMetrics()
    metrics = reconciler.metrics
    operator = Operator(reconciler, "ns", client.Configuration)  # type: ignore[arg-type]
    labels = {"namespace": "ns", "elasticjob": "training"}
    name = "everstep_etcd_certificate_expiry_timestamp_seconds"

    async def scenario(port: int) -> None:
        body = job_spec(f"127.0.0.1:{port}", TLS)
        await operator._job_changed("training", "ns", "ADDED", body)
        task = asyncio.create_task(operator.read_certificates())
        while metrics.registry.get_sample_value(name, labels) is None:
            await asyncio.sleep(0.01)
        task.cancel()

    with etcd(tmp_path) as port:
        asyncio.run(scenario(port))

    assert (metrics.registry.get_sample_value(name, labels) or 0) > datetime.now(UTC).timestamp()
    metrics.forget(("ns", "training"))
    assert metrics.registry.get_sample_value(name, labels) is None


def test_the_certificate_of_a_job_that_is_deleted_and_created_again_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If both happen between two rounds of the reader, its gauge must not be missing for an hour."""
    readings, rounds, sleep = list[str](), list[float](), asyncio.sleep

    def expiry(host: str, port: int) -> float:
        readings.append(f"{host}:{port}")
        return 1.0

    async def end_round(seconds: float) -> None:
        rounds.append(seconds)
        await sleep(0.001)

    monkeypatch.setattr(etcd_certificate, "expiry", expiry)
    monkeypatch.setattr(asyncio, "sleep", end_round)
    operator = Operator(ReconcilerWithMetrics(), "ns", client.Configuration)  # type: ignore[arg-type]

    async def count_after(*events: str) -> int:
        for event in events:
            await operator._job_changed("training", "ns", event, job_spec("etcd:2379", TLS))
        last_round = len(rounds) + 2  # the next round may have begun before the events
        while len(rounds) < last_round:
            await sleep(0.001)
        return len(readings)

    async def scenario() -> list[int]:
        reader = asyncio.create_task(operator.read_certificates())
        counts = [
            await count_after(*events) for events in (["ADDED"], ["MODIFIED"], ["DELETED", "ADDED"])
        ]
        reader.cancel()
        return counts

    assert asyncio.run(scenario()) == [1, 1, 2], "an event about the same job causes no handshake"


def test_a_job_that_no_longer_uses_tls_has_no_expiry() -> None:
    reconciler = ReconcilerWithMetrics()
    operator = Operator(reconciler, "ns", client.Configuration)  # type: ignore[arg-type]
    labels = {"namespace": "ns", "elasticjob": "training"}
    name = "everstep_etcd_certificate_expiry_timestamp_seconds"

    async def scenario() -> None:
        await operator._job_changed("training", "ns", "ADDED", job_spec("etcd:2379", TLS))
        reconciler.metrics.certificate_expiry.labels("ns", "training").set(1.0)
        await operator._job_changed("training", "ns", "MODIFIED", job_spec("etcd:2379"))

    asyncio.run(scenario())

    assert reconciler.metrics.registry.get_sample_value(name, labels) is None


def test_a_certificate_that_could_not_be_read_is_read_again_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def expiry(host: str, port: int) -> float:
        raise ConnectionRefusedError(f"{host}:{port}")

    monkeypatch.setattr(etcd_certificate, "expiry", expiry)
    operator = Operator(ReconcilerWithMetrics(), "ns", client.Configuration)  # type: ignore[arg-type]

    def wait_seconds() -> float:
        return operator.certificates_due.get(("ns", "training"), math.inf) - time.monotonic()

    async def scenario() -> None:
        await operator._job_changed("training", "ns", "ADDED", job_spec("etcd:2379", TLS))
        reader = asyncio.create_task(operator.read_certificates())
        async with asyncio.timeout(10):
            while wait_seconds() > CERTIFICATE_RETRY_SECONDS:
                await asyncio.sleep(0.001)
        reader.cancel()

    asyncio.run(scenario())

    assert wait_seconds() > 0, "a job without etcd does not cause a warning in each round"
