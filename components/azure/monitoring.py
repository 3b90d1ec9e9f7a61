"""Azure's monitoring of a cluster: container logs, and metrics by managed Prometheus.

Each of the two needs more than its setting in the cluster: a workspace, a data collection rule, and an
association of that rule with the cluster. The setting alone sends no data. Workspaces are declared
before the cluster, rules and associations after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import yaml
from pulumi_azure_native import containerservice, monitor, operationalinsights

from components.component import Component
from components.config import AksMonitoringConfig
from components.platform.scraping import scrape_job

LOG_STREAM = "Microsoft-ContainerInsights-Group-Default"
METRIC_STREAM = "Microsoft-PrometheusMetrics"
SCRAPE_CONFIG_MAP = "ama-metrics-prometheus-config"
"""Name of the ConfigMap in kube-system whose scrape jobs the agent of Azure Monitor runs."""

LOG_RETENTION_DAYS = 30  # included in the price of ingestion


def scrape_config(seconds: int) -> dict[str, str]:
    """Return the data of the ConfigMap with the scrape job of a stack.

    Args:
        seconds: seconds between two scrapes of a pod.
    """
    jobs = {"scrape_configs": [scrape_job(seconds)]}
    return {"prometheus-config": yaml.safe_dump(jobs, sort_keys=False)}


@dataclass(frozen=True, kw_only=True)
class AksMonitoringArgs:
    """Arguments of AksMonitoring.

    Attributes:
        config: the `cluster.monitoring` section of a stack.
        cluster: name of the cluster, prefix of all names.
        location: Azure region.
        group: name of the resource group.
        tags: tags of all resources that support them.
    """

    config: AksMonitoringConfig
    cluster: str
    location: str
    group: pulumi.Input[str]
    tags: Mapping[str, str]


class AksMonitoring(Component):
    """The enabled workspaces: for logs, for metrics or for both."""

    def __init__(
        self, name: str, args: AksMonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:AksMonitoring", name, opts)
        self._args = args
        config = args.config
        self._logs = self._log_workspace() if config.container_insights else None
        self._metrics = self._metric_workspace() if config.managed_prometheus else None
        self.register_outputs({})

    @property
    def log_workspace(self) -> pulumi.Output[str] | None:
        """Id of the workspace for logs; None without logs."""
        return self._logs.id if self._logs is not None else None

    def attach(self, cluster: containerservice.ManagedCluster) -> None:
        """Declare the rules that send data of the cluster to the workspaces."""
        if self._logs is not None:
            self._associate(
                cluster, "logs", "ContainerInsightsExtension", self._log_rule(self._logs)
            )
        if self._metrics is not None:
            rule = self._metric_rule(self._metrics, self._endpoint())
            self._associate(cluster, "metrics", "ContainerInsightsMetricsExtension", rule)

    def _log_workspace(self) -> operationalinsights.Workspace:
        """Declare the workspace for logs.

        Azure only soft-deletes it, because azure-native does not send the parameter `force` of the API. docs/aks.md,
        "Teardown", describes what remains.
        """
        return operationalinsights.Workspace(
            f"{self.name}-logs",
            workspace_name=f"{self._args.cluster}-logs",
            resource_group_name=self._args.group,
            location=self._args.location,
            sku=operationalinsights.WorkspaceSkuArgs(name="PerGB2018"),
            retention_in_days=LOG_RETENTION_DAYS,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _metric_workspace(self) -> monitor.AzureMonitorWorkspace:
        """Declare the workspace for metrics."""
        return monitor.AzureMonitorWorkspace(
            f"{self.name}-metrics",
            azure_monitor_workspace_name=f"{self._args.cluster}-metrics",
            resource_group_name=self._args.group,
            location=self._args.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _endpoint(self) -> monitor.DataCollectionEndpoint:
        """Declare the endpoint that receives metrics."""
        return monitor.DataCollectionEndpoint(
            f"{self.name}-metrics-endpoint",
            data_collection_endpoint_name=f"{self._args.cluster}-metrics",
            resource_group_name=self._args.group,
            location=self._args.location,
            kind="Linux",
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _log_rule(self, workspace: operationalinsights.Workspace) -> monitor.DataCollectionRule:
        """Declare the rule that sends container logs to their workspace."""
        return monitor.DataCollectionRule(
            f"{self.name}-logs-rule",
            data_collection_rule_name=f"{self._args.cluster}-logs",
            resource_group_name=self._args.group,
            location=self._args.location,
            kind="Linux",
            data_sources=monitor.DataCollectionRuleDataSourcesArgs(
                extensions=[
                    monitor.ExtensionDataSourceArgs(
                        name="ContainerInsightsExtension",
                        extension_name="ContainerInsights",
                        streams=[LOG_STREAM],
                    )
                ]
            ),
            destinations=monitor.DataCollectionRuleDestinationsArgs(
                log_analytics=[
                    monitor.LogAnalyticsDestinationArgs(
                        name="logs", workspace_resource_id=workspace.id
                    )
                ]
            ),
            data_flows=[monitor.DataFlowArgs(streams=[LOG_STREAM], destinations=["logs"])],
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _metric_rule(
        self, workspace: monitor.AzureMonitorWorkspace, endpoint: monitor.DataCollectionEndpoint
    ) -> monitor.DataCollectionRule:
        """Declare the rule that sends metrics to their workspace."""
        return monitor.DataCollectionRule(
            f"{self.name}-metrics-rule",
            data_collection_rule_name=f"{self._args.cluster}-metrics",
            resource_group_name=self._args.group,
            location=self._args.location,
            kind="Linux",
            data_collection_endpoint_id=endpoint.id,
            data_sources=monitor.DataCollectionRuleDataSourcesArgs(
                prometheus_forwarder=[
                    monitor.PrometheusForwarderDataSourceArgs(
                        name="prometheus", streams=[METRIC_STREAM]
                    )
                ]
            ),
            destinations=monitor.DataCollectionRuleDestinationsArgs(
                monitoring_accounts=[
                    monitor.MonitoringAccountDestinationArgs(
                        name="metrics", account_resource_id=workspace.id
                    )
                ]
            ),
            data_flows=[monitor.DataFlowArgs(streams=[METRIC_STREAM], destinations=["metrics"])],
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _associate(
        self,
        cluster: containerservice.ManagedCluster,
        kind: str,
        name: str,
        rule: monitor.DataCollectionRule,
    ) -> None:
        """Declare that a rule applies to the cluster; Azure supports no tags on associations."""
        monitor.DataCollectionRuleAssociation(
            f"{self.name}-{kind}-association",
            association_name=name,
            resource_uri=cluster.id,
            data_collection_rule_id=rule.id,
            opts=self.child(delete_before_replace=True),
        )
