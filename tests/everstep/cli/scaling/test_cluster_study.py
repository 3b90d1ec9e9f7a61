"""Scaling studies in a cluster, whose jobs are removed even after errors. The cluster is a strict fake."""

import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from everstep.catalog.names import JOB_NAME_LABEL
from everstep.cli.kubernetes_client import (
    ClusterUnreachableError,
    ClusterView,
    Condition,
    KubernetesClient,
    PodView,
)
from everstep.cli.report.readers import RunReader
from everstep.cli.report.run_record import RunRecord
from everstep.cli.scaling.in_cluster import JOBS, ClusterStudy
from everstep.errors import EverstepError
from everstep.progress import Silent
from tests.everstep.cli.scaling.test_in_cluster import ARGUMENTS, OPTIONS, SETTINGS, elastic_job
from tests.everstep.cli.scaling.test_study import run_record

NAME = "scale-efficientnet-b7-2"


@dataclass
class FakeCluster:
    """A cluster in which the stack's job and the job of the measured size have given conditions.

    Attributes:
        leftover_pods: pods of an earlier job; each reading finds one fewer.
        timeouts: number of readings of the job that time out.
        delete_timeouts: number of deletions that time out once a job was created.
        jobs: path -> manifest of each existing job.
        created_jobs: names of all jobs that were created.
    """

    size_condition: str = "Succeeded"
    stack_condition: str = "Succeeded"
    leftover_pods: int = 0
    timeouts: int = 0
    delete_timeouts: int = 0
    jobs: dict[str, Any] = field(default_factory=dict)
    created_jobs: list[str] = field(default_factory=list)

    def get(self, path: str, missing: dict[str, Any] | None = None) -> dict[str, Any]:
        if "/pods?" in path:
            self.leftover_pods = max(0, self.leftover_pods - 1)
            return {"items": [{}] * self.leftover_pods}
        if path == f"{JOBS}/{NAME}":
            return self._job_of_size(path) or missing or {}
        assert path == f"{JOBS}/fashion", f"unexpected request for {path}"
        return elastic_job(ARGUMENTS + OPTIONS)

    def _job_of_size(self, path: str) -> dict[str, Any]:
        if self.timeouts:
            self.timeouts -= 1
            raise ClusterUnreachableError("the cluster does not respond: timed out", "Wait.")
        condition = {"type": self.size_condition, "status": "True", "message": "a message"}
        status = {"conditions": [condition]}
        return {**self.jobs[path], "status": status} if path in self.jobs else {}

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        name = str(body["metadata"]["name"])
        assert path == JOBS
        assert not self.leftover_pods, "pods of an earlier job have the same names"
        self.jobs[f"{path}/{name}"] = body
        self.created_jobs.append(name)

    def delete(self, path: str) -> None:
        if self.delete_timeouts and self.created_jobs:
            self.delete_timeouts -= 1
            raise ClusterUnreachableError("the cluster does not respond: timed out", "Wait.")
        self.jobs.pop(path, None)

    def conditions(self, job: str) -> tuple[Condition, ...]:
        assert job == "fashion"
        return (Condition(self.stack_condition, "Reason", "a message"),)

    def view(self, job: str) -> ClusterView:
        del job  # the pods of all jobs are in one namespace
        pods = (
            PodView("scale-0", "", "Pending", False, {JOB_NAME_LABEL: NAME}, "too few GPUs"),
            PodView("other-0", "", "Pending", False, {JOB_NAME_LABEL: "other"}, "no volume"),
        )
        return ClusterView("v1", (), pods, ())


@dataclass
class FakeReader:
    """A reader that always returns the same run, after some timeouts."""

    run: RunRecord
    timeouts: int = 0
    has_read: bool = True

    def readable(self, *, ended: bool = False) -> AbstractContextManager[None]:
        assert ended, "the workers end with the job"
        return nullcontext()

    def read(self) -> RunRecord:
        if self.timeouts:
            self.timeouts -= 1
            raise ClusterUnreachableError("the cluster does not respond: timed out", "Wait.")
        return self.run


def study(
    cluster: FakeCluster, run: RunRecord, sleep: Callable[[float], None] = lambda _: None
) -> ClusterStudy:
    client = cast("KubernetesClient", cluster)

    def open_reader(job: str) -> RunReader:
        assert job == NAME
        return FakeReader(run)

    return ClusterStudy(client, "fashion", SETTINGS, open_reader, 0, sleep)


