"""`everstep follow` before the first step and without responses, with a simulated API server."""

import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from kubernetes import client

from everstep.catalog.names import ELASTICJOB_API_VERSION, ELASTICJOB_PLURAL
from everstep.cli.kubernetes_client import ClusterUnreachableError, KubernetesClient
from everstep.cli.report import follow as follow_module
from everstep.cli.report.follow import JobMonitor, JobOutcome
from everstep.cli.report.run_record import RunRecord
from everstep.errors import EverstepError

PODS = "/api/v1/namespaces/elastic-job/pods"
JOB = f"/apis/{ELASTICJOB_API_VERSION}/namespaces/elastic-job/{ELASTICJOB_PLURAL}/fashion"
LINE = "      3,000 files, 0.40 GB of 10,000 files, 1.20 GB: 33%"


def pod(name: str, program: str, phase: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": str(phase == "Running")}
    return {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": program}},
        "spec": {},
        "status": {"phase": phase, "conditions": [ready]},
    }


class FakeCluster:
    """The API of a cluster: paths and the bodies of their responses.

    Attributes:
        responses: path -> body; other paths are not found.
        server: HTTP server of the API.
    """

    def __init__(self) -> None:
        self.responses = {
            "/version": json.dumps({"gitVersion": "v1.36.0"}),
            "/api/v1/nodes": json.dumps({"items": []}),
        }
        responses = self.responses

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = responses.get(self.path)
                self.send_response(200 if body is not None else 404)
                self.end_headers()
                self.wfile.write((body or "{}").encode())

            def log_message(self, *args: object) -> None:
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    def set_pods(self, *pods: dict[str, Any]) -> None:
        self.responses[PODS] = json.dumps({"items": pods})

    def set_condition(self, kind: str) -> None:
        status = {"conditions": [{"type": kind, "status": "True"}]}
        self.responses[JOB] = json.dumps({"status": status})

    def monitor(self) -> JobMonitor:
        address = f"http://127.0.0.1:{self.server.server_port}"
        settings = client.Configuration(host=address)
        monitor = JobMonitor(KubernetesClient(client.ApiClient(settings)), "fashion")
        monitor.refresh()
        return monitor


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    cluster = FakeCluster()
    thread = threading.Thread(target=cluster.server.serve_forever, daemon=True)
    thread.start()
    yield cluster
    cluster.server.shutdown()
    cluster.server.server_close()
    thread.join()


def test_the_progress_of_the_preparation_is_the_newest_line_of_its_log(
    cluster: FakeCluster,
) -> None:
    cluster.set_pods(pod("prepare-imagefolder-x", "prepare", "Running"))
    cluster.responses[f"{PODS}/prepare-imagefolder-x/log?tailLines=1"] = f"{LINE}\n"

    assert cluster.monitor().waiting_for() == f"the data set, {LINE.strip()}"


def test_a_preparation_without_a_log_yet_is_not_an_error(cluster: FakeCluster) -> None:
    cluster.set_pods(pod("prepare-imagefolder-x", "prepare", "Running"))
    cluster.set_condition("Created")

    assert cluster.monitor().waiting_for() == "the workers are loading"


def test_a_job_that_does_not_exist_is_named_while_it_is_waited_for(cluster: FakeCluster) -> None:
    cluster.set_pods(pod("etcd-0", "etcd", "Running"))

    assert "the job fashion, which does not exist" in cluster.monitor().waiting_for()


def test_a_complete_preparation_is_not_waited_for(cluster: FakeCluster) -> None:
    cluster.set_pods(
        pod("prepare-imagefolder-x", "prepare", "Succeeded"),
        pod("fashion-worker-0", "worker", "Pending"),
    )
    cluster.responses[f"{PODS}/prepare-imagefolder-x/log?tailLines=1"] = "done"

    assert cluster.monitor().waiting_for() == "fashion-worker-0 Pending"


@dataclass
class UnsteadyReader:
    """A reader whose readings are runs or errors, in order."""

    readings: list[RunRecord | EverstepError]
    has_read: bool = True

    def readable(self, *, ended: bool = False) -> AbstractContextManager[None]:
        raise NotImplementedError(ended)

    def read(self) -> RunRecord:
        reading = self.readings.pop(0)
        if isinstance(reading, EverstepError):
            raise reading
        return reading


@pytest.fixture
def without_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the run without a pause, and request the job each time."""
    monkeypatch.setattr(follow_module, "DRAW_SECONDS", 0.0)
    monkeypatch.setattr(follow_module, "REQUEST_SECONDS", 0.0)


@pytest.mark.usefixtures("without_intervals")
def test_a_reading_that_times_out_shows_the_last_one(cluster: FakeCluster) -> None:
    cluster.set_pods()
    first, third = RunRecord(), RunRecord()
    timeout = ClusterUnreachableError("no response", "Wait.")
    reader = UnsteadyReader([first, timeout, third, third])
    shown: list[RunRecord] = []

    def drill(run: RunRecord) -> str:
        shown.append(run)
        if run is third:
            cluster.set_condition("Succeeded")
        return ""

    assert follow_module.follow(reader, cluster.monitor(), drill) is JobOutcome.SUCCEEDED
    assert [id(run) for run in shown[:3]] == [id(first), id(first), id(third)]


@pytest.mark.usefixtures("without_intervals")
def test_without_any_reading_an_unreachable_cluster_ends_the_view(cluster: FakeCluster) -> None:
    cluster.set_pods()
    reader = UnsteadyReader([ClusterUnreachableError("no response", "Wait.")])

    with pytest.raises(ClusterUnreachableError, match="no response"):
        follow_module.follow(reader, cluster.monitor())


def test_a_job_that_is_deleted_while_it_is_followed_ends_the_view(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.set_pods()
    running = {"conditions": [{"type": "Running", "status": "True"}]}
    cluster.responses[JOB] = json.dumps({"status": running})
    monkeypatch.setattr(follow_module, "REQUEST_SECONDS", 0.0)
    monitor = cluster.monitor()

    del cluster.responses[JOB]
    monitor.refresh()  # it may be declared again
    monkeypatch.setattr(follow_module, "UNREACHABLE_SECONDS", 0.0)

    with pytest.raises(EverstepError, match="the job fashion was deleted"):
        monitor.refresh()
