"""A registry and a budget on Azure."""

import base64
from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import Any

import pulumi
import yaml

from components.budget.azure import AzureBudget, AzureBudgetArgs
from components.config import BudgetConfig
from components.registry.acr import sweep
from tests.unit.components.aks_stack import full
from tests.unit.components.recorder import Graph, Recorded, record

SUBSCRIPTION = "/subscriptions/00000000-0000-4000-8000-000000000000"


@cache
def in_november() -> Graph:
    def program() -> Mapping[str, Any]:
        AzureBudget(
            "budget",
            AzureBudgetArgs(
                config=BudgetConfig(monthlyUsd=500, email="owner@example.org"),
                cluster_name="everstep",
                stack="aks-dev",
                group=pulumi.Output.from_input("everstep-aks-dev"),
                group_id=pulumi.Output.from_input(f"{SUBSCRIPTION}/resourceGroups/g"),
                node_group="everstep-aks-dev-nodes",
                today=date(2026, 11, 21),
            ),
        )
        return {}

    return record(program)


def budget() -> Recorded:
    return in_november().one("Budget")


def test_the_budget_counts_the_machines_too() -> None:
    said = budget().inputs

    assert said["scope"] == SUBSCRIPTION, "a budget of one group would not see the other"
    assert said["filter"]["dimensions"] == {
        "name": "ResourceGroupName",
        "operator": "In",
        "values": ["everstep-aks-dev", "everstep-aks-dev-nodes"],
    }
    assert (said["amount"], said["timeGrain"], said["category"]) == (500, "Monthly", "Cost")


def test_the_budget_begins_with_a_month_and_stays_there() -> None:
    assert budget().inputs["timePeriod"] == {"startDate": "2026-11-01T00:00:00Z"}
    assert budget().ignore_changes == ("timePeriod",), "each new month would change it"


def test_somebody_is_told_in_time() -> None:
    said = budget().inputs["notifications"]
    told = {(one["thresholdType"], one["threshold"]) for one in said.values()}

    assert told == {("Actual", 80), ("Actual", 100), ("Forecasted", 100)}
    assert all(one["contactEmails"] == ["owner@example.org"] for one in said.values())


def test_the_budget_names_the_groups_that_the_stack_has() -> None:
    said = full().one("Budget").inputs["filter"]["dimensions"]["values"]

    assert said == [
        full().one("ResourceGroup").inputs["resourceGroupName"],
        full().one("ManagedCluster").inputs["nodeResourceGroup"],
    ]


def test_the_registry_has_no_shared_password() -> None:
    said = full().one("Registry").inputs

    assert said["adminUserEnabled"] is False
    assert said["anonymousPullEnabled"] is False
    assert said["registryName"] == "visionimages"


def test_old_images_go_every_week_and_the_newest_stay() -> None:
    said = full().one("Task").inputs
    (timer,) = said["trigger"]["timerTriggers"]
    task = yaml.safe_load(base64.b64decode(said["step"]["encodedTaskContent"]))
    (step,) = task["steps"]

    assert (timer["schedule"], timer["status"]) == ("0 3 * * Sun", "Enabled")
    assert "--keep 5" in step["cmd"]
    assert "--filter '.*:.*'" in step["cmd"]
    assert step["disableWorkingDirectoryOverride"] is True


def test_another_number_of_images_is_another_task() -> None:
    assert sweep(5) != sweep(6)
