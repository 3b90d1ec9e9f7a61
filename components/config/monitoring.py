"""Configuration of monitoring: the Prometheus that scrapes the metrics and evaluates the alerts."""

from typing import Literal

from pydantic import Field

from components.config.section import LabelKey, LabelValue, Section


class PrometheusConfig(Section):
    """Objects for a Prometheus operator: scrape targets, rules and alerts, Grafana dashboards."""

    kind: Literal["none", "operator"] = Field(
        default="none",
        description="`operator`: PodMonitors, ServiceMonitors and PrometheusRules for a Prometheus operator that the "
        "cluster already has, such as kube-prometheus-stack's; `none`: pods only have annotations.",
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=lambda: {"release": "kube-prometheus-stack"},
        description="Labels of these objects, by which the operator selects them.",
    )
    scrape_seconds: int = Field(
        default=15, ge=1, le=120, description="Seconds between two scrapes of a pod."
    )
    dashboards: bool = Field(
        default=True, description="Whether ConfigMaps with the Grafana dashboards are created."
    )
    dashboard_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=lambda: {"grafana_dashboard": "1"},
        description="Labels of these ConfigMaps, by which Grafana's sidecar selects them.",
    )
