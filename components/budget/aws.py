"""A budget of AWS over what carries the stack's tag.

AWS counts a tag only once it is activated for cost allocation, which is done once an account, in
the billing console, under "Cost allocation tags"; until then the budget stands at 0 and warns of
nothing.
"""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.config import BudgetConfig
from components.part import Part

# Per cent of the budget, and what is compared: what was spent, what the month will come to.
WARNINGS = ((80, "ACTUAL"), (100, "FORECASTED"))


@dataclass(frozen=True, kw_only=True)
class AwsBudgetArgs:
    """What to watch.

    Attributes:
        config: how much, and who is told.
        cluster: name of the cluster, which the budget's begins with.
        stack: the value of the tag `stack`.
    """

    config: BudgetConfig
    cluster: str
    stack: str


class AwsBudget(Part):
    """A monthly budget that warns by mail."""

    def __init__(
        self, name: str, args: AwsBudgetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("budget:AwsBudget", name, opts)
        aws.budgets.Budget(
            f"{name}-monthly",
            name=f"{args.cluster}-{args.stack}",
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{args.config.monthly_usd:.2f}",
            limit_unit="USD",
            cost_filters=[{"name": "TagKeyValue", "values": [f"user:stack${args.stack}"]}],
            notifications=[
                {
                    "comparison_operator": "GREATER_THAN",
                    "threshold": per_cent,
                    "threshold_type": "PERCENTAGE",
                    "notification_type": compared,
                    "subscriber_email_addresses": [args.config.email],
                }
                for per_cent, compared in WARNINGS
            ],
            opts=self.child(delete_before_replace=True),
        )
        self.register_outputs({})
