"""Azure Monitor, Log Analytics and budgets. Pure.

Sources: Azure Monitor documentation ("Data collection rules", "Azure Monitor workspace"), Log
Analytics workspace REST API, Consumption REST API. Read 2026-11.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from cloudtwin.providers.azure.aks import WORKSPACE
from cloudtwin.providers.azure.common import CREATION_TIME, PLAIN_NAME, ROOT, arm_type
from cloudtwin.providers.conditions import (
    failure_at,
    in_range,
    matches,
    objects_at,
    section,
    value_rule,
)
from cloudtwin.providers.model import InputRule, Inputs, Precondition, Reference, ResourceRequest
from cloudtwin.providers.schema.check import CheckFailure

METRICS = "azure-native:monitor:AzureMonitorWorkspace"
ENDPOINT = "azure-native:monitor:DataCollectionEndpoint"
COLLECTION = "azure-native:monitor:DataCollectionRule"
ASSOCIATION = "azure-native:monitor:DataCollectionRuleAssociation"
BUDGET = "azure-native:consumption:Budget"
WORKSPACE_PATH = "Microsoft.OperationalInsights/workspaces/{workspaceName}"
METRICS_PATH = "Microsoft.Monitor/accounts/{azureMonitorWorkspaceName}"
ENDPOINT_PATH = "Microsoft.Insights/dataCollectionEndpoints/{dataCollectionEndpointName}"
COLLECTION_PATH = "Microsoft.Insights/dataCollectionRules/{dataCollectionRuleName}"
ASSOCIATION_PATH = (
    "{resourceUri}/providers/Microsoft.Insights/dataCollectionRuleAssociations/{associationName}"
)
BUDGET_PATH = "{scope}/providers/Microsoft.Consumption/budgets/{budgetName}"
DOCS, BUDGETS = "Azure Monitor documentation", "Consumption REST API, Budgets"
MAX_NOTIFICATIONS, MAX_THRESHOLD = 5, 1000
CONTACTS = ("contactEmails", "contactGroups", "contactRoles")
TARGETS = ("dataCollectionRuleId", "dataCollectionEndpointId")


def _retention(inputs: Inputs) -> Iterable[CheckFailure]:
    days, sku = inputs.get("retentionInDays"), section(inputs, "sku").get("name")
    if isinstance(days, int) and sku == "PerGB2018" and not 30 <= days <= 730:
        yield failure_at("retentionInDays", f"{days} days: PerGB2018 allows 30 to 730")


def _flows(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for flows to destinations that are not declared."""
    targets = {
        str(member.get("name"))
        for group in section(inputs, "destinations").values()
        for member in (group if isinstance(group, list) else [group])
        if isinstance(member, Mapping)
    }
    for path, flow in objects_at("dataFlows", inputs):
        for name in flow.get("destinations") or ():
            if isinstance(name, str) and name not in targets:
                yield failure_at(
                    f"{path}.destinations", f"{name!r} is not a destination of this rule"
                )


def _needs_endpoint(inputs: Inputs) -> Iterable[CheckFailure]:
    forwarder = section(inputs, "dataSources").get("prometheusForwarder")
    if forwarder and inputs.get("dataCollectionEndpointId") is None:
        yield failure_at("dataCollectionEndpointId", "metrics need an endpoint: it is missing")


def _one_target(inputs: Inputs) -> Iterable[CheckFailure]:
    if sum(inputs.get(key) is not None for key in TARGETS) != 1:
        yield failure_at(TARGETS[0], f"an association needs exactly one of {' and '.join(TARGETS)}")


def _target_exists(request: ResourceRequest) -> Iterable[str]:
    if request.account.find((), request.inputs["resourceUri"]) is None:
        yield f"{request.inputs['resourceUri']} does not exist"


def _positive(amount: object) -> str | None:
    is_invalid = isinstance(amount, int | float) and amount <= 0
    return f"{amount} is not a valid amount: it must be more than 0" if is_invalid else None


def _notifications(inputs: Inputs) -> Iterable[CheckFailure]:
    notifications = section(inputs, "notifications")
    if len(notifications) > MAX_NOTIFICATIONS:
        reason = f"{len(notifications)} notifications, at most {MAX_NOTIFICATIONS} are allowed"
        yield failure_at("notifications", reason)
    for name in notifications:
        notification = section(notifications, name)
        if not any(notification.get(key) for key in CONTACTS):
            yield failure_at(f"notifications.{name}", f"it needs one of {', '.join(CONTACTS)}")


