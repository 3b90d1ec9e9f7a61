"""The profiles of an AKS cluster, each a pure function of the configuration."""

from base64 import b64encode
from collections.abc import Mapping

import pulumi
from pulumi_azure_native import containerservice as aks

from components.azure.node_pools import system_pool_scales, upgrades_version
from components.config import AksConfig

CLEANER_HOURS = 168  # interval between two removals of unused vulnerable images, the default of AKS
# Azure's own DNS and agents (168.63.129.16), and the storage account through its service endpoint.
NO_PROXY_ENDPOINTS = ("168.63.129.16", ".blob.core.windows.net", ".dfs.core.windows.net")
LOG_ADDON = "omsagent"
OUTBOUND_TYPES = {"nat": "userAssignedNATGateway", "userDefinedRouting": "userDefinedRouting"}


def network(config: AksConfig) -> aks.ContainerServiceNetworkProfileArgs:
    """Return the network profile: Cilium in an overlay, with egress through a NAT gateway or a route table."""
    network_config = config.network
    return aks.ContainerServiceNetworkProfileArgs(
        network_plugin="azure",
        network_plugin_mode="overlay",
        network_dataplane="cilium",
        network_policy="cilium",
        pod_cidr=network_config.pod_cidr,
        service_cidr=network_config.service_cidr,
        dns_service_ip=network_config.dns_service_ip,
        load_balancer_sku="standard",
        outbound_type=OUTBOUND_TYPES[network_config.egress],
    )


def api_access_profile(
    config: AksConfig, egress: pulumi.Input[str] | None
) -> aks.ManagedClusterAPIServerAccessProfileArgs:
    """Return the profile with the networks that may reach the API server.

    Run Command is disabled, because it reaches the API server from any network.

    Nodes connect to a public API server through the NAT gateway, whose address the ranges must therefore contain. AKS
    adds the address of a load balancer automatically, but not the address of a gateway (azure-docs #111834).

    Args:
        config: the `cluster` section of a stack.
        egress: address of the gateway; None for an existing subnet or a firewall, whose public address
            `authorized_ranges` must include.
    """
    if config.private_api:
        return aks.ManagedClusterAPIServerAccessProfileArgs(
            enable_private_cluster=True,
            disable_run_command=True,
            private_dns_zone=config.private_dns_zone,
            enable_private_cluster_public_fqdn=has_public_name(config) or None,
        )
    ranges: list[pulumi.Input[str]] = [*config.authorized_ranges]
    if egress is not None:
        ranges.append(pulumi.Output.concat(egress, "/32"))
    return aks.ManagedClusterAPIServerAccessProfileArgs(
        authorized_ip_ranges=ranges, disable_run_command=True
    )


def has_public_name(config: AksConfig) -> bool:
    """Return True if public DNS resolves the name of the API server."""
    return not config.private_api or config.private_dns_zone == "none"


def proxy(config: AksConfig) -> aks.ManagedClusterHTTPProxyConfigArgs | None:
    """Return the proxy of nodes and pods, which AKS passes to all pods as variables; None without one.

    The storage account admits the subnet of the nodes, but not the proxy.
    """
    network_config = config.network
    if network_config.proxy is None:
        return None
    cluster_networks = [network_config.cidr, network_config.pod_cidr, network_config.service_cidr]
    trusted_ca = network_config.proxy.trusted_ca
    return aks.ManagedClusterHTTPProxyConfigArgs(
        http_proxy=network_config.proxy.http,
        https_proxy=network_config.proxy.for_https,
        no_proxy=network_config.proxy.all_no_proxy([*cluster_networks, *NO_PROXY_ENDPOINTS]),
        trusted_ca=b64encode(trusted_ca.encode()).decode() if trusted_ca else None,
    )


def entra(config: AksConfig) -> aks.ManagedClusterAADProfileArgs:
    """Return the profile with which AKS authorizes Entra identities by their roles on Azure."""
    return aks.ManagedClusterAADProfileArgs(
        managed=True,
        enable_azure_rbac=True,
        admin_group_object_ids=list(config.administrators) or None,
    )


