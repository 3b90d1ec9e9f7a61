"""The budget on Azure."""

from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import Any

import pulumi

from components.azure.budget import AzureBudget, AzureBudgetArgs
from components.config import BudgetConfig
from tests.components.azure.aks_stack import all_features_stack
from tests.components.recorder import Graph, RecordedResource, record

SUBSCRIPTION = "/subscriptions/00000000-0000-4000-8000-000000000000"


@cache
def declared_in_november(cluster: str = "everstep") -> Graph:
    def program() -> Mapping[str, Any]:
        AzureBudget(
            "budget",
            AzureBudgetArgs(
                config=BudgetConfig(monthlyUsd=500, email="owner@example.org"),
                cluster=cluster,
                stack="aks-dev",
                group=pulumi.Output.from_input("everstep-aks-dev"),
                group_id=pulumi.Output.from_input(f"{SUBSCRIPTION}/resourceGroups/g"),
                node_group="everstep-aks-dev-nodes",
                today=date(2026, 11, 21),
            ),
        )
        return {}

    return record(program)


def budget() -> RecordedResource:
    return declared_in_november().one("Budget")


def test_the_budget_includes_the_machines() -> None:
    inputs = budget().inputs

    assert inputs["scope"] == SUBSCRIPTION, "a budget of one group would not include the other"
    assert inputs["filter"]["dimensions"] == {
        "name": "ResourceGroupName",
        "operator": "In",
        "values": ["everstep-aks-dev", "everstep-aks-dev-nodes"],
    }
    assert (inputs["amount"], inputs["timeGrain"], inputs["category"]) == (500, "Monthly", "Cost")


def test_the_budget_keeps_the_month_of_its_creation() -> None:
    assert budget().inputs["timePeriod"] == {"startDate": "2026-11-01T00:00:00Z"}
    assert budget().ignore_changes == ("timePeriod",), "the budget would change every month"


def test_a_budget_with_another_name_is_a_new_resource_with_its_own_start() -> None:
    """A replacement would keep the ignored start, a past month, which Azure refuses for a new budget."""
    renamed = declared_in_november("vision").one("Budget")

    assert renamed.inputs["budgetName"] != budget().inputs["budgetName"]
    assert renamed.urn != budget().urn


def test_the_budget_warns_before_it_is_exceeded() -> None:
    notifications = budget().inputs["notifications"]
    thresholds = {
        (notification["thresholdType"], notification["threshold"])
        for notification in notifications.values()
    }

    assert thresholds == {("Actual", 80), ("Actual", 100), ("Forecasted", 100)}
    assert all(
        notification["contactEmails"] == ["owner@example.org"]
        for notification in notifications.values()
    )


def test_the_budget_names_the_groups_that_the_stack_has() -> None:
    groups = all_features_stack().one("Budget").inputs["filter"]["dimensions"]["values"]

    assert groups == [
        all_features_stack().one("ResourceGroup").inputs["resourceGroupName"],
        all_features_stack().one("ManagedCluster").inputs["nodeResourceGroup"],
    ]
