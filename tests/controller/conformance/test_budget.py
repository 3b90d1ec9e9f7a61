"""A job whose budget is used up is suspended, and a higher budget resumes it; invalid settings are refused."""

from typing import Any

import pytest
from kubernetes import client

from tests.controller.conformance.job_namespace import JobNamespace

pytestmark = [
    pytest.mark.known_upstream_failure("it has no budgets"),
    pytest.mark.only_on("stand-in", "it does not depend on processes"),
]

A_DOLLAR_A_SECOND = [{"capacity": "spot", "usdPerHour": 3600}]
RESERVE_USD = 2 * (60 + 30)
"""Price of two workers until the controller's next pass and through their grace period; a job needs at least this."""


def test_a_budget_that_is_used_up_suspends_a_job_until_it_is_raised(
    job_namespace: JobNamespace, name: str
) -> None:
    limits = {"budgetUsd": RESERVE_USD + 4, "pools": A_DOLLAR_A_SECOND}
    job = job_namespace.job(name, replicas=2, max_replicas=2, spending=limits)

    job.wait_until("the budget is used up", lambda: job.is_true("Suspended"))
    job.wait_until("the workers have left", lambda: job.pods() == {})

    condition = job.conditions()["Suspended"]
    assert condition["reason"] == "BudgetUsedUp"
    assert "raise job.budgetUsd" in condition["message"]
    assert job.read()["status"]["spending"]["usd"] > 0
    job.wait_for_events("BudgetUsedUp")
    job.patch({"spending": {"budgetUsd": 1e6}})
    job.wait_until_running({0, 1})
    job.wait_until("the job runs", lambda: job.is_true("Running") and not job.is_true("Suspended"))


@pytest.mark.parametrize(
    "spending",
    [
        {"budgetUsd": 0, "pools": A_DOLLAR_A_SECOND},
        {"budgetUsd": 5},
        {"deadlineSeconds": 3600},
        {"deadlineSeconds": 0, "onDemand": "never"},
        {"deadlineSeconds": 5, "deadline": "2030-01-01T00:00:00Z", "onDemand": "never"},
        {"deadline": "tomorrow", "onDemand": "never"},
        {"onDemand": "sometimes"},
        {"pools": [{"capacity": "cheap", "usdPerHour": 1}]},
        {"pools": [{"capacity": "spot", "usdPerHour": -1}]},
    ],
)
def test_the_api_server_refuses_invalid_spending_settings(
    job_namespace: JobNamespace, name: str, spending: dict[str, Any]
) -> None:
    with pytest.raises(client.ApiException) as error:
        job_namespace.job(name, spending=spending)

    assert error.value.status == 422
