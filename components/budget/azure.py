"""A budget on Azure for what one stack costs.

It is one of the subscription, filtered to the stack's two resource groups: AKS keeps the machines,
which are nearly all of the bill, in a group of its own, and a budget of one group would not see
them.
"""

from dataclasses import dataclass
from datetime import date

import pulumi
from pulumi_azure_native import consumption

from components.cluster.aks_names import budget_name
from components.cluster.aks_roles import subscription_of
from components.config import BudgetConfig
from components.part import Part


@dataclass(frozen=True, kw_only=True)
class AzureBudgetArgs:
    """How much, of what, and who is told.

    Attributes:
        config: the stack's `cost.budget` section.
        cluster_name: what the budget's name begins with.
        stack: the stack's name.
        group: name of the stack's resource group.
        group_id: its id.
        node_group: name of the group with the machines.
        today: when it begins to count, if it is new: Azure takes no month that is over.
    """

    config: BudgetConfig
    cluster_name: str
    stack: str
    group: pulumi.Output[str]
    group_id: pulumi.Output[str]
    node_group: str
    today: date


class AzureBudget(Part):
    """A monthly budget that writes a mail at 80 % and when all of it is spent or will be."""

    def __init__(
        self, name: str, args: AzureBudgetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("budget:AzureBudget", name, opts)
        consumption.Budget(
            f"{name}-budget",
            budget_name=budget_name(args.cluster_name, args.stack),
            scope=args.group_id.apply(subscription_of),
            amount=args.config.monthly_usd,
            category="Cost",
            time_grain="Monthly",
            time_period=consumption.BudgetTimePeriodArgs(
                start_date=f"{args.today.replace(day=1).isoformat()}T00:00:00Z"
            ),
            filter=consumption.BudgetFilterArgs(
                dimensions=consumption.BudgetComparisonExpressionArgs(
                    name="ResourceGroupName",
                    operator="In",
                    values=[args.group, args.node_group],
                )
            ),
            notifications={
                "spent80": _mail(args.config.email, 80, "Actual"),
                "spent100": _mail(args.config.email, 100, "Actual"),
                "forecast100": _mail(args.config.email, 100, "Forecasted"),
            },
            # The month in which it was made stays; each run would name the current one.
            opts=self.child(delete_before_replace=True, ignore_changes=["timePeriod"]),
        )
        self.register_outputs({})


def _mail(address: str, percent: float, what: str) -> consumption.NotificationArgs:
    """Give a notification; `what` is counted against `percent` of the amount."""
    return consumption.NotificationArgs(
        enabled=True,
        operator="GreaterThanOrEqualTo",
        threshold=percent,
        threshold_type=what,
        contact_emails=[address],
    )
