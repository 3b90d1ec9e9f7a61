"""Metrics of a worker for Prometheus, served by the worker itself.

Disabled unless EVERSTEP_METRICS_PORT names a port; the worker of local rank r listens on that port
plus r.

Why an endpoint and not node_exporter's text files: the volume is an object store or a network file
system, on which renaming a small file every few seconds is expensive, and a failed scrape itself
shows that a worker is gone. Why the worker and not its agent: the worker has the values, and a new
process begins at 0, which Prometheus treats as a counter reset.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from everstep.catalog.names import METRICS_PORT_VARIABLE

log = logging.getLogger(__name__)

PATH = "/metrics"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The values that a worker exports at one moment.

    Attributes:
        labels: labels of every metric: the job and the worker.
        seconds: seconds since the process began, by `time_account.Activity`; no value ever decreases.
        step: completed steps of the run.
        samples: samples that the state was trained on, counted by the sample ledger.
        generation: generation that the worker is in, or was in last.
        members: number of workers in that generation.
        last_recovery: duration in seconds; see `TimeAccount.last_recovery`.
    """

    labels: Mapping[str, str]
    seconds: Mapping[str, float]
    step: int
    samples: int
    generation: int
    members: int
    last_recovery: float | None


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
        names, values = list(reading.labels), list(reading.labels.values())
        seconds = CounterMetricFamily(
            "everstep_worker_seconds",
            "Seconds since this worker process began, by activity.",
            labels=[*names, "activity"],
        )
        for activity, spent in sorted(reading.seconds.items()):
            seconds.add_metric([*values, activity], spent)
        yield seconds
        for name, description, value in _gauges(reading):
            if value is not None:
                gauge = GaugeMetricFamily(name, description, labels=names)
                gauge.add_metric(values, value)
                yield gauge


def _gauges(reading: Reading) -> Iterator[tuple[str, str, float | None]]:
    yield "everstep_step", "Completed steps of the run.", reading.step
    yield "everstep_samples", "Samples trained in the completed steps.", reading.samples
    yield "everstep_generation", "Number of the group that this worker is in.", reading.generation
    yield "everstep_group_workers", "Workers of that group.", reading.members
    yield (
        "everstep_last_recovery_seconds",
        "From the end of a group to the first step of the next one, the last time.",
        reading.last_recovery,
    )


def serve(port: int, read: Callable[[], Reading]) -> ThreadingHTTPServer:
    """Answer scrapes of `PATH` on all addresses from a thread; port 0 takes any free one.

    Raises:
        OSError: the port is taken.
    """

    class ScrapeHandler(MetricsHandler):
        def do_GET(self) -> None:  # noqa: N802 - the base class's name
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
                return
            super().do_GET()

    ScrapeHandler.registry = CollectorRegistry(auto_describe=False)
    ScrapeHandler.registry.register(WorkerCollector(read))
    server = ThreadingHTTPServer(("", port), ScrapeHandler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="everstep-metrics", daemon=True).start()
    return server


def serve_if_configured(read: Callable[[], Reading]) -> ThreadingHTTPServer | None:
    """Serve if the environment names a port; log a warning if that fails, and continue without metrics."""
    if not (configured := os.environ.get(METRICS_PORT_VARIABLE)):
        return None
    try:
        return serve(int(configured) + int(os.environ.get("LOCAL_RANK", "0")), read)
    except (OSError, ValueError, OverflowError) as error:
        log.warning("no metrics: %s=%s: %s", METRICS_PORT_VARIABLE, configured, error)
        return None
