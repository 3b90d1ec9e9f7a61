"""CloudWatch Logs, AWS Budgets and Amazon Managed Service for Prometheus. Pure."""

import uuid
from collections.abc import Iterable
from typing import Any

import yaml

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers.aws.common import arn, id_from
from cloudtwin.providers.aws.identity import to_key
from cloudtwin.providers.conditions import (
    failure_at,
    matches,
    objects_at,
    one_of_values,
    value_rule,
)
from cloudtwin.providers.model import (
    InputRule,
    Inputs,
    Naming,
    Reference,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.schema.check import CheckFailure

LOGS = "aws:cloudwatch/logGroup:LogGroup"
BUDGET = "aws:budgets/budget:Budget"
PROMETHEUS_WORKSPACE = "aws:amp/workspace:Workspace"
METRIC_RULES = "aws:amp/ruleGroupNamespace:RuleGroupNamespace"
# CloudWatch Logs API, PutRetentionPolicy; 0 means no expiry to the provider.
RETENTIONS = (0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192,
              2557, 2922, 3288, 3653)  # fmt: skip
API = "Budgets API, CreateBudget"
MAX_SUBSCRIBERS = 11  # Budgets API, NotificationWithSubscribers
SUBSCRIBERS = ("subscriberEmailAddresses", "subscriberSnsTopicArns")


def _subscribers(inputs: Inputs) -> Iterable[CheckFailure]:
    for path, notification in objects_at("notifications", inputs):
        count = sum(len(notification.get(name) or ()) for name in SUBSCRIBERS)
        if not count:
            yield failure_at(path, "a notification needs at least one subscriber")
        if count > MAX_SUBSCRIBERS:
            yield failure_at(path, f"{count} subscribers, at most {MAX_SUBSCRIBERS} are allowed")


def _workspace(request: ResourceRequest) -> dict[str, Any]:
    """Return the ARN and endpoint of a Prometheus workspace."""
    host = f"aps-workspaces.{request.region}.amazonaws.com"
    return {
        "arn": arn("aps", f"workspace/{request.id}", request.region),
        "prometheusEndpoint": f"https://{host}/workspaces/{request.id}/",
    }


def _rule_groups(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for text that is not a rule file in which each group has a name and rules."""
    text = inputs.get("data")
    if not isinstance(text, str):
        return
    try:
        groups = yaml.safe_load(text)["groups"]
        incomplete_groups = [group for group in groups if not (group["name"] and group["rules"])]
    except (yaml.YAMLError, KeyError, TypeError):
        yield failure_at("data", "is not a rule file: YAML with groups, each with a name and rules")
        return
    if incomplete_groups:
        yield failure_at("data", "a rule group needs a name and at least one rule")


def _limit(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for a budget whose limit has no amount or no unit."""
    names = ("limitAmount", "limitUnit")
    if inputs.get("plannedLimits") or inputs.get("autoAdjustData"):
        return
    for name in names:
        if not inputs.get(name):
            yield failure_at(name, f"it is missing: a budget needs {' and '.join(names)}")


TYPES = (
    ResourceType(
        token=LOGS,
        identify=id_from("name"),
        describe=lambda request: {"arn": arn("logs", f"log-group:{request.id}", request.region)},
        defaults={"retentionInDays": 0, "logGroupClass": "STANDARD", "skipDestroy": False},
        naming=Naming(max_length=512),
        immutable=("namePrefix", "logGroupClass", "region"),
        rules=(
            value_rule(
                "retention of a log group", "retentionInDays", one_of_values(*RETENTIONS),
                "CloudWatch Logs API, PutRetentionPolicy",
            ),
            value_rule(
                "name of a log group", "name", matches(r"(?!aws/).*", "begins with aws/, which AWS reserves"),
                "CloudWatch Logs API, CreateLogGroup",
            ),
        ),
        references=(to_key("kmsKeyId", "InvalidParameterException"),),
        unique_code="ResourceAlreadyExistsException",
    ),
    ResourceType(
        token=BUDGET,
        identify=lambda request: f"{AWS_ACCOUNT}:{request.inputs['name']}",
        describe=lambda request: {
            "arn": f"arn:aws:budgets::{AWS_ACCOUNT}:budget/{request.inputs['name']}",
            "accountId": AWS_ACCOUNT,
        },
        naming=Naming(max_length=100),
        immutable=("namePrefix", "accountId"),
        rules=(
            InputRule("subscribers of a budget", API, _subscribers),
            InputRule("limit of a budget", API, _limit),
            value_rule(
                "addresses of a budget", "notifications.*.subscriberEmailAddresses.*",
                matches(r"[^@\s]+@[^@\s]+", "is not an email address"), API,
            ),
            value_rule(
                "topics of a budget", "notifications.*.subscriberSnsTopicArns.*",
                matches(r"arn:aws:sns:.+", "is not the ARN of an SNS topic"), API,
            ),
            *(value_rule(
                f"{name} of a budget", name,
                matches(r"\d{4}-\d\d-\d\d_\d\d:\d\d", "is not of the form 2026-01-31_00:00"),
                "pulumi-aws, Budget",
            ) for name in ("timePeriodStart", "timePeriodEnd")),
        ),
        unique_code="DuplicateRecordException",
    ),
    ResourceType(
        token=PROMETHEUS_WORKSPACE,
        identify=lambda request: f"ws-{uuid.UUID(request.entropy[:32])}",
        describe=_workspace,
        immutable=("kmsKeyArn", "region"),
        references=(to_key("kmsKeyArn", "ValidationException"),),
    ),
    ResourceType(
        token=METRIC_RULES,
        identify=lambda request: arn(
            "aps",
            f"rulegroupsnamespace/{request.inputs['workspaceId']}/{request.inputs['name']}",
            request.region,
        ),
        describe=lambda request: {"arn": request.id},
        naming=Naming(max_length=128),
        immutable=("workspaceId", "region"),
        rules=(InputRule("rule groups", "Amazon Managed Service for Prometheus API", _rule_groups),),
        references=(Reference("workspaceId", (PROMETHEUS_WORKSPACE,), "ResourceNotFoundException"),),
        unique_code="ConflictException",
    ),
)  # fmt: skip
