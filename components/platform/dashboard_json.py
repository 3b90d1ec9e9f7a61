"""Grafana dashboards as typed values, and their JSON.

This module has only the part of Grafana's schema that Everstep uses; tests compare the JSON with Grafana's own types.
The position of a panel follows from its order and its size, so that no panel overlaps another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Literal

GRID_COLUMNS = 24  # width of Grafana's grid
SCHEMA_VERSION = 39  # schema of Grafana 11
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """A Prometheus query.

    Attributes:
        expression: the query; may use the dashboard's variables and `$__rate_interval`.
        legend: name of each series, with labels in double braces.
    """

    expression: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel.

    Attributes:
        title: heading.
        description: meaning, shown at the heading.
        queries: its queries.
        unit: Grafana's id of the unit, such as `s`, `bytes`, `percentunit`.
        kind: type of the panel.
        width: columns of the grid.
        height: rows of the grid.
        stacked: whether series are stacked.
        minimum: lower end of the axis; None: from the data.
        maximum: upper end of the axis; None: from the data.
        decimals: digits after the point; None: automatic.
        warn_above: value from which a stat is orange; None: never.
        warn_below: value below which a stat is orange; None: never.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: int = 12
    height: int = 8
    stacked: bool = False
    minimum: float | None = 0
    maximum: float | None = None
    decimals: int | None = None
    warn_above: float | None = None
    warn_below: float | None = None


@dataclass(frozen=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A variable whose values are the values of a label.

    Attributes:
        name: name, used as `$name`.
        label: display name.
        metric: metric with the label.
        key: name of the label.
        multiple: whether several values, or all, can be chosen.
    """

    name: str
    label: str
    metric: str
    key: str
    multiple: bool = False


@dataclass(frozen=True)
class Annotation:
    """A mark on all time series panels at each time at which a query returns a value."""

    name: str
    expression: str
    text: str
    color: str


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A dashboard; `uid` is also the name of its file and part of its address in Grafana."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    @property
    def panels(self) -> Iterator[Panel]:
        """All panels in their order."""
        return (panel for row in self.rows for panel in row.panels)

    def to_json(self) -> Json:
        """Return the dashboard as Grafana imports it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["everstep"],
            "editable": True,
            "graphTooltip": 1,  # one crosshair on all panels
            "schemaVersion": SCHEMA_VERSION,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "browser",
            "templating": {"list": [_datasource(), *map(_variable, self.variables)]},
            "annotations": {"list": [_annotation(annotation) for annotation in self.annotations]},
            "links": [],
            "panels": list(_layout(self.rows)),
        }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {
            "query": f"label_values({variable.metric}, {variable.key})",
            "refId": variable.name,
        },
        "refresh": 2,  # whenever the time range changes
        "sort": 1,  # by name
        "multi": variable.multiple,
        "includeAll": variable.multiple,
        "hide": 0,
    }


def _annotation(annotation: Annotation) -> Json:
    return {
        "name": annotation.name,
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": annotation.color,
        "expr": annotation.expression,
        "titleFormat": annotation.name,
        "textFormat": annotation.text,
    }


def _layout(rows: Sequence[Row]) -> Iterator[Json]:
    """Yield rows and panels with their positions, filled from left to right."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield _row(number, row.title, top)
        top, left, max_height = top + 1, 0, 0
        for panel in row.panels:
            number += 1
            if left + panel.width > GRID_COLUMNS:
                top, left, max_height = top + max_height, 0, 0
            yield _panel(number, panel, left, top)
            left, max_height = left + panel.width, max(max_height, panel.height)
        top += max_height


def _row(number: int, title: str, top: int) -> Json:
    position = {"h": 1, "w": GRID_COLUMNS, "x": 0, "y": top}
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": position,
        "panels": [],
    }


def _panel(number: int, panel: Panel, left: int, top: int) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": left, "y": top},
        "targets": [
            _target(panel, letter, query)
            for letter, query in zip(ascii_uppercase, panel.queries, strict=False)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _STAT_OPTIONS if panel.kind == "stat" else _SERIES_OPTIONS,
    }


def _target(panel: Panel, letter: str, query: Query) -> Json:
    return {
        "refId": letter,
        "datasource": DATASOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "instant": panel.kind == "stat",
        "range": panel.kind != "stat",
    }


def _defaults(panel: Panel) -> Json:
    limits = {"min": panel.minimum, "max": panel.maximum, "decimals": panel.decimals}
    defaults: Json = {
        "unit": panel.unit,
        "thresholds": _thresholds(panel),
        **{key: value for key, value in limits.items() if value is not None},
    }
    if panel.kind == "timeseries":
        defaults["custom"] = _series_style(stacked=panel.stacked)
    return defaults


def _thresholds(panel: Panel) -> Json:
    """Return the colors of a stat by its value; the first step has no lower bound."""
    steps: list[Mapping[str, Any]] = [{"color": "green", "value": None}]
    if panel.warn_below is not None:
        steps = [{"color": "orange", "value": None}, {"color": "green", "value": panel.warn_below}]
    if panel.warn_above is not None:
        steps.append({"color": "orange", "value": panel.warn_above})
    return {"mode": "absolute", "steps": steps}


def _series_style(*, stacked: bool) -> Json:
    return {
        "lineWidth": 1,
        "fillOpacity": 40 if stacked else 8,
        "showPoints": "never",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }


_SERIES_OPTIONS: Json = {
    "legend": {
        "displayMode": "list",
        "placement": "bottom",
        "showLegend": True,
        "calcs": [],
    },
    "tooltip": {"mode": "multi", "sort": "desc"},
}
_STAT_OPTIONS: Json = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    "colorMode": "value",
    "graphMode": "none",
    "justifyMode": "auto",
    "textMode": "auto",
    "wideLayout": True,
    "orientation": "auto",
}
