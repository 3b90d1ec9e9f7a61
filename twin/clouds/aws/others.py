"""AWS logs and budgets. Pure."""

# ruff: noqa: S106  (a token is the name of a type here, and no password)

import re
from collections.abc import Iterable

from twin.clouds.aws.common import ACCOUNT, arn, by
from twin.clouds.aws.identity import KEY
from twin.clouds.model import Inputs, Naming, Reference, ResourceType, Rule
from twin.clouds.rules import at, known
from twin.clouds.wire.check import Mistake

# CloudWatch Logs API, PutRetentionPolicy.
RETENTIONS = (0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192,
              2557, 2922, 3288, 3653)  # fmt: skip
LOG_NAME = re.compile(r"[.\-_/#A-Za-z0-9]+")


def _retention(inputs: Inputs) -> Iterable[Mistake]:
    days = inputs.get("retentionInDays")
    if isinstance(days, int) and days not in RETENTIONS:
        yield at("retentionInDays", f"{days} days are none of {', '.join(map(str, RETENTIONS))}")


def _log_name(inputs: Inputs) -> Iterable[Mistake]:
    name = inputs.get("name")
    if isinstance(name, str) and not LOG_NAME.fullmatch(name):
        yield at("name", f"{name!r} holds other characters than letters, digits and . - _ / #")


def _amount(inputs: Inputs) -> Iterable[Mistake]:
    amount = inputs.get("limitAmount")
    if isinstance(amount, str) and not re.fullmatch(r"\d+(\.\d+)?", amount):
        yield at("limitAmount", f"{amount!r} is no amount")
    notes = inputs.get("notifications")
    for position, note in enumerate(notes if isinstance(notes, list) else []):
        here = f"notifications[{position}]"
        if not (note.get("subscriberEmailAddresses") or note.get("subscriberSnsTopicArns")):
            yield at(here, "a notification has at least one subscriber")
        for address in note.get("subscriberEmailAddresses") or ():
            if known(address) and "@" not in str(address):
                yield at(f"{here}.subscriberEmailAddresses", "this is no address")


TYPES = (
    ResourceType(
        token="aws:cloudwatch/logGroup:LogGroup",
        identify=by("name"),
        describe=lambda making: {"arn": arn("logs", f"log-group:{making.id}", making.region)},
        defaults={"retentionInDays": 0, "logGroupClass": "STANDARD", "skipDestroy": False},
        naming=Naming(longest=512),
        immutable=("namePrefix", "logGroupClass", "region"),
        enums={"logGroupClass": ("STANDARD", "INFREQUENT_ACCESS", "DELIVERY")},
        rules=(
            Rule(
                name="days of a log group",
                source="CloudWatch Logs API, PutRetentionPolicy",
                broken=_retention,
            ),
            Rule(
                name="name of a log group",
                source="CloudWatch Logs API, CreateLogGroup",
                broken=_log_name,
            ),
        ),
        references=(
            Reference(path="kmsKeyId", to=(KEY,), by="arn", code="InvalidParameterException"),
        ),
        unique_code="ResourceAlreadyExistsException",
    ),
    ResourceType(
        token="aws:budgets/budget:Budget",
        identify=lambda making: f"{ACCOUNT}:{making.inputs['name']}",
        describe=lambda making: {
            "arn": f"arn:aws:budgets::{ACCOUNT}:budget/{making.inputs['name']}",
            "accountId": ACCOUNT,
        },
        naming=Naming(longest=100),
        immutable=("namePrefix", "accountId"),
        enums={
            "budgetType": (
                "COST",
                "USAGE",
                "RI_UTILIZATION",
                "RI_COVERAGE",
                "SAVINGS_PLANS_UTILIZATION",
                "SAVINGS_PLANS_COVERAGE",
            ),
            "timeUnit": ("DAILY", "MONTHLY", "QUARTERLY", "ANNUALLY", "CUSTOM"),
            "notifications.*.comparisonOperator": ("GREATER_THAN", "LESS_THAN", "EQUAL_TO"),
            "notifications.*.thresholdType": ("PERCENTAGE", "ABSOLUTE_VALUE"),
            "notifications.*.notificationType": ("ACTUAL", "FORECASTED"),
        },
        rules=(
            Rule(name="amount of a budget", source="Budgets API, CreateBudget", broken=_amount),
        ),
        unique_code="DuplicateRecordException",
    ),
)