def autoscaler(config: AksConfig) -> aks.ManagedClusterPropertiesAutoScalerProfileArgs | None:
    """Return the autoscaler profile, with numbers as text; None without autoscaling."""
    if not config.autoscaling.enabled:
        return None
    scale_down_time = f"{config.autoscaling.scale_down_minutes}m"
    return aks.ManagedClusterPropertiesAutoScalerProfileArgs(
        expander="priority" if has_several_gpu_pools(config) else "least-waste",
        scan_interval="10s",
        scale_down_unneeded_time=scale_down_time,
        scale_down_delay_after_add=scale_down_time,
        # All spot nodes of a pool may be evicted at the same time. At the default, 45 %, the autoscaler would
        # consider the cluster unhealthy and add no nodes until they were removed.
        max_total_unready_percentage="100",
        scale_down_unready_time="3m",
        skip_nodes_with_local_storage="false",  # a data cache in an emptyDir must not keep a node
    )


def addons(
    log_workspace: pulumi.Input[str] | None,
) -> Mapping[str, aks.ManagedClusterAddonProfileArgs]:
    """Return the profile of the add-on that sends container logs, whose agent has an identity of its own, not a key.

    AKS keeps an add-on that an update omits (AKS #2904), so it is disabled explicitly.

    Args:
        log_workspace: id of the workspace for the logs; None: the add-on is disabled.
    """
    if log_workspace is None:
        return {LOG_ADDON: aks.ManagedClusterAddonProfileArgs(enabled=False)}
    config: dict[str, pulumi.Input[str]] = {
        "logAnalyticsWorkspaceResourceID": log_workspace,
        "useAADAuth": "true",
    }
    return {LOG_ADDON: aks.ManagedClusterAddonProfileArgs(enabled=True, config=config)}


def azure_monitor(config: AksConfig) -> aks.ManagedClusterAzureMonitorProfileArgs:
    """Return the profile that enables the agent for metrics, or disables it: AKS keeps a profile that is omitted."""
    return aks.ManagedClusterAzureMonitorProfileArgs(
        metrics=aks.ManagedClusterAzureMonitorProfileMetricsArgs(
            enabled=config.monitoring.managed_prometheus
        )
    )


def has_several_gpu_pools(config: AksConfig) -> bool:
    """Return True if the autoscaler can choose among several GPU pools."""
    return len(config.pools) > 1


def security() -> aks.ManagedClusterSecurityProfileArgs:
    """Return the profile that enables workload identity and the removal of vulnerable images."""
    return aks.ManagedClusterSecurityProfileArgs(
        workload_identity=aks.ManagedClusterSecurityProfileWorkloadIdentityArgs(enabled=True),
        image_cleaner=aks.ManagedClusterSecurityProfileImageCleanerArgs(
            enabled=True, interval_hours=CLEANER_HOURS
        ),
    )


def storage_drivers() -> aks.ManagedClusterStorageProfileArgs:
    """Return the storage profile: CSI drivers of blobs (shared volume) and disks (etcd), no others."""
    return aks.ManagedClusterStorageProfileArgs(
        blob_csi_driver=aks.ManagedClusterStorageProfileBlobCSIDriverArgs(enabled=True),
        disk_csi_driver=aks.ManagedClusterStorageProfileDiskCSIDriverArgs(enabled=True),
        file_csi_driver=aks.ManagedClusterStorageProfileFileCSIDriverArgs(enabled=False),
        snapshot_controller=aks.ManagedClusterStorageProfileSnapshotControllerArgs(enabled=False),
    )


def upgrades(config: AksConfig) -> aks.ManagedClusterAutoUpgradeProfileArgs:
    """Return the profile of automatic upgrades, which AKS performs within the maintenance windows."""
    return aks.ManagedClusterAutoUpgradeProfileArgs(
        upgrade_channel=config.upgrades.channel,
        node_os_upgrade_channel=config.upgrades.node_image,
    )


def maintenance_window(config: AksConfig) -> aks.MaintenanceWindowArgs:
    """Return the weekly hours in which AKS may upgrade."""
    window = config.upgrades
    week = aks.WeeklyScheduleArgs(interval_weeks=1, day_of_week=window.day)
    return aks.MaintenanceWindowArgs(
        schedule=aks.ScheduleArgs(weekly=week),
        duration_hours=window.hours,
        start_time=f"{window.start_hour:02}:00",
        utc_offset="+00:00",
    )


def managed_by_aks(config: AksConfig) -> list[str]:
    """Return the paths of the properties that AKS changes in a cluster, for `ignore_changes`.

    A whole pool cannot be ignored: an update must contain the list of all pools.
    """
    counts = ["agentPoolProfiles[0].count"] if system_pool_scales(config) else []
    versions = ["kubernetesVersion", "agentPoolProfiles[0].orchestratorVersion"]
    return [*counts, *(versions if upgrades_version(config) else [])]
