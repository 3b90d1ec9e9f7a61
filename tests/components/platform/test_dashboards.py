"""The Grafana dashboards: current, accepted by Grafana's own types, and limited to metrics that exist."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as GrafanaDashboard

from components.docs.metric_table import read_rules
from components.platform import dashboards
from components.platform.dashboard_json import Dashboard
from components.platform.dashboards import DASHBOARDS, dashboard_path, dashboard_text
from everstep.catalog.metrics import EXPORTERS

METRIC_NAME = re.compile(r"\b(?:everstep|elasticjob|node_gpu|DCGM|kubelet)[\w:]*[_:][\w:]+")
STACK_SERIES = {
    "everstep:fixed_usd_per_hour",
    "everstep:gpu_node_usd_per_hour",
    "everstep:budget_usd_per_month",
}
"""Series that the stack records, because it knows the prices."""
PROMETHEUS_FIELDS = ("titleFormat", "textFormat")
"""Fields of annotations that Grafana's Prometheus data source reads, but its common types lack."""


def known_names() -> set[str]:
    exported_series = {
        series for exporter in EXPORTERS for metric in exporter.metrics for series in metric.series
    }
    return (
        exported_series
        | {rule["record"] for rule in read_rules() if "record" in rule}
        | STACK_SERIES
    )


def queries(dashboard: Dashboard) -> list[str]:
    return [
        *(query.expression for panel in dashboard.panels for query in panel.queries),
        *(annotation.expression for annotation in dashboard.annotations),
        *(variable.metric for variable in dashboard.variables),
    ]


for_each_dashboard = pytest.mark.parametrize(
    "dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid
)


@for_each_dashboard
def test_the_file_is_current(dashboard: Dashboard) -> None:
    assert dashboard_path(dashboard).read_text() == dashboard_text(dashboard), "run `make docs`"


def test_the_folder_has_no_other_file() -> None:
    files = set(dashboards.DASHBOARDS_FOLDER.iterdir())

    assert files == {dashboard_path(dashboard) for dashboard in DASHBOARDS}


@for_each_dashboard
def test_grafanas_own_types_have_every_key(dashboard: Dashboard) -> None:
    register_default_plugins()
    document = dashboard.to_json()

    parsed = json.loads(JSONEncoder().encode(GrafanaDashboard.from_json(document)))

    assert not list(lost_fields(document, parsed)), "Grafana would ignore them"


def lost_fields(document: Any, parsed: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of values that Grafana's types lost; they may add defaults."""
    if isinstance(document, dict) and isinstance(parsed, dict):
        for key, value in document.items():
            if key in PROMETHEUS_FIELDS:
                continue
            yield from lost_fields(value, parsed.get(key), f"{path}.{key}")
    elif isinstance(document, list) and isinstance(parsed, list) and len(document) == len(parsed):
        for position, pair in enumerate(zip(document, parsed, strict=True)):
            yield from lost_fields(*pair, f"{path}[{position}]")
    elif document != parsed:
        yield f"{path}: {document!r} became {parsed!r}"


@for_each_dashboard
def test_an_unknown_key_is_found(dashboard: Dashboard) -> None:
    register_default_plugins()
    document = dashboard.to_json()
    document["panels"][1]["fieldConfig"]["defaults"]["units"] = "s"

    parsed = json.loads(JSONEncoder().encode(GrafanaDashboard.from_json(document)))

    assert list(lost_fields(document, parsed)) == [
        ".panels[1].fieldConfig.defaults.units: 's' became None"
    ]


@for_each_dashboard
def test_every_metric_of_a_query_exists(dashboard: Dashboard) -> None:
    for query in queries(dashboard):
        names = set(METRIC_NAME.findall(query))
        assert names or "ALERTS" in query
        assert names <= known_names(), query


def test_every_metric_of_a_rule_exists() -> None:
    for rule in read_rules():
        assert set(METRIC_NAME.findall(rule["expr"])) <= known_names(), rule


@for_each_dashboard
def test_every_variable_of_a_query_is_declared(dashboard: Dashboard) -> None:
    variables = {variable.name for variable in dashboard.variables} | {"__rate_interval"}
    for query in queries(dashboard):
        assert set(re.findall(r"\$(\w+)", query)) <= variables, query


@for_each_dashboard
def test_panels_have_descriptions_and_neither_overlap_nor_share_an_id(
    dashboard: Dashboard,
) -> None:
    panels = dashboard.to_json()["panels"]
    cells = [
        {(x, y) for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])}
        for p in (panel["gridPos"] for panel in panels)
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert not any(first & second for first, second in combinations(cells, 2))
    assert all(x < 24 for cell in cells for x, _ in cell)
    assert all(panel.title and panel.description for panel in dashboard.panels)
