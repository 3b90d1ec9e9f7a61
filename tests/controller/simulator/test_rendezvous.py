"""Workers of a job never run with two rendezvous at a time, whatever is edited."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from controller.metrics import Metrics
from controller.objects import read_pod
from controller.reconcile import Reconciler, RetryError
from everstep.catalog.names import BOUNDS_ANNOTATION
from tests.controller.simulator.model import KEY, Crash, ModelCluster

FORMER, NEW = "etcd:2379", "other-etcd:2379"


class EditedCluster(ModelCluster):
    """A cluster with a job of three workers, whose rendezvous is edited.

    Attributes:
        reconciler: the controller, which is replaced after a crash.
    """

    def __init__(self) -> None:
        super().__init__(3)
        self.reconciler = self.new_reconciler()
        self.settle()

    def new_reconciler(self) -> Reconciler:
        return Reconciler(self, Metrics(), now=lambda: self.now)

    def one_pass(self) -> None:
        try:
            self.reconciler.reconcile(KEY)
        except RetryError:
            pass
        except Crash:
            self.reconciler = self.new_reconciler()

    def settle(self, passes: int = 6) -> None:
        """Run passes, start pods and finish deletions; workers with two rendezvous never run together."""
        for _ in range(passes):
            self.one_pass()
            self.finish_deletions()
            for name in list(self.pods):
                self.schedule(name)
            self.now += timedelta(seconds=1)
            assert len(self.rendezvous()) <= 1, "two groups would train in one run folder"

    def rendezvous(self) -> set[tuple[tuple[str, str], ...]]:
        """Return the rendezvous of the workers that run, even of those that terminate."""
        workers = [read_pod(pod) for pod in self.pods.values()]
        return {worker.rendezvous for worker in workers if worker.is_up}

    def endpoints(self) -> set[str]:
        return {dict(rendezvous)["endpoint"] for rendezvous in self.rendezvous()}

    def edit(self, **fields: Any) -> None:
        """Edit the spec."""
        self.source["spec"] |= fields
        self.source["metadata"]["generation"] += 1
        self._touch()

    def replace_a_worker(self) -> None:
        """Let a worker exit, which the controller replaces."""
        self.end("job-worker-1", 137)
        self.settle()

    def running_message(self) -> str:
        return str(self.conditions["Running"]["message"])


def edit_prefix(cluster: EditedCluster) -> None:
    """Edit the template so that workers use other keys of the same etcd."""
    container = {"name": "elasticjob-worker", "image": "x", "args": ["--rdzv_conf=etcd_prefix=b"]}
    worker = cluster.source["spec"]["replicaSpecs"]["Worker"]
    worker["template"] = {"spec": {"containers": [container]}}
    cluster.edit()


EDITS = [
    pytest.param(lambda cluster: cluster.edit(rdzvEndpoint=NEW), id="the endpoint"),
    pytest.param(edit_prefix, id="the prefix of the keys"),
]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_while_workers_run_is_refused_with_a_reason_and_does_not_split_the_run(
    edit: Callable[[EditedCluster], None],
) -> None:
    cluster = EditedCluster()
    before = cluster.rendezvous()

    edit(cluster)
    cluster.settle()
    cluster.replace_a_worker()

    assert cluster.rendezvous() == before
    assert len(cluster.pods) == 3
    assert "set spec.RunPolicy.suspend to true until the workers" in cluster.running_message()
    assert [event.reason for event in cluster.events].count("InvalidSpec") == 1


@pytest.mark.parametrize("edit", EDITS)
def test_the_edit_takes_effect_once_the_job_was_suspended(
    edit: Callable[[EditedCluster], None],
) -> None:
    cluster = EditedCluster()
    before = cluster.rendezvous()
    edit(cluster)
    cluster.settle()

    cluster.edit(RunPolicy={"suspend": True})
    cluster.settle()
    assert not cluster.pods
    cluster.edit(RunPolicy={})
    cluster.settle()

    assert len(cluster.pods) == 3
    assert cluster.rendezvous() != before
    assert "invalid" not in cluster.running_message()


def test_workers_that_terminate_delay_a_resumption_with_another_rendezvous() -> None:
    cluster = EditedCluster()
    cluster.edit(RunPolicy={"suspend": True}, rdzvEndpoint=NEW)
    cluster.one_pass()
    del cluster.pods["job-worker-1"]  # the first that has ended

    cluster.edit(RunPolicy={})
    for _ in range(3):
        cluster.one_pass()
        for name in list(cluster.pods):
            cluster.schedule(name)
        assert cluster.endpoints() == {FORMER}, "two workers still write their last checkpoint"
    cluster.settle()

    assert cluster.endpoints() == {NEW}
    assert len(cluster.pods) == 3


@pytest.mark.parametrize("forgets", [False, True], ids=["status", "status of another controller"])
def test_the_former_endpoint_is_found_in_the_workers(forgets: bool) -> None:
    cluster = EditedCluster()
    if forgets:
        del cluster.source["status"]["lastValidSpec"]
    else:  # an older controller has accepted the edit
        cluster.source["status"]["lastValidSpec"]["rdzvEndpoint"] = NEW
    cluster.edit(rdzvEndpoint=NEW)

    cluster.settle()
    cluster.replace_a_worker()

    assert cluster.endpoints() == {FORMER}
    assert len(cluster.pods) == 3


def test_an_endpoint_is_corrected_while_no_worker_runs() -> None:
    cluster = EditedCluster()
    for name in cluster.pods:
        cluster.end(name, 137)

    cluster.edit(rdzvEndpoint=NEW)
    cluster.settle()

    assert cluster.endpoints() == {NEW}
    assert len(cluster.pods) == 3


@pytest.mark.parametrize("crashes", [False, True], ids=["retry", "crash"])
@pytest.mark.parametrize("request_number", range(1, 9))
def test_an_edit_during_a_pass_does_not_split_the_run(request_number: int, crashes: bool) -> None:
    cluster = EditedCluster()
    cluster.end("job-worker-1", 137)
    cluster.changes = {request_number: lambda: cluster.edit(rdzvEndpoint=NEW)}
    cluster.crash_in = 1 if crashes else None
    cluster.one_pass()
    cluster.crash_in, cluster.changes = None, {}

    cluster.settle()
    cluster.replace_a_worker()

    assert cluster.endpoints() == {FORMER}
    assert len(cluster.pods) == 3


def test_a_refused_edit_is_undone_without_effect_on_the_workers() -> None:
    cluster = EditedCluster()
    uids = list(cluster.created_uids)
    cluster.edit(rdzvEndpoint=NEW, minReplicas=2)
    cluster.settle()

    cluster.edit(rdzvEndpoint=FORMER)
    cluster.settle()

    assert cluster.created_uids == uids
    assert "invalid" not in cluster.running_message()
    bounds = {pod["metadata"]["annotations"][BOUNDS_ANNOTATION] for pod in cluster.pods.values()}
    assert bounds == {"2:6"}, "the rest of the edit is in effect"
