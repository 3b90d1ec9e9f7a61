"""A client of image registries: resolves tags to digests and uploads layout folders.

It uses the distribution API of any registry, with a password or with the tokens that the registry's token service
issues for a password.
"""

import base64
import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from cloudtwin.errors import TwinError
from cloudtwin.images import oci_layout
from cloudtwin.progress import Step

TIMEOUT_SECONDS = 30.0
CHUNK = 1 << 20
PULL, PUSH = "pull", "pull,push"  # actions in the scope of a token
MANIFESTS = ", ".join((
    "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
))  # fmt: skip


class RegistryError(TwinError):
    """Error of a registry that cannot be reached or refuses a request.

    Attributes:
        status: the HTTP status; 0 without a response.
        code: the registry's own code, such as `NAME_UNKNOWN`; empty if there is none.
    """

    def __init__(self, problem: str, status: int = 0, code: str = "") -> None:
        super().__init__(problem)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Login:
    """User name and password of a registry; the password is not part of the repr."""

    user: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The value of the Authorization header."""
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


@dataclass
class Registry:
    """One registry.

    Attributes:
        host: its name in image references.
        login: user name and password; None for requests without them.
        endpoint: prefix of all requests; by default `https://HOST/v2`, or `http://HOST/v2` for a host that is this
            machine, as in Docker.
    """

    host: str
    login: Login | None = None
    endpoint: str = ""
    _authorization: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Fill in the endpoint."""
        if not self.endpoint:
            scheme = "http" if is_this_machine(self.host) else "https"
            self.endpoint = f"{scheme}://{self.host}/v2"

    def digest(self, repository: str, reference: str) -> str | None:
        """Return the digest of an image, or None if the repository has no such tag or digest.

        Raises:
            RegistryError: the registry cannot be reached or refuses.
        """
        try:
            with (
                self._request("GET", repository, f"manifests/{reference}", PULL) as response,
                self._connection_errors(),
            ):
                return f"sha256:{hashlib.sha256(response.read()).hexdigest()}"
        except RegistryError as error:
            if error.status == HTTPStatus.NOT_FOUND and error.code != "NAME_UNKNOWN":
                return None
            raise

    def has(self, repository: str, reference: str) -> bool:
        """Return True if the repository has a tag or digest. A registry that counts pulls does not count this.

        Raises:
            RegistryError: the registry cannot be reached or refuses.
        """
        try:
            with self._request("HEAD", repository, f"manifests/{reference}", PULL):
                return True
        except RegistryError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise

    def check_push(self, repository: str) -> None:
        """Check that images may be pushed to a repository, without pushing one.

        Raises:
            RegistryError: the registry cannot be reached or refuses.
        """
        location = self._start_upload(repository)
        with suppress(RegistryError):  # a registry removes abandoned uploads anyway
            self._open("DELETE", location, repository, PUSH, {}, None).close()

    def upload(self, source: Path, repository: str, tag: str, step: Step) -> str:
        """Upload the only image of a layout folder; return its digest. Existing blobs are not sent again.

        Raises:
            RegistryError: the registry cannot be reached or refuses.
        """
        descriptor = oci_layout.read(source)[0].descriptor
        blobs = source / "blobs" / "sha256"
        manifest = (blobs / descriptor["digest"].removeprefix("sha256:")).read_bytes()
        document = json.loads(manifest)
        for number, blob in enumerate(parts := [document["config"], *document["layers"]], start=1):
            step.note(f"{repository}: {number} of {len(parts)}, {blob['size'] / 1e6:.0f} MB")
            self._upload_blob(repository, blobs / blob["digest"].removeprefix("sha256:"))
        kind = document.get("mediaType") or descriptor.get("mediaType") or oci_layout.MANIFEST
        headers = {"Content-Type": kind}
        with self._request("PUT", repository, f"manifests/{tag}", PUSH, headers, manifest):
            return str(descriptor["digest"])

    def _upload_blob(self, repository: str, blob: Path) -> None:
        digest = f"sha256:{blob.name}"
        try:
            with self._request("HEAD", repository, f"blobs/{digest}", PUSH):
                return
        except RegistryError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        location = self._start_upload(repository)
        separator = "&" if "?" in location else "?"
        address = f"{location}{separator}digest={urllib.parse.quote(digest)}"
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(blob.stat().st_size),
        }
        with blob.open("rb") as content:
            self._open("PUT", address, repository, PUSH, headers, content).close()

    def _start_upload(self, repository: str) -> str:
        """Return the address for the content of a new blob."""
        with self._request("POST", repository, "blobs/uploads/", PUSH, {}, b"") as response:
            return str(urllib.parse.urljoin(response.url, response.headers["Location"]))

    def _request(
        self,
        method: str,
        repository: str,
        path: str,
        actions: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Any:  # noqa: ANN401  urllib's own type of a response
        all_headers = {"Accept": MANIFESTS, **(headers or {})}
        address = f"{self.endpoint}/{repository}/{path}"
        return self._open(method, address, repository, actions, all_headers, body)

    def _open(
        self,
        method: str,
        address: str,
        repository: str,
        actions: str,
        headers: Mapping[str, str],
        body: bytes | IO[bytes] | None,
    ) -> Any:  # noqa: ANN401  urllib's own type of a response
        """Send a request; repeat it with credentials if the registry requires them."""
        scope = f"repository:{repository}:{actions}"
        try:
            return self._send(method, address, headers, body, self._authorization.get(scope))
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != HTTPStatus.UNAUTHORIZED or not challenge:
                raise self._explain(error, repository) from None
            error.close()
        try:
            self._authorization[scope] = self._authorize(challenge, scope)
            if not isinstance(body, bytes) and body is not None:
                body.seek(0)
            return self._send(method, address, headers, body, self._authorization[scope])
        except urllib.error.HTTPError as error:
            raise self._explain(error, repository) from None

    def _authorize(self, challenge: str, scope: str) -> str:
        """Return the Authorization header that a challenge requires."""
        scheme, _, fields = challenge.partition(" ")
        if scheme.lower() == "basic":
            return self.login.basic if self.login else ""
        parameters = dict(re.findall(r'(\w+)="([^"]*)"', fields))
        query = {
            "service": parameters.get("service", ""),
            "scope": parameters.get("scope") or scope,
        }
        address = f"{parameters.get('realm', '')}?{urllib.parse.urlencode(query)}"
        basic = self.login.basic if self.login else ""
        with self._send("GET", address, {}, None, basic) as response, self._connection_errors():
            content = response.read()
        try:
            document = json.loads(content)
            token = document.get("token") or document["access_token"]
        except (AttributeError, KeyError, ValueError):
            raise RegistryError(f"the token service of {self.host} returned no token") from None
        return f"Bearer {token}"

    def _send(
        self,
        method: str,
        address: str,
        headers: Mapping[str, str],
        body: bytes | IO[bytes] | None,
        authorization: str | None,
    ) -> Any:  # noqa: ANN401  urllib's own type of a response
        target = urllib.parse.urlsplit(address)
        local = is_this_machine(target.netloc)
        if target.scheme != "https" and not (target.scheme == "http" and local):
            raise RegistryError(f"{self.host} names {address}, which is not an https address")
        data = body if isinstance(body, bytes) or body is None else _chunks(body)
        request = urllib.request.Request(address, data, dict(headers), method=method)  # noqa: S310  checked above
        if authorization:
            # Not repeated after a redirect: the storage that a registry redirects to must not get the credentials,
            # and refuses them next to the signature in the address.
            request.add_unredirected_header("Authorization", authorization)
        proxy_handlers = [urllib.request.ProxyHandler({})] if local else []
        with self._connection_errors():
            return urllib.request.build_opener(*proxy_handlers).open(
                request, timeout=TIMEOUT_SECONDS
            )

    @contextmanager
    def _connection_errors(self) -> Iterator[None]:
        """Convert the errors of a connection into a RegistryError; a response with an error status is not one.

        Raises:
            RegistryError: the registry cannot be reached, or the connection breaks.
            urllib.error.HTTPError: the registry refuses the request.
        """
        try:
            yield
        except urllib.error.HTTPError:
            raise
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise RegistryError(f"the registry {self.host} cannot be reached: {reason}") from None

    def _explain(self, error: urllib.error.HTTPError, repository: str) -> RegistryError:
        """Return the error of a refused request, with the registry's message."""
        with error:
            text = error.read(1 << 16).decode(errors="replace")
        code = message = ""
        try:
            first = json.loads(text)["errors"][0]
            code, message = str(first.get("code", "")), str(first.get("message", ""))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            message = text.strip()[:200] or str(error.reason)
        problem = f"{self.host}/{repository}: {error.code} {code} {message}".replace("  ", " ")
        return RegistryError(problem, error.code, code)


def is_this_machine(host: str) -> bool:
    """Return True for a host, with or without port, that is this machine."""
    return bool(re.fullmatch(r"(?:localhost|127\.[0-9.]+|\[::1\])(?::[0-9]+)?", host))


def _chunks(content: IO[bytes]) -> Iterator[bytes]:
    while chunk := content.read(CHUNK):
        yield chunk