def test_a_size_is_measured_with_a_job_of_its_own_that_is_then_removed() -> None:
    cluster = FakeCluster()

    size = study(cluster, run_record(16)).measure(2, Silent())

    assert (size.replicas, size.processes) == (2, 16)
    assert cluster.created_jobs == [NAME]
    assert not cluster.jobs


def test_a_stack_that_is_training_keeps_its_nodes() -> None:
    cluster = FakeCluster(stack_condition="Running")

    with pytest.raises(EverstepError, match="the training fashion uses the nodes"):
        study(cluster, run_record(16)).check()

    study(FakeCluster(stack_condition="Suspended"), run_record(16)).check()


@pytest.mark.parametrize(
    ("size_condition", "run", "message"),
    [
        ("Failed", run_record(16), f"the job {NAME} failed: a message"),
        ("Created", RunRecord(), f"the job {NAME} completed no step within 0 s: too few GPUs\n"),
    ],
)
def test_a_job_that_fails_or_never_starts_is_reported_and_removed(
    size_condition: str, run: RunRecord, message: str
) -> None:
    cluster = FakeCluster(size_condition=size_condition)

    with pytest.raises(EverstepError, match=message):
        study(cluster, run).measure(2, Silent())

    assert cluster.created_jobs
    assert not cluster.jobs


def test_an_api_server_that_does_not_respond_for_a_while_does_not_end_the_study() -> None:
    cluster = FakeCluster(timeouts=3)

    assert study(cluster, run_record(16)).measure(2, Silent()).replicas == 2
    assert cluster.timeouts == 0


def test_a_reading_that_times_out_does_not_end_the_study() -> None:
    reader = FakeReader(run_record(16), timeouts=3)
    study_with_timeouts = replace(
        study(FakeCluster(), run_record(16)), open_reader=lambda job: reader
    )

    assert study_with_timeouts.measure(2, Silent()).replicas == 2
    assert reader.timeouts == 0


def test_an_api_server_that_does_not_respond_for_a_minute_ends_the_study() -> None:
    cluster = FakeCluster(timeouts=1000)
    clock_times = itertools.count(step=10.0)
    slow_study = replace(study(cluster, run_record(16)), clock=lambda: next(clock_times))

    with pytest.raises(ClusterUnreachableError):
        slow_study.measure(2, Silent())

    assert cluster.timeouts == 1000 - 7, "one request each 10 s, until more than 60 s have passed"
    assert not cluster.jobs


def test_a_deletion_that_times_out_is_repeated() -> None:
    cluster = FakeCluster(delete_timeouts=3)

    assert study(cluster, run_record(16)).measure(2, Silent()).replicas == 2
    assert not cluster.jobs


def test_a_job_that_cannot_be_deleted_is_named() -> None:
    cluster = FakeCluster(delete_timeouts=1000)
    clock_times = itertools.count(step=10.0)
    slow_study = replace(study(cluster, run_record(16)), clock=lambda: next(clock_times))

    with pytest.raises(EverstepError, match=f"the job {NAME} of the study could not be deleted"):
        slow_study.measure(2, Silent())


def test_the_run_is_read_before_its_job_is_deleted() -> None:
    cluster = FakeCluster()

    class ReaderOfPods(FakeReader):
        def read(self) -> RunRecord:
            assert cluster.jobs, "its pods end with the job"
            return super().read()

    pods_study = replace(
        study(cluster, run_record(16)), open_reader=lambda job: ReaderOfPods(run_record(16))
    )

    assert pods_study.measure(2, Silent()).replicas == 2


def test_ctrl_c_removes_the_job() -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    cluster = FakeCluster(size_condition="Running")

    with pytest.raises(KeyboardInterrupt):
        study(cluster, run_record(16), interrupt).measure(2, Silent())

    assert cluster.created_jobs
    assert not cluster.jobs


def test_a_job_that_is_deleted_meanwhile_ends_the_study() -> None:
    cluster = FakeCluster(size_condition="Running")

    def delete_job(seconds: float) -> None:
        cluster.jobs.clear()

    with pytest.raises(EverstepError, match=f"the job {NAME} was deleted during the study"):
        study(cluster, run_record(16), delete_job).measure(2, Silent())


def test_a_job_is_created_only_after_the_pods_of_an_earlier_job_of_its_name_are_gone() -> None:
    cluster = FakeCluster(leftover_pods=2)
    waiting_study = replace(study(cluster, run_record(16)), wait_seconds=60)

    assert waiting_study.measure(2, Silent()).replicas == 2