def _scope_exists(request: ResourceRequest) -> Iterable[str]:
    scope = str(request.inputs["scope"]).rstrip("/")
    if scope.lower() != ROOT.lower() and request.account.find((), scope) is None:
        yield f"the scope {scope} does not exist"


def _valid_start(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a monthly budget that starts in a past month, or whose start changes."""
    start, previous = _start(request.inputs), request.previous
    if previous and _start(previous.inputs) != start:
        yield "Start date of budgets cannot be updated. Please delete and create a new budget."
    month = datetime.fromtimestamp(request.created_at, UTC).strftime("%Y-%m")
    if previous is None and start[: len(month)] < month:
        yield f"the start {start} of a new budget is before the current month, {month}"


def _start(inputs: Inputs) -> str:
    return str(section(inputs, "timePeriod").get("startDate"))


TYPES = (
    arm_type(
        WORKSPACE, WORKSPACE_PATH, 63, "location",
        name=("[A-Za-z0-9][A-Za-z0-9-]{2,61}[A-Za-z0-9]", 1),
        describe=lambda request: {
            "customerId": request.digits("customer", 32), "createdDate": CREATION_TIME,
        },
        rules=(InputRule("retention of a workspace", "Log Analytics REST API", _retention),),
    ),
    arm_type(
        METRICS, METRICS_PATH, 44, "location", name=(PLAIN_NAME, 4),
        describe=lambda request: {"accountId": request.digits("account", 32)},
    ),
    arm_type(
        ENDPOINT, ENDPOINT_PATH, 44, "location", name=(PLAIN_NAME, 3),
        describe=lambda request: {"immutableId": f"dce-{request.digits('id', 32)}"},
    ),
    arm_type(
        COLLECTION, COLLECTION_PATH, 64, "location", name=(PLAIN_NAME, 3),
        describe=lambda request: {"immutableId": f"dcr-{request.digits('id', 32)}"},
        rules=(
            InputRule("flows of a rule", f"{DOCS}, data collection rules", _flows),
            InputRule("endpoint of a rule", f"{DOCS}, managed Prometheus", _needs_endpoint),
        ),
        references=(
            Reference("dataCollectionEndpointId", (ENDPOINT,), "InvalidPayload", "Conflict"),
            Reference("destinations.logAnalytics.*.workspaceResourceId", (WORKSPACE,),
                      "InvalidPayload"),
            Reference("destinations.monitoringAccounts.*.accountResourceId", (METRICS,),
                      "InvalidPayload"),
        ),
    ),
    arm_type(
        ASSOCIATION, ASSOCIATION_PATH, 64, name=None, parent=None,
        rules=(InputRule("target of a rule association", DOCS, _one_target),),
        references=(
            Reference(TARGETS[0], (COLLECTION,), "InvalidPayload",
                      "CannotDeleteRuleWithAssociations"),
            Reference(TARGETS[1], (ENDPOINT,), "InvalidPayload", "Conflict"),
        ),
        preconditions=(
            Precondition("resource of an association", DOCS, "ResourceNotFound", _target_exists),
        ),
    ),
    arm_type(
        BUDGET, BUDGET_PATH, 63, "timeGrain", name=None, parent=None,
        describe=lambda _request: {"currentSpend": {"amount": 0, "unit": "USD"}},
        rules=(
            value_rule("amount of an Azure budget", "amount", _positive, BUDGETS),
            value_rule("start of an Azure budget", "timePeriod.startDate",
                       matches(r"\d{4}-\d{2}-01(T.*)?", "is not the first day of a month"), BUDGETS),
            value_rule("thresholds of an Azure budget", "notifications.*.threshold",
                       in_range(0, MAX_THRESHOLD, "%"), BUDGETS),
            InputRule("notifications of an Azure budget", BUDGETS, _notifications),
        ),
        preconditions=(
            Precondition("scope of a budget", BUDGETS, "ResourceNotFound", _scope_exists),
            Precondition("start of a budget", BUDGETS, "400", _valid_start),
        ),
    ),
)  # fmt: skip
