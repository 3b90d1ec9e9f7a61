"""The controller's metrics and its health endpoint."""

import socket
import sys
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from controller.api import Spec
from controller.exit_history import ExitCause
from controller.rules.common import has_finished
from controller.status import ConditionType, Status
from everstep.catalog import metrics

SOCKET_SECONDS = 10.0
"""Timeout of each read or write of a connection; a client that sends nothing must not occupy its thread forever."""

MetricT = TypeVar("MetricT", Counter, Gauge, Histogram)
Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class Metrics:
    """The controller's metrics, in a separate registry for each instance."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.jobs = self._make(Gauge, metrics.JOBS)
        self.conditions = self._make(Gauge, metrics.CONDITION)
        self.replicas = self._make(Gauge, metrics.REPLICAS)
        self.min_replicas = self._make(Gauge, metrics.MIN_REPLICAS)
        self.desired_workers = self._make(Gauge, metrics.DESIRED_WORKERS)
        self.running_workers = self._make(Gauge, metrics.RUNNING_WORKERS)
        self.zone = self._make(Gauge, metrics.ZONE)
        self.spent_usd = self._make(Gauge, metrics.SPENT_USD)
        self.budget = self._make(Gauge, metrics.BUDGET_USD)
        self.on_demand = self._make(Gauge, metrics.ON_DEMAND_WORKERS)
        self.moves = self._make(Counter, metrics.MOVES)
        self.restarts = self._make(Counter, metrics.RESTARTS)
        self.passes = self._make(Histogram, metrics.RECONCILE_SECONDS)
        self.errors = self._make(Counter, metrics.RECONCILE_ERRORS)
        self.certificate_expiry = self._make(Gauge, metrics.ETCD_CERTIFICATE)
        self.leader = self._make(Gauge, metrics.LEADER)
        self._conditions: dict[tuple[str, str], frozenset[str]] = {}
        self._zones: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()
        for cause in ExitCause:
            self.restarts.labels(cause)
        for kind in ConditionType:
            self.jobs.labels(kind)

    def _make(self, kind: type[MetricT], metric: metrics.Metric) -> MetricT:
        return kind(metric.base, metric.description, metric.labels, registry=self.registry)

    def observe_job(self, key: tuple[str, str], status: Status, spec: Spec | None) -> None:
        """Export a job's conditions and its numbers of workers.

        Args:
            key: namespace and name of the job.
            status: its status after a reconcile pass.
            spec: its spec; None if it was never valid.
        """
        true_conditions = frozenset(
            condition.type for condition in status.conditions if condition.is_true
        )
        with self._lock:
            previous = self._conditions.get(key, frozenset())
            self._conditions[key] = true_conditions
        self._update_job_counts(previous, true_conditions)
        for kind in ConditionType:
            self.conditions.labels(*key, kind).set(kind in true_conditions)
        is_active = (
            spec is not None and not has_finished(status) and not _is_suspended(status, spec)
        )
        replicas = spec.replicas if spec and is_active else 0
        scaling = status.scaling if is_active else None
        self.replicas.labels(*key).set(replicas)
        self.min_replicas.labels(*key).set(spec.min_replicas if spec and replicas else 0)
        self.desired_workers.labels(*key).set(scaling.desired if scaling else replicas)
        self.running_workers.labels(*key).set(status.active)
        self._observe_zone(key, status.placement.zone if status.placement and is_active else None)
        self._observe_spending(key, status, spec)

    def count_moves(self, key: tuple[str, str], old: Status, new: Status) -> None:
        """Count the moves that a written status has and the previous status does not have."""
        if new.placement is None:
            return
        old_count = old.placement.move_count if old.placement else 0
        self.moves.labels(*key).inc(new.placement.move_count - old_count)

    def _observe_spending(self, key: tuple[str, str], status: Status, spec: Spec | None) -> None:
        """Export the spending metrics of a job; remove each metric for which the job has no value."""
        spending, budget = (
            status.spending,
            spec.spending.budget_usd if spec and spec.spending else None,
        )
        values = {
            self.spent_usd: spending.usd if spending else None,
            self.on_demand: spending.on_demand if spending else None,
            self.budget: budget,
        }
        for gauge, value in values.items():
            if value is None:
                gauge.remove(*key)
            else:
                gauge.labels(*key).set(value)

    def _observe_zone(self, key: tuple[str, str], zone: str | None) -> None:
        with self._lock:
            previous = self._zones.pop(key, None)
            if zone is not None:
                self._zones[key] = zone
        if previous is not None and previous != zone:
            self.zone.remove(*key, previous)
        if zone is not None:
            self.zone.labels(*key, zone).set(1)

    def forget(self, key: tuple[str, str]) -> None:
        """Stop counting a deleted job."""
        with self._lock:
            previous = self._conditions.pop(key, frozenset())
        self._update_job_counts(previous, frozenset())
        self._observe_zone(key, None)
        self.moves.remove(*key)
        for gauge in (
            self.replicas, self.min_replicas, self.desired_workers, self.running_workers,
            self.spent_usd, self.budget, self.on_demand, self.certificate_expiry,
        ):  # fmt: skip
            gauge.remove(*key)
        for kind in ConditionType:
            self.conditions.remove(*key, kind)

    def _update_job_counts(self, old: frozenset[str], new: frozenset[str]) -> None:
        for kind in old - new:
            self.jobs.labels(kind).dec()
        for kind in new - old:
            self.jobs.labels(kind).inc()


def _is_suspended(status: Status, spec: Spec) -> bool:
    """Return True if a job is suspended by its owner or its budget; a job that waits for nodes is not."""
    used_up = status.spending is not None and status.spending.used_up
    return spec.run_policy.suspend or used_up


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    """A server on all IPv4 and IPv6 addresses of this pod.

    It has a thread for each connection: an idle client must not delay the kubelet's probe.
    """

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  (as in the base class)
        """Ignore a client that is gone or sent nothing in time; report any other error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _SilentHandler(WSGIRequestHandler):
    timeout = SOCKET_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name for it)
        """Log nothing: probes arrive every few seconds."""


def serve(metrics: Metrics, port: int, alive: Callable[[], bool]) -> WSGIServer:
    """Start a server thread for /metrics and /healthz on a port (0: any) and return the server.

    /healthz responds with 503 if `alive` returns False, so that the kubelet restarts a controller that hangs.
    """
    scrape = make_wsgi_app(metrics.registry)

    def respond(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            return scrape(environ, start_response)  # type: ignore[no-any-return, unused-ignore]
        healthy = alive()
        start_response(
            "200 OK" if healthy else "503 Service Unavailable", [("Content-Type", "text/plain")]
        )
        return [b"ok\n" if healthy else b"the event loop does not respond\n"]

    server = make_server(
        "", port, respond, server_class=_ThreadingServer, handler_class=_SilentHandler
    )
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
