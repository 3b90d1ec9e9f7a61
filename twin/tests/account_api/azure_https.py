"""The twin's subscription under Azure's host names, over HTTPS, for unmodified clients.

A client reaches it through a proxy (`HTTPS_PROXY`) and trusts its certificate authority
(`REQUESTS_CA_BUNDLE`); it authenticates with Entra using a client secret, as a pipeline does. All other hosts are
refused, so that a test cannot reach the internet by mistake.
"""

import base64
import json
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cloudtwin.accounts import AZURE_SUBSCRIPTION
from cloudtwin.providers.azure.common import TENANT
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from twin.tests.account_api.azure import (
    ARM,
    GRAPH,
    LOGIN,
    REGISTRY_DOMAIN,
    AzureApi,
    AzureError,
    AzureRequest,
)

CLIENT = "00000000-0000-4000-8000-000000000003"
HOSTS = (ARM, GRAPH, LOGIN, f"*{REGISTRY_DOMAIN}")
AUDIENCES: Mapping[str, str] = {
    ARM: f"https://{ARM}",
    GRAPH: f"https://{GRAPH}",
}
REGISTRY_AUDIENCE = "https://containerregistry.azure.net"
TOKEN_LIFETIME_SECONDS = 3600
POLL_SECONDS = 0.01  # interval at which the server checks for its shutdown
OK, UNAUTHORIZED = HTTPStatus.OK, HTTPStatus.UNAUTHORIZED


