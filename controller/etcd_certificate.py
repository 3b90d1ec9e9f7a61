"""The time at which the certificate of a job's etcd expires, from a TLS handshake with it.

All certificates of etcd are issued together with the same validity, so the servers' certificate represents all of
them. The handshake needs no credentials, which the controller does not have: with TLS 1.3 etcd sends its certificate
before it refuses a client without one.
"""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from everstep.catalog.addresses import etcd_address, etcd_endpoints

TIMEOUT_SECONDS = 5.0
TLS_OPTION = re.compile(r"(?:^|[=,])(?:protocol=https(?:,|$)|(?:cacert|cert)=.)")
"""Options of --rdzv_conf, each of which makes the workers connect to etcd with TLS."""
LONG_FORM = 0x80
VERSION_TAG, UTC_TIME_TAG = 0xA0, 0x17
VALIDITY_INDEX = 3  # after serial number, algorithm and issuer


def tls_endpoint(spec: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return host and port of the first etcd in a job's spec; None if it has no TLS or is not valid."""
    try:
        pod = spec["replicaSpecs"]["Worker"]["template"]["spec"]
        arguments = [arg for container in pod["containers"] for arg in container.get("args") or ()]
        if not any(map(TLS_OPTION.search, arguments)):
            return None
        return etcd_address(etcd_endpoints(spec["rdzvEndpoint"])[0])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return None


def expiry(host: str, port: int) -> float:
    """Return the Unix time at which the certificate of a server expires.

    Raises:
        OSError: the server does not respond, or not with TLS.
        ValueError: its certificate cannot be read.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent to this server
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with (
        socket.create_connection((host, port), timeout=TIMEOUT_SECONDS) as connection,
        context.wrap_socket(connection, server_hostname=host) as channel,
    ):
        return not_after(channel.getpeercert(binary_form=True) or b"")


def not_after(certificate: bytes) -> float:
    """Return the Unix time at which a certificate expires.

    Args:
        certificate: X.509 certificate in DER.

    Raises:
        ValueError: it is not an X.509 certificate.
    """
    try:
        (_, signed), *_ = _elements(certificate)
        (_, content), *_ = _elements(signed)
        fields = [value for tag, value in islice(_elements(content), 5) if tag != VERSION_TAG]
        (_, _), (tag, text) = _elements(fields[VALIDITY_INDEX])
        # From 1969 to 2049, `%y` and a certificate (RFC 5280) agree on the century of a two-digit year.
        form = "%y%m%d%H%M%SZ" if tag == UTC_TIME_TAG else "%Y%m%d%H%M%SZ"
        return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()
    except (IndexError, ValueError) as error:
        raise ValueError("not an X.509 certificate") from error


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each element of a DER sequence.

    Raises:
        IndexError: an element is incomplete.
    """
    start = 0
    while start < len(data):
        tag, length, start = data[start], data[start + 1], start + 2
        if length & LONG_FORM:
            size = length - LONG_FORM
            length, start = int.from_bytes(data[start : start + size]), start + size
        if start + length > len(data):
            raise IndexError
        yield tag, data[start : start + length]
        start += length
