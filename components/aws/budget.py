"""A budget on AWS for all resources with the tag of the stack.

AWS filters costs by a tag only after the tag has been activated for cost allocation: once per account, in the
billing console, under "Cost allocation tags". Until then, the budget records a cost of 0 and never warns.
"""

import hashlib
from dataclasses import dataclass

import pulumi
from pulumi_aws import budgets

from components.component import Component
from components.config import BudgetConfig

MAX_NAME_LENGTH = 100  # limit of AWS Budgets
# Percentage of the budget, and the cost compared with it: actual or forecast cost of the month.
WARNINGS = ((80, "ACTUAL"), (100, "ACTUAL"), (100, "FORECASTED"))


@dataclass(frozen=True, kw_only=True)
class AwsBudgetArgs:
    """Arguments of an AwsBudget.

    Attributes:
        config: the `cost.budget` section of a stack: amount and e-mail address.
        cluster: name of the cluster, prefix of the budget's name.
        stack: value of the tag `stack`.
    """

    config: BudgetConfig
    cluster: str
    stack: str


class AwsBudget(Component):
    """A monthly budget that sends warnings by e-mail."""

    def __init__(
        self, name: str, args: AwsBudgetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("budget:AwsBudget", name, opts)
        budgets.Budget(
            f"{name}-monthly",
            name=budget_name(args.cluster, args.stack),
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{args.config.monthly_usd:.2f}",
            limit_unit="USD",
            cost_filters=[{"name": "TagKeyValue", "values": [f"user:stack${args.stack}"]}],
            notifications=[
                {
                    "comparison_operator": "GREATER_THAN",
                    "threshold": percentage,
                    "threshold_type": "PERCENTAGE",
                    "notification_type": cost,
                    "subscriber_email_addresses": [args.config.email],
                }
                for percentage, cost in WARNINGS
            ],
            opts=self.child(delete_before_replace=True),
        )
        self.register_outputs({})


def budget_name(cluster: str, stack: str) -> str:
    """Return the name of a stack's budget, unique in the account; a digest replaces the end of a long one."""
    name = f"{cluster}-{stack}"
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{name[: MAX_NAME_LENGTH - len(digest) - 1]}-{digest}"
