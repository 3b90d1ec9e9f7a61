"""A registry on this machine that stands in for all registries that the doctor queries."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cloudtwin.facade import Registry

from everstep.cli.account import images
from tests.http_servers import serving

UNREACHABLE = "127.0.0.1:1"


@dataclass
class PublicRegistries:
    """Registries that have every image except `missing`.

    Attributes:
        missing: images that no registry has, as `domain/path:reference`.
        private: domains that require a login.
        silent: domains that do not respond.
        requests: paths of all requests.
    """

    missing: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)

    def status(self, path: str) -> HTTPStatus:
        """Return the status for `/v2/DOMAIN/PATH/manifests/REFERENCE`."""
        name, _, reference = path.removeprefix("/v2/").partition("/manifests/")
        if name.partition("/")[0] in self.private:
            return HTTPStatus.UNAUTHORIZED
        is_missing = f"{name}:{reference}" in self.missing
        return HTTPStatus.NOT_FOUND if is_missing else HTTPStatus.OK


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[PublicRegistries]:
    """Serve the registries, and point the doctor to them."""
    public = PublicRegistries()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            public.requests.append(self.path)
            self.send_response(public.status(self.path))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as in the base class
            """Log nothing."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:

        def registry_at(domain: str) -> Registry:
            address = UNREACHABLE if domain in public.silent else f"127.0.0.1:{port}"
            return Registry(domain, None, f"http://{address}/v2/{domain}")

        monkeypatch.setattr(images, "registry_at", registry_at)
        yield public
