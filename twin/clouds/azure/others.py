"""Azure Monitor, Log Analytics and budgets. Pure.

Sources: Azure Monitor documentation ("Data collection rules", "Azure Monitor workspace"), Log
Analytics workspace REST API, Consumption REST API. Read 2026-11.
"""

# ruff: noqa: S106  (a token is the name of a type here, and no password)

import re
from collections.abc import Iterable, Mapping

from twin.clouds.azure.common import ROOT, arm, named, parent_of
from twin.clouds.azure.network import plain_name
from twin.clouds.model import Demand, Inputs, Making, Naming, Reference, ResourceType, Rule
from twin.clouds.rules import at
from twin.clouds.wire.check import Mistake

WORKSPACE = "azure-native:operationalinsights:Workspace"
METRICS = "azure-native:monitor:AzureMonitorWorkspace"
ENDPOINT = "azure-native:monitor:DataCollectionEndpoint"
COLLECTION = "azure-native:monitor:DataCollectionRule"
WORKSPACE_PATH = "Microsoft.OperationalInsights/workspaces/{workspaceName}"
METRICS_PATH = "Microsoft.Monitor/accounts/{azureMonitorWorkspaceName}"
ENDPOINT_PATH = "Microsoft.Insights/dataCollectionEndpoints/{dataCollectionEndpointName}"
COLLECTION_PATH = "Microsoft.Insights/dataCollectionRules/{dataCollectionRuleName}"
TIE_PATH = (
    "{resourceUri}/providers/Microsoft.Insights/dataCollectionRuleAssociations/{associationName}"
)
BUDGET_PATH = "{scope}/providers/Microsoft.Consumption/budgets/{budgetName}"
DOCS = "Azure Monitor documentation"
MOST_NOTES, MOST_THRESHOLD = 5, 1000
WORKSPACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{2,61}[A-Za-z0-9]")


def _retention(inputs: Inputs) -> Iterable[Mistake]:
    days, sku = inputs.get("retentionInDays"), (inputs.get("sku") or {}).get("name")
    if isinstance(days, int) and sku == "PerGB2018" and not 30 <= days <= 730:
        yield at("retentionInDays", f"{days} days: PerGB2018 has 30 to 730")


