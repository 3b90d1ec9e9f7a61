"""The actions of a pass that the API server refuses."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
from urllib3.exceptions import HTTPError

from controller.actions import Event
from controller.api import ElasticJob
from controller.client import ApiError
from controller.metrics import Metrics
from controller.reconcile import Reconciler, RetryError
from tests.controller.simulator.model import KEY, ModelCluster

CONFLICT, FORBIDDEN, TOO_MANY_REQUESTS, INTERNAL_ERROR, UNAVAILABLE = 409, 403, 429, 500, 503


class RefusingCluster(ModelCluster):
    """A cluster that refuses to create some pods.

    Attributes:
        refused: names of these pods.
        code: status of the refusal.
        attempts: number of requests to create a pod.
    """

    refused = frozenset[str]()
    code = FORBIDDEN
    attempts = 0

    def create(self, kind: str, namespace: str, body: Mapping[str, Any]) -> None:
        self.attempts += kind == "pods"
        if body["kind"] == "Pod" and body["metadata"]["name"] in self.refused:
            raise ApiError(self.code, "exceeded quota")
        super().create(kind, namespace, body)


def reconcile_with_refusal(cluster: ModelCluster) -> None:
    reconciler = Reconciler(cluster, Metrics(), now=lambda: cluster.now)
    with pytest.raises(RetryError, match="exceeded quota"):
        reconciler.reconcile(KEY)


@pytest.mark.parametrize("code", [CONFLICT, INTERNAL_ERROR])
def test_a_name_conflict_or_a_failing_webhook_does_not_prevent_the_other_workers(
    code: int,
) -> None:
    cluster = RefusingCluster(replicas=3)
    cluster.refused, cluster.code = frozenset({"job-worker-1"}), code

    reconcile_with_refusal(cluster)

    assert set(cluster.pods) == {"job-worker-0", "job-worker-2"}


def test_an_exhausted_quota_does_not_keep_changed_bounds_from_running_workers() -> None:
    cluster = RefusingCluster(replicas=3)
    cluster.refused = frozenset({"job-worker-2"})
    reconcile_with_refusal(cluster)

    cluster.source["spec"]["maxReplicas"] = 4
    reconcile_with_refusal(cluster)

    bounds = [
        pod["metadata"]["annotations"]["everstep.dev/nnodes"] for pod in cluster.pods.values()
    ]
    assert bounds == ["1:4", "1:4"]


@pytest.mark.parametrize("code", [TOO_MANY_REQUESTS, UNAVAILABLE])
def test_an_overloaded_api_server_gets_no_further_requests_in_the_pass(code: int) -> None:
    cluster = RefusingCluster(replicas=3)
    cluster.refused, cluster.code = frozenset({"job-worker-0"}), code

    reconcile_with_refusal(cluster)

    assert cluster.attempts == 1


class ClusterWithoutEvents(ModelCluster):
    """A cluster that stores events in a separate etcd, which does not respond."""

    attempts = 0

    def record_event(self, _job: ElasticJob, _event: Event, _now: datetime) -> None:
        self.attempts += 1
        raise HTTPError("the read operation timed out")


def test_events_that_get_no_response_do_not_prevent_the_actions_of_a_pass() -> None:
    cluster = ClusterWithoutEvents(replicas=3)

    Reconciler(cluster, Metrics(), now=lambda: cluster.now).reconcile(KEY)

    assert len(cluster.pods) == 3
    assert cluster.attempts == 1, "each further event would wait for a timeout as well"
