"""Every query of the rules and dashboards, in a real Prometheus that scrapes real exporters.

The workers belong to a launcher's run in which one worker was killed, the controller's registry has a real plan of
a job, and the GPUs are the twin's. No kubelet runs here: its two metrics are not covered.
"""

import itertools
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cloudtwin.nodes.metadata.gpu_load import exposition

from components.docs.metric_table import read_rules
from components.platform.dashboards import DASHBOARDS
from controller.metrics import Metrics, serve
from everstep.catalog.metrics import EXPORTERS
from tests.controller.builders import decide, failed_pod, job, pod, spec
from tests.everstep.elastic.launch.launched import run_launcher
from tests.monitoring.prometheus import Prometheus, prometheus_server
from tests.processes import free_ports

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

DATA_SECONDS = 240  # time for data to appear on a loaded machine
PASS_SECONDS = 0.2
JOB = "training"
SPENDING = {"budgetUsd": 100, "pools": [{"capacity": "spot", "usdPerHour": 1.25}]}
VARIABLES = {"$elasticjob": JOB, "$node": ".*", "$__rate_interval": "1m"}
PRICES = """
groups:
  - name: prices
    rules:
      - {record: everstep:fixed_usd_per_hour, expr: vector(0.5)}
      - {record: everstep:gpu_node_usd_per_hour, expr: vector(1.25)}
      - {record: everstep:budget_usd_per_month, expr: vector(900)}
"""
SELECTOR = re.compile(r"(?:everstep|elasticjob|node_gpu|DCGM)[\w:]*[_:][\w:]+(?:\{[^}]*\})?")
ONLY_WITH_HOURS = {"everstep:cost_usd:sum30d"}  # a subquery of full hours: see budget_test.yaml


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Yield a Prometheus that has scraped a run, a controller and a GPU node."""
    folder = tmp_path_factory.mktemp("monitoring")
    (folder / "prices.yaml").write_text(PRICES)
    with ExitStack() as stack:
        ports = stack.enter_context(training(folder))
        targets = {
            **{f"worker-{port}": port for port in ports},
            "controller": stack.enter_context(controller()),
            "gpu": stack.enter_context(gpu_node()),
        }
        yield stack.enter_context(prometheus_server(folder, targets, folder / "prices.yaml"))


@contextmanager
def training(folder: Path) -> Iterator[list[int]]:
    """Yield the metrics' ports of two workers that have recovered from the loss of a worker."""
    ports = free_ports(2)
    program = Path(__file__).with_name("training.py")
    command = ["--nproc-per-node", "2", str(program), str(ports[0]), str(folder / JOB)]
    journal = folder / JOB / "journal"
    with run_launcher(folder, *command) as launcher:
        launcher.wait_until(lambda: "checkpoint" in texts(journal), "a checkpoint is written")
        launcher.kill_worker()
        launcher.wait_until(
            lambda: texts(journal).count('"kind": "generation"') > 2, "a group is formed again"
        )
        yield ports


def texts(folder: Path) -> str:
    """Return the journals of all workers."""
    return "".join(file.read_text() for file in folder.glob("*")) if folder.exists() else ""


@contextmanager
def controller() -> Iterator[int]:
    """Yield the port of a controller's metrics that makes passes over one job."""
    metrics, stop = Metrics(), threading.Event()
    metrics.leader.set(1)
    server = serve(metrics, 0, lambda: True)
    passes = threading.Thread(target=reconcile, args=(metrics, stop))
    passes.start()
    try:
        yield server.server_port
    finally:
        stop.set()
        passes.join()
        server.shutdown()
        server.server_close()


def reconcile(metrics: Metrics, stop: threading.Event) -> None:
    """Make passes over a job, one of whose workers fails and returns, until `stop` is set."""
    body = {**spec(3, min_replicas=1), "spending": SPENDING}
    elastic_job = job(body, name=JOB, zones=["us-east-1a"])
    states = itertools.cycle(([pod(0), pod(1), failed_pod(2)], [pod(0), pod(1), pod(2)]))
    while not stop.wait(PASS_SECONDS):
        with metrics.passes.time():
            plan = decide(elastic_job, *next(states))
            metrics.observe_job(("ns", JOB), plan.status, elastic_job.spec)
            metrics.count_moves(("ns", JOB), elastic_job.status, plan.status)
        for worker_exit in plan.exits:
            metrics.restarts.labels(worker_exit.cause).inc()


@contextmanager
def gpu_node() -> Iterator[int]:
    """Yield the port of a GPU node's exporter, as on the twin."""

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(exposition("gpu-0", 2, 3.0, 1 << 30).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def with_values(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def wait_for_data(prometheus: Prometheus, query: str) -> None:
    """Wait until a query returns a number.

    Raises:
        AssertionError: Prometheus refuses it, or there is no data in time.
    """
    deadline = time.monotonic() + DATA_SECONDS
    while all(sample["value"][1] == "NaN" for sample in prometheus.query(query)):
        assert time.monotonic() < deadline, f"no data: {query}\n{prometheus.log.read_text()}"
        time.sleep(0.2)


PANELS = [
    (f"{dashboard.uid}: {panel.title}", query.expression)
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
]


@pytest.mark.parametrize(("panel", "query"), PANELS)
def test_every_panel_has_data(prometheus: Prometheus, panel: str, query: str) -> None:
    wait_for_data(prometheus, with_values(query))


def test_every_annotation_can_be_evaluated(prometheus: Prometheus) -> None:
    for dashboard in DASHBOARDS:
        for annotation in dashboard.annotations:
            prometheus.query(with_values(annotation.expression))


def test_every_variable_has_values(prometheus: Prometheus) -> None:
    for dashboard in DASHBOARDS:
        for variable in dashboard.variables:
            wait_for_data(prometheus, f'{variable.metric}{{{variable.key}!=""}}')


def test_every_series_that_a_rule_selects_has_data(prometheus: Prometheus) -> None:
    for rule in read_rules():
        for selector in set(SELECTOR.findall(rule["expr"])) - ONLY_WITH_HOURS:
            wait_for_data(prometheus, selector)


def test_every_recording_rule_has_data(prometheus: Prometheus) -> None:
    for rule in read_rules():
        if "record" in rule and rule["record"] not in ONLY_WITH_HOURS:
            wait_for_data(prometheus, rule["record"])


def test_prometheus_evaluates_every_rule_without_an_error(prometheus: Prometheus) -> None:
    wait_for_data(prometheus, "everstep:cost_usd_per_hour:sum")

    errors = {rule["name"]: rule.get("lastError", "") for rule in prometheus.rules()}

    assert not {name: error for name, error in errors.items() if error}


def test_every_metric_of_the_catalog_is_exported_with_its_labels(prometheus: Prometheus) -> None:
    for exporter in EXPORTERS[:3]:
        for metric in exporter.metrics:
            for series in metric.series:
                wait_for_data(prometheus, series)
                labels = prometheus.query(series)[0]["metric"]
                assert {*exporter.labels, *metric.labels} <= set(labels), metric.name


def test_every_metric_that_is_exported_is_in_the_catalog(prometheus: Prometheus) -> None:
    names = prometheus.get("label/__name__/values")
    catalog_names = {
        series for exporter in EXPORTERS for metric in exporter.metrics for series in metric.series
    }
    # prometheus_client adds the time of creation of each counter and histogram.
    exported_names = {
        name
        for name in names
        if name.startswith(("everstep_", "elasticjob_")) and not name.endswith("_created")
    }

    assert exported_names <= catalog_names