def _flows(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a flow from or to what the rule does not name."""
    given = inputs.get("destinations")
    targets = {
        str(each.get("name"))
        for group in (given.values() if isinstance(given, Mapping) else ())
        for each in (group if isinstance(group, list) else [group])
        if isinstance(each, Mapping)
    }
    flows = inputs.get("dataFlows")
    for position, flow in enumerate(flows if isinstance(flows, list) else []):
        for name in flow.get("destinations") or ():
            if isinstance(name, str) and name not in targets:
                yield at(f"dataFlows[{position}].destinations", f"{name!r} is no destination here")


def _needs_endpoint(inputs: Inputs) -> Iterable[Mistake]:
    sources = inputs.get("dataSources")
    forwards = isinstance(sources, Mapping) and sources.get("prometheusForwarder")
    if forwards and inputs.get("dataCollectionEndpointId") is None:
        yield at("dataCollectionEndpointId", "metrics come in by an endpoint: it is missing")


def _tie(inputs: Inputs) -> Iterable[Mistake]:
    keys = ("dataCollectionRuleId", "dataCollectionEndpointId")
    if sum(inputs.get(key) is not None for key in keys) != 1:
        yield at(keys[0], "an association names a rule or an endpoint, one of them")


def _target_there(making: Making) -> Iterable[str]:
    if making.world.find((), str(making.inputs["resourceUri"])) is None:
        yield f"{making.inputs['resourceUri']} does not exist"


def _budget(inputs: Inputs) -> Iterable[Mistake]:
    amount, period = inputs.get("amount"), inputs.get("timePeriod")
    if isinstance(amount, int | float) and amount <= 0:
        yield at("amount", f"{amount} is no amount")
    start = period.get("startDate") if isinstance(period, Mapping) else None
    if isinstance(start, str) and not re.match(r"\d{4}-\d{2}-01(T|$)", start):
        yield at("timePeriod.startDate", f"{start!r} is not the first of a month")
    notes = inputs.get("notifications")
    if isinstance(notes, Mapping) and len(notes) > MOST_NOTES:
        yield at("notifications", f"{len(notes)} notifications, {MOST_NOTES} are allowed")
    for name, note in notes.items() if isinstance(notes, Mapping) else ():
        threshold = note.get("threshold")
        if isinstance(threshold, int | float) and not 0 <= threshold <= MOST_THRESHOLD:
            yield at(f"notifications.{name}.threshold", f"{threshold} %: 0 to {MOST_THRESHOLD}")
        if not (note.get("contactEmails") or note.get("contactGroups") or note.get("contactRoles")):
            yield at(f"notifications.{name}", "it tells nobody")


def _budget_scope(making: Making) -> Iterable[str]:
    scope = str(making.inputs["scope"]).rstrip("/")
    if scope.lower() != ROOT.lower() and making.world.find((), scope) is None:
        yield f"the scope {scope} does not exist"


TYPES = (
    ResourceType(
        token=WORKSPACE,
        identify=arm(WORKSPACE_PATH),
        describe=lambda making: {
            "customerId": making.digits("customer", 32),
            "createdDate": "2026-01-01T00:00:00Z",
        },
        naming=Naming(property="workspaceName", longest=63),
        immutable=named(WORKSPACE_PATH, "location"),
        parent=parent_of,
        rules=(
            plain_name("workspaceName", WORKSPACE_NAME),
            Rule(name="days of a workspace", source="Log Analytics REST API", broken=_retention),
        ),
        unique_code="Conflict",
    ),
    ResourceType(
        token=METRICS,
        identify=arm(METRICS_PATH),
        describe=lambda making: {"accountId": making.digits("account", 32)},
        naming=Naming(property="azureMonitorWorkspaceName", longest=44),
        immutable=named(METRICS_PATH, "location"),
        parent=parent_of,
        rules=(plain_name("azureMonitorWorkspaceName", shortest=4),),
        unique_code="Conflict",
    ),
    ResourceType(
        token=ENDPOINT,
        identify=arm(ENDPOINT_PATH),
        describe=lambda making: {"immutableId": f"dce-{making.digits('id', 32)}"},
        naming=Naming(property="dataCollectionEndpointName", longest=44),
        immutable=named(ENDPOINT_PATH, "location"),
        parent=parent_of,
        rules=(plain_name("dataCollectionEndpointName", shortest=3),),
        unique_code="Conflict",
    ),
    ResourceType(
        token=COLLECTION,
        identify=arm(COLLECTION_PATH),
        describe=lambda making: {"immutableId": f"dcr-{making.digits('id', 32)}"},
        naming=Naming(property="dataCollectionRuleName", longest=64),
        immutable=named(COLLECTION_PATH, "location"),
        parent=parent_of,
        rules=(
            plain_name("dataCollectionRuleName", shortest=3),
            Rule(name="flows of a rule", source=f"{DOCS}, data collection rules", broken=_flows),
            Rule(
                name="endpoint of a rule",
                source=f"{DOCS}, managed Prometheus",
                broken=_needs_endpoint,
            ),
        ),
        references=(
            Reference(
                path="dataCollectionEndpointId",
                to=(ENDPOINT,),
                code="InvalidPayload",
                holds="Conflict",
            ),
            Reference(
                path="destinations.logAnalytics.*.workspaceResourceId",
                to=(WORKSPACE,),
                code="InvalidPayload",
            ),
            Reference(
                path="destinations.monitoringAccounts.*.accountResourceId",
                to=(METRICS,),
                code="InvalidPayload",
            ),
        ),
        unique_code="Conflict",
    ),
    ResourceType(
        token="azure-native:monitor:DataCollectionRuleAssociation",
        identify=arm(TIE_PATH),
        naming=Naming(property="associationName", longest=64),
        immutable=named(TIE_PATH),
        rules=(Rule(name="what an association names", source=DOCS, broken=_tie),),
        references=(
            Reference(
                path="dataCollectionRuleId",
                to=(COLLECTION,),
                code="InvalidPayload",
                holds="CannotDeleteRuleWithAssociations",
            ),
            Reference(
                path="dataCollectionEndpointId",
                to=(ENDPOINT,),
                code="InvalidPayload",
                holds="Conflict",
            ),
        ),
        demands=(
            Demand(
                name="target of an association",
                source=DOCS,
                code="ResourceNotFound",
                broken=_target_there,
            ),
        ),
        unique_code="Conflict",
    ),
    ResourceType(
        token="azure-native:consumption:Budget",
        identify=arm(BUDGET_PATH),
        describe=lambda _making: {"currentSpend": {"amount": 0, "unit": "USD"}},
        naming=Naming(property="budgetName", longest=63),
        immutable=named(BUDGET_PATH, "timeGrain"),
        rules=(
            Rule(
                name="form of an Azure budget",
                source="Consumption REST API, Budgets",
                broken=_budget,
            ),
        ),
        demands=(
            Demand(
                name="scope of a budget",
                source="Consumption REST API, Budgets",
                code="ResourceNotFound",
                broken=_budget_scope,
            ),
        ),
        unique_code="Conflict",
    ),
)
