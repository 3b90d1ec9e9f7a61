"""Monitoring of a stack by a Prometheus operator and Grafana that the cluster already has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes import apiextensions, core, meta

from components import cost, spending
from components.component import Component
from components.config import StackConfig
from components.config.monitoring import PrometheusConfig
from components.platform import operator_objects
from components.platform.dashboards import DASHBOARDS, dashboard_path
from components.platform.operator_objects import ScrapeSettings, StackPrices
from components.platform.pods import PART_OF


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """Arguments of Monitoring.

    Attributes:
        config: the whole configuration; `platform.monitoring` has a kind other than `none`.
        namespace: namespace of the job and the controller.
        system_namespace: namespace of the exporters of GPU nodes.
    """

    config: StackConfig
    namespace: pulumi.Input[str]
    system_namespace: pulumi.Input[str]


class Monitoring(Component):
    """Monitors, rules and dashboards."""

    def __init__(
        self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:Monitoring", name, opts)
        config = args.config
        settings = config.platform.monitoring
        scraping = scrape_settings(config)
        self._declare("workers", operator_objects.worker_monitor(scraping), args.namespace)
        if config.data.source:
            self._declare("data", operator_objects.data_monitor(scraping), args.namespace)
        if config.controller.kind == "maintained":
            controller = operator_objects.controller_monitor(scraping)
            self._declare("controller", controller, args.namespace)
        if config.platform.metrics.enabled:
            self._declare("gpus", operator_objects.gpu_monitor(scraping), args.system_namespace)
        self._declare("rules", operator_objects.rules(settings.labels), args.namespace)
        if (prices := prices_of(config)) is not None:
            price_rules = operator_objects.price_rules(settings.labels, prices)
            self._declare("prices", price_rules, args.namespace)
        if settings.dashboards:
            self._declare_dashboards(settings, args.namespace)
        self.register_outputs({})

    def _declare(self, key: str, manifest: Mapping[str, Any], namespace: pulumi.Input[str]) -> None:
        apiextensions.CustomResource(
            f"{self.name}-{key}",
            api_version=manifest["apiVersion"],
            kind=manifest["kind"],
            metadata=meta.v1.ObjectMetaArgs(namespace=namespace, **manifest["metadata"]),
            spec=manifest["spec"],
            opts=self.child(delete_before_replace=True),
        )

    def _declare_dashboards(self, settings: PrometheusConfig, namespace: pulumi.Input[str]) -> None:
        """Declare a ConfigMap for each dashboard, which Grafana's sidecar loads."""
        for dashboard in DASHBOARDS:
            file = dashboard_path(dashboard)
            core.v1.ConfigMap(
                f"{self.name}-{dashboard.uid}",
                metadata=meta.v1.ObjectMetaArgs(
                    name=dashboard.uid,
                    namespace=namespace,
                    labels={**PART_OF, **settings.dashboard_labels},
                ),
                data={file.name: file.read_text(encoding="utf-8")},
                opts=self.child(delete_before_replace=True),
            )


def scrape_settings(config: StackConfig) -> ScrapeSettings:
    """Return the scrape settings of a stack's monitors."""
    settings = config.platform.monitoring
    return ScrapeSettings(
        labels=settings.labels,
        seconds=settings.scrape_seconds,
        processes=max(1, config.job.gpus_per_worker),
    )


def rule_groups(config: StackConfig) -> str:
    """Return all recording rules and alerts of a stack as a Prometheus rule file, with its prices if they are known."""
    files = [operator_objects.rules({})]
    if (prices := prices_of(config)) is not None:
        files.append(operator_objects.price_rules({}, prices))
    groups = [group for file in files for group in file["spec"]["groups"]]
    return yaml.safe_dump({"groups": groups}, sort_keys=False)


def prices_of(config: StackConfig) -> StackPrices | None:
    """Return the prices of a stack; None if a price is unknown, or the stack creates or counts no GPU nodes.

    A disk or a volume whose price is unknown is not included: without it a budget can still be nearly spent.
    """
    if not config.platform.metrics.enabled:
        return None  # the rules count GPU nodes by its metrics, and the cost would leave them out
    items = [item for item in cost.estimate(config).items if item.maximum and not item.is_disk]
    node_prices = [pool.marginal_price for pool in cost.pool_prices(config)]
    known_prices = [price for price in node_prices if price is not None]
    if not known_prices or any(item.spot is None for item in items):
        return None
    budget = config.cost.budget
    return StackPrices(
        fixed_per_hour=round(spending.fixed_usd_per_hour(config), 4),
        gpu_node_per_hour=round(max(known_prices), 4),  # the rules cannot distinguish pools
        budget_per_month=budget.monthly_usd if budget else None,
    )
