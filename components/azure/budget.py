"""A budget on Azure for the cost of one stack.

It is a budget of the subscription, filtered to the two resource groups of the stack. AKS creates the
machines, which are nearly all of the cost, in a separate group; a budget of one group would miss them.
"""

from dataclasses import dataclass
from datetime import date

import pulumi
from pulumi_azure_native import consumption

from components.azure.names import budget_name
from components.azure.roles import subscription_of
from components.component import Component
from components.config import BudgetConfig


@dataclass(frozen=True, kw_only=True)
class AzureBudgetArgs:
    """Arguments of an AzureBudget.

    Attributes:
        config: the `cost.budget` section of a stack: amount and e-mail address.
        cluster: name of the cluster, prefix of the budget's name.
        stack: name of the stack.
        group: name of the resource group of the stack.
        group_id: id of that group.
        node_group: name of the resource group of the machines.
        today: current date, whose month is the first of a new budget, since Azure refuses past months.
    """

    config: BudgetConfig
    cluster: str
    stack: str
    group: pulumi.Input[str]
    group_id: pulumi.Input[str]
    node_group: str
    today: date


class AzureBudget(Component):
    """A monthly budget with e-mail warnings: at 80 % and 100 % of the amount, and at a forecast of 100 %."""

    def __init__(
        self, name: str, args: AzureBudgetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("budget:AzureBudget", name, opts)
        azure_name = budget_name(args.cluster, args.stack)
        consumption.Budget(
            # A budget with another name is a new resource: a replacement would keep the start, a past month.
            f"{name}-{azure_name}",
            budget_name=azure_name,
            scope=pulumi.Output.from_input(args.group_id).apply(subscription_of),
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
            # The start remains the month of creation; otherwise each run would set the current month.
            opts=pulumi.ResourceOptions.merge(
                self.child(delete_before_replace=True, ignore_changes=["timePeriod"]),
                pulumi.ResourceOptions(aliases=[pulumi.Alias(name=f"{name}-budget")]),
            ),
        )
        self.register_outputs({})


def _mail(address: str, percent: float, cost: str) -> consumption.NotificationArgs:
    """Return the notification for a `cost`, Actual or Forecasted, that reaches `percent` of the amount."""
    return consumption.NotificationArgs(
        enabled=True,
        operator="GreaterThanOrEqualTo",
        threshold=percent,
        threshold_type=cost,
        contact_emails=[address],
    )
