"""An HTTP server that responds like the API server of a cluster with or without a Prometheus operator."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

from tests.http_servers import serving


@contextmanager
def api_server(status: int, *kinds: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the kubeconfig of a server, and the list of the paths that are requested from it.

    Args:
        status: HTTP status of each response.
        kinds: custom resources of the operator that the server lists.
    """
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            resources = [
                {
                    "name": kind.lower(),
                    "singularName": "",
                    "kind": kind,
                    "namespaced": True,
                    "verbs": [],
                }
                for kind in kinds
            ]
            body = {"groupVersion": "monitoring.coreos.com/v1", "resources": resources}
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield kubeconfig(port), paths


def kubeconfig(port: int) -> str:
    """Return the kubeconfig of an API server on this machine."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
