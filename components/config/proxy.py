"""The HTTP proxy through which nodes, and on AKS pods, reach the internet."""

import re
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from components.config.faults import refusal
from components.config.section import Section, has_password, matches_pattern

DEFAULT_NO_PROXY = ("localhost", "127.0.0.1", "169.254.169.254", ".svc", ".cluster.local")
"""Destinations that nodes and pods always reach without the proxy: themselves, the metadata service, Services."""

MAX_CA_LENGTH = 8000  # a node's user data, which EC2 limits to 16 KiB, contains it in base64
_URL = re.compile(r"https?://(?P<host>[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5})/?")


def _is_proxy(text: str) -> str:
    """Check that a string is the URL of a proxy with a port and without credentials."""
    if has_password(text):
        return text
    if "@" in text:
        fix = "remove the user name: use a proxy that admits nodes by their addresses"
        raise refusal("contains a user name, which the state would store in plaintext", fix)
    match = _URL.fullmatch(text)
    if match is None or not 0 < int(match["port"]) <= 65535:
        raise refusal("is not the URL of a proxy", "write it as http://proxy.example.org:3128")
    return text


def _is_http(text: str) -> str:
    """Check that the proxy itself is reached over HTTP, as AKS requires for `http`."""
    if urlsplit(text).scheme == "https" and not has_password(text):  # the fix shows the URL
        raise refusal("must begin with http://", f"write it as http{text.removeprefix('https')}")
    return text


def _is_ca(text: str) -> str:
    """Check that a string contains CA certificates in PEM format."""
    import ssl  # imported here: few stacks have a certificate

    fix = "paste the PEM file of the CA, from -----BEGIN CERTIFICATE----- on"
    if len(text) > MAX_CA_LENGTH:
        rule = f"has {len(text)} characters; the maximum is {MAX_CA_LENGTH}"
        raise refusal(rule, "keep only the CA that signs for the proxy")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, TypeError, ValueError):
        raise refusal("is not a certificate in PEM format", fix) from None
    stored = context.cert_store_stats()
    if stored["x509_ca"] < stored["x509"]:
        raise refusal("contains a certificate that is not a CA certificate", fix)
    return text


ProxyUrl = Annotated[str, AfterValidator(_is_proxy)]
Destination = Annotated[
    str,
    matches_pattern(
        r"\.?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(/[0-9]{1,2})?",
        "a host, a domain, an address or a block; wildcards are not supported",
        ".corp.example.org or 10.0.0.0/8",
    ),
]
CaCertificates = Annotated[str, AfterValidator(_is_ca)]


class ProxyConfig(Section):
    """The HTTP proxy of nodes, and on AKS of pods."""

    http: Annotated[ProxyUrl, AfterValidator(_is_http)] = Field(
        description="URL of the proxy for HTTP, without credentials."
    )
    https: ProxyUrl | None = Field(
        default=None, description="URL of the proxy for HTTPS; absent: the URL of `http`."
    )
    no_proxy: tuple[Destination, ...] = Field(
        default=(),
        description="Hosts, domains and blocks that are reached without the proxy, in addition to the cluster's "
        "networks and names, the metadata service and the storage.",
    )
    trusted_ca: CaCertificates | None = Field(
        default=None,
        description="Certificates in PEM format of the CAs that nodes trust in addition to the public "
        "CAs, for a proxy that inspects TLS.",
    )

    @property
    def for_https(self) -> str:
        """The URL of the proxy for HTTPS."""
        return self.https or self.http

    def all_no_proxy(self, destinations: Sequence[str]) -> list[str]:
        """Return the entries of NO_PROXY: all destinations that are reached without the proxy.

        Args:
            destinations: the networks and endpoints of the cloud.
        """
        return list(dict.fromkeys([*DEFAULT_NO_PROXY, *destinations, *self.no_proxy]))
