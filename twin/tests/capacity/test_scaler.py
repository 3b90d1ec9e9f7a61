"""The autoscaler of a twin, against a cluster with fixed responses."""

import pytest
from cloudtwin.capacity.__main__ import Daemon
from cloudtwin.kubernetes_api import KubernetesClient

from twin.tests.capacity.builders import pool
from twin.tests.capacity.test_observation import autoscaler


def test_an_autoscaler_with_an_invalid_flag_scales_nothing_and_says_so(
    pool_daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = [autoscaler("--scale-down-unneeded-time=ten")]
    monkeypatch.setattr(
        KubernetesClient, "get", lambda _, path: {"items": pods if path.endswith("/pods") else []}
    )
    scaler = pool_daemon.scaler

    decision = scaler.decide([pool(desired_size=1)], {}, {}, 1.0)

    assert decision is not None
    assert (decision.sizes, decision.remove) == ({}, ())
    assert decision.reasons == (
        "a flag of the autoscaler's pod is invalid: 'ten' is not a valid duration",
    )
