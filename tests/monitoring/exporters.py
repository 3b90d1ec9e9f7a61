"""Real exporters for Prometheus: the workers of a run, the copy of a data set, a controller, a GPU node, a kubelet.

The tests of the queries and docs/images/dashboards.py use them.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cloudtwin.nodes import MachineSpec, Role, Twin
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.metadata.gpu_load import exposition
from cloudtwin.progress import Lines
from prometheus_client import start_http_server

from controller.metrics import Metrics, serve
from controller.objects import Pod
from everstep.staging.sources.folder import FolderSource
from everstep.staging.stage import Options, stage
from tests import http_servers
from tests.controller.builders import decide, failed_pod, job, pod, spec
from tests.everstep.elastic.launch.launched import LauncherProcess, run_launcher
from tests.processes import free_ports
from trainer.staging_metrics import StagingMetrics

PASS_SECONDS = 0.2
YEAR_SECONDS = 365 * 86400
JOB = "training"
WORKERS = 2
SPENDING = {"budgetUsd": 100, "pools": [{"capacity": "spot", "usdPerHour": 1.25}]}
PRICES = """
groups:
  - name: prices
    rules:
      - {record: everstep:fixed_usd_per_hour, expr: vector(0.5)}
      - {record: everstep:gpu_node_usd_per_hour, expr: vector(1.25)}
      - {record: everstep:budget_usd_per_month, expr: vector(900)}
"""


@contextmanager
def training(folder: Path) -> Iterator[tuple[LauncherProcess, list[int]]]:
    """Yield a launcher whose two workers have saved a checkpoint, and the ports of their metrics."""
    ports = free_ports(WORKERS)
    program = Path(__file__).with_name("training.py")
    command = ["--nproc-per-node", str(WORKERS), str(program), str(ports[0]), str(folder / JOB)]
    with run_launcher(folder, *command) as launcher:
        launcher.wait_until(lambda: "checkpoint" in journals(folder), "a checkpoint is written")
        yield launcher, ports


def lose_worker(folder: Path, launcher: LauncherProcess) -> None:
    """Kill a worker and wait until a group is formed again."""
    previous_count = journals(folder).count('"kind": "generation"')
    launcher.kill_worker()
    launcher.wait_until(
        lambda: journals(folder).count('"kind": "generation"') > previous_count,
        "a group is formed again",
    )


def journals(folder: Path) -> str:
    """Return the journals of all workers."""
    journal = folder / JOB / "journal"
    return "".join(file.read_text() for file in journal.glob("*")) if journal.exists() else ""


def alternating_pods() -> Iterator[Sequence[Pod]]:
    """Yield the pods of a job, one of which fails and returns, endlessly."""
    return itertools.cycle(([pod(0), pod(1), failed_pod(2)], [pod(0), pod(1), pod(2)]))


@contextmanager
def data_preparation(folder: Path) -> Iterator[int]:
    """Yield the metrics port of a completed data preparation, with the server still running."""
    source, metrics = folder / "photographs", StagingMetrics()
    source.mkdir()
    (source / "first.jpg").write_bytes(b"x" * 1000)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=metrics.registry)
    with http_servers.stopping(server) as port:
        stage(FolderSource(source), folder / "volume", Options(), metrics)
        yield port
    thread.join()


@contextmanager
def controller(states: Iterator[Sequence[Pod]], replicas: int) -> Iterator[int]:
    """Yield the metrics port of a controller that reconciles one job.

    Args:
        states: the job's pods at each pass; never ends.
        replicas: number of workers in the job's spec.
    """
    metrics, stop = Metrics(), threading.Event()
    metrics.leader.set(1)
    # Set here, because the etcd of this job has no TLS.
    metrics.certificate_expiry.labels("ns", JOB).set(time.time() + 10 * YEAR_SECONDS)
    server = serve(metrics, 0, lambda: True)
    passes = threading.Thread(target=_reconcile, args=(metrics, states, replicas, stop))
    passes.start()
    try:
        yield server.server_port
    finally:
        stop.set()
        passes.join()
        server.shutdown()
        server.server_close()


def _reconcile(
    metrics: Metrics, states: Iterator[Sequence[Pod]], replicas: int, stop: threading.Event
) -> None:
    body = {**spec(replicas, min_replicas=1), "spending": SPENDING}
    elastic_job = job(body, name=JOB, zones=["us-east-1a"])
    while not stop.wait(PASS_SECONDS):
        with metrics.passes.time():
            plan = decide(elastic_job, *next(states))
            metrics.observe_job(("ns", JOB), plan.status, elastic_job.spec)
            metrics.count_moves(("ns", JOB), elastic_job.status, plan.status)
        for worker_exit in plan.exits:
            metrics.restarts.labels(worker_exit.cause).inc()


@contextmanager
def gpu_node(utilization: Callable[[], float] = lambda: 3.0, gpus: int = 2) -> Iterator[int]:
    """Yield the port of a GPU node's exporter, as on the twin.

    Args:
        utilization: utilization of its GPUs in percent.
        gpus: number of its GPUs.
    """
    with serving(lambda: exposition("gpu-0", gpus, utilization(), 1 << 30)) as port:
        yield port


@contextmanager
def kubelet() -> Iterator[int]:
    """Yield a port that serves a real kubelet's metrics; it runs on the only machine of a twin."""
    machine = MachineSpec("system-0", Role.SYSTEM)
    twin = Twin.open("monitoring-test")
    try:
        twin.up([machine], Lines())
        client = admin_client(twin.layout)
        with serving(lambda: client.text(f"/api/v1/nodes/{machine.name}/proxy/metrics")) as port:
            yield port
    finally:
        twin.down(Lines())


@contextmanager
def serving(metrics: Callable[[], str]) -> Iterator[int]:
    """Yield the port of an exporter that responds with the text that `metrics` returns."""

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = metrics().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            with suppress(ConnectionError):  # Prometheus has ended
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    with http_servers.serving(ThreadingHTTPServer(("127.0.0.1", 0), Exporter)) as port:
        yield port