@dataclass(frozen=True)
class HostResponse:
    """A response, without its transport.

    Attributes:
        status: HTTP status.
        content: content of the JSON body.
        headers: additional headers.
    """

    status: HTTPStatus
    content: object
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AzureHosts:
    """The Azure hosts that a check of a subscription calls.

    Attributes:
        api: the APIs behind the hosts.
    """

    api: AzureApi

    def respond(
        self, host: str, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> HostResponse:
        """Return the response of a host to a request."""
        parts = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        path = unquote(parts.path)
        if host == LOGIN:
            return self._login(method, path, parse_qs(body.decode()))
        if host.endswith(REGISTRY_DOMAIN):
            return self._registry(host, method, path, headers, body)
        if not self._accepts(headers, AUDIENCES[host]):
            message = "Authentication failed. The 'Authorization' header is missing or invalid."
            return _error(UNAUTHORIZED, "InvalidAuthenticationToken", message)
        request = AzureRequest(method, path, query, json.loads(body or b"{}"))
        respond = self.api.manage if host == ARM else self.api.graph
        try:
            return HostResponse(OK, respond(request))
        except AzureError as refusal:
            return _error(refusal.status, refusal.code, refusal.message)

    # -- Entra

    def _login(self, method: str, path: str, form: Mapping[str, list[str]]) -> HostResponse:
        """Return the response of Entra: its discovery documents, or a token for a client secret."""
        root = f"https://{LOGIN}/{TENANT}"
        token_url = f"{root}/oauth2/v2.0/token"
        content: dict[str, object]
        if path.endswith("/discovery/instance"):
            metadata = {"preferred_network": LOGIN, "preferred_cache": LOGIN, "aliases": [LOGIN]}
            discovery = f"{root}/v2.0/.well-known/openid-configuration"
            content = {
                "tenant_discovery_endpoint": discovery,
                "api-version": "1.1",
                "metadata": [metadata],
            }
            return HostResponse(OK, content)
        if path.endswith("/v2.0/.well-known/openid-configuration"):
            content = {
                "token_endpoint": token_url,
                "authorization_endpoint": f"{root}/oauth2/v2.0/authorize",
                "issuer": f"{root}/v2.0",
            }
            return HostResponse(OK, content)
        if (method, path) != ("POST", urlsplit(token_url).path):
            return HostResponse(HTTPStatus.NOT_FOUND, {"error": "invalid_request"})
        (secret,), (scope,) = form.get("client_secret", [""]), form["scope"]
        if secret != self.api.facts.secret:
            return HostResponse(
                UNAUTHORIZED,
                {
                    "error": "invalid_client",
                    "error_description": "AADSTS7000222: The provided client secret keys for app are expired.",
                    "error_codes": [7000222],
                },
            )
        access_token = self._token(scope.removesuffix("/.default"))
        content = {
            "token_type": "Bearer",
            "expires_in": TOKEN_LIFETIME_SECONDS,
            "access_token": access_token,
        }
        return HostResponse(OK, content)

    def _token(self, audience: str) -> str:
        """Return a token in the form that Entra issues, without a signature."""
        now = int(time.time())
        claims = {
            "aud": audience.rstrip("/"),
            "tid": TENANT,
            "oid": self.api.facts.caller,
            "appid": CLIENT,
            "iat": now,
            "exp": now + TOKEN_LIFETIME_SECONDS,
        }
        parts = ({"typ": "JWT", "alg": "none"}, claims)
        encoded_parts = [
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts
        ]
        return ".".join([*(part.rstrip("=") for part in encoded_parts), "none"])

    def _accepts(self, headers: Mapping[str, str], audience: str) -> bool:
        """Return True if the request has a token of this tenant for an audience."""
        claims = _claims(headers.get("Authorization", "").removeprefix("Bearer "))
        return claims.get("aud") == audience and claims.get("tid") == TENANT

    # -- a registry

    def _registry(
        self, host: str, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> HostResponse:
        """Return the response of a registry: tokens in exchange for an Entra token, or the metadata of an image."""
        form = parse_qs(body.decode())
        if path == "/oauth2/exchange":
            (token,) = form.get("access_token", [""])
            if _claims(token).get("aud") != REGISTRY_AUDIENCE:
                return HostResponse(
                    UNAUTHORIZED, {"errors": [{"code": "UNAUTHORIZED", "message": "token"}]}
                )
            return HostResponse(OK, {"refresh_token": self._token(host)})
        if path == "/oauth2/token":
            return HostResponse(OK, {"access_token": self._token(host)})
        if not self._accepts(headers, host):
            repository = path.removeprefix("/acr/v1/").partition("/_")[0]
            scope = f'service="{host}",scope="repository:{repository}:metadata_read"'
            challenge = f'Bearer realm="https://{host}/oauth2/token",{scope}'
            errors = {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}
            return HostResponse(UNAUTHORIZED, errors, {"WWW-Authenticate": challenge})
        try:
            return HostResponse(OK, self.api.image(AzureRequest(method, path, {}, {})))
        except AzureError as refusal:
            errors = {"errors": [{"code": refusal.code, "message": refusal.message}]}
            return HostResponse(refusal.status, errors)


def _error(status: HTTPStatus, code: str, message: str) -> HostResponse:
    return HostResponse(status, {"error": {"code": code, "message": message}})


def _claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a token; empty if the text is not a token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(f"{parts[1]}=="))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


@contextmanager
def serve(api: AzureApi) -> Iterator[dict[str, str]]:
    """Serve a subscription; yield the environment with which Azure's clients reach it."""
    with tempfile.TemporaryDirectory(prefix="cloudtwin-azure-") as folder:
        authority, context = _certificates(Path(folder))
        hosts = AzureHosts(api)

        class Handler(_Handler):
            tls = context
            azure = hosts

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(
            target=server.serve_forever, kwargs={"poll_interval": POLL_SECONDS}, daemon=True
        )
        thread.start()
        try:
            yield {
                "HTTPS_PROXY": f"http://127.0.0.1:{server.server_address[1]}",
                "REQUESTS_CA_BUNDLE": str(authority),
                "ARM_SUBSCRIPTION_ID": AZURE_SUBSCRIPTION,
                "ARM_TENANT_ID": TENANT,
                "ARM_CLIENT_ID": CLIENT,
                "ARM_CLIENT_SECRET": "secret",
            }
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """A connection to the proxy, and then, within it, TLS to one of the hosts."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # else each body waits 40 ms for the acknowledgment of its headers
    )
    tls: ssl.SSLContext
    azure: AzureHosts
    host = ""

    def do_CONNECT(self) -> None:
        self.host = self.path.rpartition(":")[0]
        is_served = self.host in HOSTS or self.host.endswith(REGISTRY_DOMAIN)
        if not is_served:
            self.send_error(HTTPStatus.FORBIDDEN, f"{self.host} is not a host of the twin")
            return
        self.send_response(OK)
        self.end_headers()
        self.wfile.flush()
        self.connection = self.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", 0)
        self.close_connection = False

    def do_GET(self) -> None:
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def _respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        response = self.azure.respond(
            self.host, self.command, self.path, dict(self.headers.items()), body
        )
        content = json.dumps(response.content).encode()
        self.send_response(response.status)
        for name, value in {"Content-Type": "application/json", **response.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # the TLS socket, which has replaced the server's socket

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as in the base class
        """Log nothing."""


def _certificates(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file of a new certificate authority, and a TLS context with a certificate for all hosts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cloudtwin")])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    )
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private_key = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    authority, chain = folder / "authority.pem", folder / "server.pem"
    authority.write_bytes(certificate)
    chain.write_bytes(private_key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return authority, context
