"""Prometheus metrics of data staging, served by the copying process.

Disabled unless EVERSTEP_METRICS_PORT names a port, as for the workers. The endpoint ends with the copy, so that
Prometheus keeps the last scraped values only.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from everstep.catalog import metrics as catalog
from everstep.catalog.names import METRICS_PORT_VARIABLE
from everstep.staging.copier import CopyProgress
from everstep.staging.stage import Observer, StagingPlan

log = logging.getLogger(__name__)


class StagingMetrics(Observer):
    """Gauges of a staging run.

    Attributes:
        registry: registry of the gauges.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._listed_files = self._gauge(catalog.STAGING_LISTED_FILES)
        self._planned_files = self._gauge(catalog.STAGING_PLANNED_FILES)
        self._planned_bytes = self._gauge(catalog.STAGING_PLANNED_BYTES)
        self._files = self._gauge(catalog.STAGING_FILES)
        self._bytes = self._gauge(catalog.STAGING_BYTES)
        self._failed_files = self._gauge(catalog.STAGING_FAILED_FILES)
        self._complete = (0, 0)  # files and bytes of earlier attempts

    def _gauge(self, metric: catalog.Metric) -> Gauge:
        return Gauge(metric.name, metric.description, registry=self.registry)

    def report_listing(self, files: int) -> None:
        """Export the number of files listed so far."""
        self._listed_files.set(files)

    def report_plan(self, plan: StagingPlan) -> None:
        """Export the plan."""
        self._complete = plan.complete.files, plan.complete.bytes
        self._listed_files.set(plan.listed.files)
        self._planned_files.set(plan.listed.files)
        self._planned_bytes.set(plan.listed.bytes)
        self.report_progress(CopyProgress())

    def report_progress(self, progress: CopyProgress) -> None:
        """Export the progress."""
        files, size = self._complete
        self._files.set(files + progress.files)
        self._bytes.set(size + progress.bytes)
        self._failed_files.set(len(progress.failures))


@contextmanager
def serve_if_configured(metrics: StagingMetrics) -> Iterator[None]:
    """Serve metrics within the context if the environment names a port; warn if the port is unusable."""
    configured = os.environ.get(METRICS_PORT_VARIABLE)
    try:
        served = (
            start_http_server(int(configured), registry=metrics.registry) if configured else None
        )
    except (OSError, ValueError, OverflowError) as error:
        log.warning(
            "metrics are disabled: %s=%s: %s; set it to a free port, or unset it",
            METRICS_PORT_VARIABLE,
            configured,
            error,
        )
        served = None
    try:
        yield
    finally:
        if served:
            server, thread = served
            server.shutdown()
            server.server_close()
            thread.join()
