"""What Prometheus can ask of the controller, and whether it is alive."""

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from controller.ledger import Cause
from controller.status import ConditionType, Status

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class Metrics:
    """The controller's metrics, in a registry of their own: two controllers in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.jobs = Gauge(
            "elasticjob_jobs",
            "Jobs of which a condition is True now.",
            ["condition"],
            registry=self.registry,
        )
        self.restarts = Counter(
            "elasticjob_worker_restarts",
            "Workers that ended without success, by cause.",
            ["cause"],
            registry=self.registry,
        )
        self.passes = Histogram(
            "elasticjob_reconcile_seconds",
            "Seconds that one pass over one job took.",
            registry=self.registry,
        )
        self.errors = Counter(
            "elasticjob_reconcile_errors", "Passes that ended in an error.", registry=self.registry
        )
        self.leads = Gauge(
            "elasticjob_leader",
            "1 while this controller is the one that acts.",
            registry=self.registry,
        )
        self._conditions: dict[tuple[str, str], frozenset[str]] = {}
        self._lock = threading.Lock()
        for cause in Cause:
            self.restarts.labels(cause)
        for kind in ConditionType:
            self.jobs.labels(kind)

    def saw(self, key: tuple[str, str], status: Status) -> None:
        """Count a job under the conditions that hold of it."""
        held = frozenset(condition.type for condition in status.conditions if condition.holds)
        with self._lock:
            before = self._conditions.get(key, frozenset())
            self._conditions[key] = held
        self._move(before, held)

    def forget(self, key: tuple[str, str]) -> None:
        """Count a job no longer: it is gone."""
        with self._lock:
            before = self._conditions.pop(key, frozenset())
        self._move(before, frozenset())

    def _move(self, before: frozenset[str], after: frozenset[str]) -> None:
        for kind in before - after:
            self.jobs.labels(kind).dec()
        for kind in after - before:
            self.jobs.labels(kind).inc()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name for it)
        """Say nothing: a probe every few seconds is no news."""


def serve(metrics: Metrics, port: int, alive: Callable[[], bool]) -> WSGIServer:
    """Serve /metrics and /healthz on a port (0: any) from a thread of its own; return the server.

    /healthz answers 503 once `alive` says no, so that a kubelet restarts a controller that hangs.
    """
    scrape = make_wsgi_app(metrics.registry)

    def answer(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            return scrape(environ, start_response)  # type: ignore[no-any-return, unused-ignore]
        well = alive()
        start_response(
            "200 OK" if well else "503 Service Unavailable", [("Content-Type", "text/plain")]
        )
        return [b"ok\n" if well else b"no pass of the work queue for too long\n"]

    server = make_server("", port, answer, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
