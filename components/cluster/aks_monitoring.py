"""Azure's own monitoring of a cluster: logs of its containers, metrics by managed Prometheus.

Each needs more than its switch in the cluster: somewhere to write to, a rule that says what goes
there, and an association of that rule with the cluster. The switch alone sends nothing.

What is written to comes before the cluster; rules and associations follow it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import containerservice, monitor, operationalinsights

from components.config import AksConfig
from components.part import Part

LOG_STREAM = "Microsoft-ContainerInsights-Group-Default"
METRIC_STREAM = "Microsoft-PrometheusMetrics"
LOG_DAYS = 30  # the most that costs nothing beyond ingestion


@dataclass(frozen=True, kw_only=True)
class AksMonitoringArgs:
    """Where to write.

    Attributes:
        config: the stack's `cluster` section.
        group: name of the resource group.
        tags: of all that takes tags.
    """

    config: AksConfig
    group: pulumi.Output[str]
    tags: dict[str, str]


class AksMonitoring(Part):
    """Workspaces for logs and metrics, as far as the stack asks for them."""

    def __init__(
        self, name: str, args: AksMonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:AksMonitoring", name, opts)
        self._args = args
        said = args.config.monitoring
        self._logs = self._log_workspace() if said.container_insights else None
        self._metrics = self._metric_workspace() if said.managed_prometheus else None
        self.register_outputs({})

    @property
    def addons(self) -> Mapping[str, containerservice.ManagedClusterAddonProfileArgs] | None:
        """The cluster's switch for logs; the agent shows who it is by its identity, not by a key."""
        if self._logs is None:
            return None
        config: dict[str, pulumi.Input[str]] = {
            "logAnalyticsWorkspaceResourceID": self._logs.id,
            "useAADAuth": "true",
        }
        return {
            "omsagent": containerservice.ManagedClusterAddonProfileArgs(enabled=True, config=config)
        }

    @property
    def azure_monitor(self) -> containerservice.ManagedClusterAzureMonitorProfileArgs | None:
        """The cluster's switch for metrics."""
        if self._metrics is None:
            return None
        return containerservice.ManagedClusterAzureMonitorProfileArgs(
            metrics=containerservice.ManagedClusterAzureMonitorProfileMetricsArgs(enabled=True)
        )

    def attach(self, cluster: containerservice.ManagedCluster) -> None:
        """Declare what goes from the cluster to the workspaces."""
        if self._logs is not None:
            self._associate(
                cluster, "logs", "ContainerInsightsExtension", self._log_rule(self._logs)
            )
        if self._metrics is not None:
            rule = self._metric_rule(self._metrics, self._endpoint())
            self._associate(cluster, "metrics", "ContainerInsightsMetricsExtension", rule)

    def _log_workspace(self) -> operationalinsights.Workspace:
        """Declare where logs go."""
        return operationalinsights.Workspace(
            f"{self.name}-logs",
            workspace_name=f"{self._args.config.name}-logs",
            resource_group_name=self._args.group,
            location=self._args.config.location,
            sku=operationalinsights.WorkspaceSkuArgs(name="PerGB2018"),
            retention_in_days=LOG_DAYS,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _metric_workspace(self) -> monitor.AzureMonitorWorkspace:
        """Declare where metrics go."""
        return monitor.AzureMonitorWorkspace(
            f"{self.name}-metrics",
            azure_monitor_workspace_name=f"{self._args.config.name}-metrics",
            resource_group_name=self._args.group,
            location=self._args.config.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _endpoint(self) -> monitor.DataCollectionEndpoint:
        """Declare the door through which metrics come in."""
        return monitor.DataCollectionEndpoint(
            f"{self.name}-metrics-endpoint",
            data_collection_endpoint_name=f"{self._args.config.name}-metrics",
            resource_group_name=self._args.group,
            location=self._args.config.location,
            kind="Linux",
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _log_rule(self, workspace: operationalinsights.Workspace) -> monitor.DataCollectionRule:
        """Declare that the containers' logs go to their workspace."""
        return monitor.DataCollectionRule(
            f"{self.name}-logs-rule",
            data_collection_rule_name=f"{self._args.config.name}-logs",
            resource_group_name=self._args.group,
            location=self._args.config.location,
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
        self, workspace: monitor.AzureMonitorWorkspace, door: monitor.DataCollectionEndpoint
    ) -> monitor.DataCollectionRule:
        """Declare that the metrics go to theirs."""
        return monitor.DataCollectionRule(
            f"{self.name}-metrics-rule",
            data_collection_rule_name=f"{self._args.config.name}-metrics",
            resource_group_name=self._args.group,
            location=self._args.config.location,
            kind="Linux",
            data_collection_endpoint_id=door.id,
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
        what: str,
        name: str,
        rule: monitor.DataCollectionRule,
    ) -> None:
        """Declare that a rule applies to the cluster; an association takes no tags."""
        monitor.DataCollectionRuleAssociation(
            f"{self.name}-{what}-association",
            association_name=name,
            resource_uri=cluster.id,
            data_collection_rule_id=rule.id,
            opts=self.child(delete_before_replace=True),
        )
