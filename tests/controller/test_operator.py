"""The start of the operator."""

import asyncio

import pytest
from kubernetes import client

from controller import operator as operator_module
from controller.client import ApiError, KubernetesClient
from controller.metrics import Metrics
from controller.operator import Operator
from controller.reconcile import Reconciler
from tests.controller.simulator.model import KEY, NAMESPACE, ModelCluster

UNAVAILABLE = 503
GROUPS = {"groups": [{"name": "elastic.pytorch.org"}]}
RESOURCES = {"resources": [{"name": "elasticjobs"}, {"name": "elasticjobs/status"}]}


class Discovery(KubernetesClient):
    """An API server to which the CRD of ElasticJobs is added while the operator polls for it."""

    def __init__(self) -> None:
        super().__init__(client.ApiClient())
        self.responses = iter(
            [
                ("/apis", ApiError(UNAVAILABLE, "starting")),
                ("/apis", {"groups": []}),
                ("/apis", GROUPS),
                ("/apis/elastic.pytorch.org/v1alpha1", ApiError(404, "not found")),
                ("/apis", GROUPS),
                ("/apis/elastic.pytorch.org/v1alpha1", RESOURCES),
            ]
        )

    def request(self, method: str, path: str, *_: object, **__: object) -> object:
        expected_path, response = next(self.responses)
        assert (method, path) == ("GET", expected_path)
        if isinstance(response, ApiError):
            raise response
        return response


def test_a_controller_that_starts_before_the_crd_exists_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would never watch a job, and its health check would succeed."""
    monkeypatch.setattr(operator_module, "CRD_POLL_SECONDS", 0.01)
    discovery = Discovery()
    operator = Operator(Reconciler(discovery, Metrics()), "ns", client.Configuration)

    asyncio.run(operator.wait_for_crd(asyncio.Event()))

    assert next(discovery.responses, None) is None, "it waits no longer than necessary"
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "starting (HTTP 503)",
        "it does not exist; apply elasticjob-crd.yaml",
    ]


def test_sigterm_ends_the_wait_for_the_crd() -> None:
    operator = Operator(Reconciler(Discovery(), Metrics()), "ns", client.Configuration)

    async def wait() -> None:
        stop = asyncio.Event()
        waiting = asyncio.create_task(operator.wait_for_crd(stop))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        stop.set()
        await asyncio.wait_for(waiting, 10)

    asyncio.run(wait())


def test_a_job_whose_deletion_was_not_watched_is_forgotten_by_its_next_pass() -> None:
    """A watch that lists the jobs again reports no deletion that happened before."""
    cluster = ModelCluster()
    operator = Operator(Reconciler(cluster, Metrics()), NAMESPACE, client.Configuration)
    operator.tls_endpoints[KEY] = ("etcd", 2379)
    operator.reconciler.reconcile(KEY)
    operator.observe_pass(KEY)
    assert operator.jobs == {KEY}

    cluster.deleted = True
    operator.reconciler.reconcile(KEY)
    operator.observe_pass(KEY)

    assert (operator.jobs, operator.tls_endpoints) == (set(), {})
