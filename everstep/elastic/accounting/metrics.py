"""Metrics of a worker for Prometheus, served by the worker itself.

Metrics are disabled unless EVERSTEP_METRICS_PORT is a port; the worker of local rank r listens on that port
plus r.

Why an endpoint and not node_exporter's textfile collector: the volume is an object store or a network file
system, on which renaming a small file every few seconds is expensive, and a failed scrape itself
shows that a worker is gone. Why the worker and not its agent: the worker has the values, and a new
process begins at 0, which Prometheus treats as a counter reset.
"""

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from torch.distributed import get_node_local_rank

from everstep.catalog import metrics as catalog
from everstep.catalog.names import METRICS_PORT_VARIABLE

log = logging.getLogger(__name__)

PATH = "/metrics"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The values that a worker exports at one moment.

    Attributes:
        job: name of the run.
        worker: name of the worker.
        seconds: seconds by `time_account.Activity`, without the step in flight; no value ever decreases.
        values: values of the metrics that have no labels of their own; a value of None is not exported.
    """

    job: str
    worker: str
    seconds: Mapping[str, float]
    values: Mapping[catalog.Metric, float | None]


class WorkerCollector(Collector):
    """Prometheus collector that reads the worker's values at each scrape.

    Args:
        read: function that returns the current values; called from the server's thread.
    """

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of one scrape."""
        reading = self._read()
        labels = [reading.job, reading.worker]
        seconds_family = _family(catalog.WORKER_SECONDS)
        for activity, seconds in sorted(reading.seconds.items()):
            seconds_family.add_metric([*labels, activity], seconds)
        yield seconds_family
        for metric, value in reading.values.items():
            if value is not None:
                family = _family(metric)
                family.add_metric(labels, value)
                yield family


def _family(metric: catalog.Metric) -> CounterMetricFamily | GaugeMetricFamily:
    is_counter = metric.kind is catalog.Kind.COUNTER
    family_class = CounterMetricFamily if is_counter else GaugeMetricFamily
    labels = [catalog.JOB, catalog.WORKER, *metric.labels]
    return family_class(metric.base, metric.description, labels=labels)


class _ScrapeServer(ThreadingHTTPServer):
    """A server on all IPv4 and IPv6 addresses of this machine."""

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Ignore a client that is gone, such as a scrape after its timeout; print any other error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve(port: int, read: Callable[[], Reading]) -> ThreadingHTTPServer:
    """Serve scrapes of `PATH` on all addresses from a thread; port 0 selects any free port.

    Raises:
        OSError: the port is taken, or this process may not listen on it.
        OverflowError: the port is not in 0..65535.
    """

    class ScrapeHandler(MetricsHandler):
        def do_GET(self) -> None:  # noqa: N802 - the base class's name
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
                return
            super().do_GET()

    ScrapeHandler.registry = CollectorRegistry(auto_describe=False)
    ScrapeHandler.registry.register(WorkerCollector(read))
    server = _ScrapeServer(("", port), ScrapeHandler)
    threading.Thread(target=server.serve_forever, name="everstep-metrics", daemon=True).start()
    return server


def serve_if_configured(read: Callable[[], Reading]) -> ThreadingHTTPServer | None:
    """Serve metrics if the environment names a port; return None if it does not, or if serving fails."""
    if not (configured := os.environ.get(METRICS_PORT_VARIABLE)):
        return None
    try:
        return serve(int(configured) + get_node_local_rank(0), read)
    except (OSError, ValueError, OverflowError) as error:
        log.warning(
            "metrics are disabled: %s=%s: %s; set it to a free port, or unset it",
            METRICS_PORT_VARIABLE,
            configured,
            error,
        )
        return None
