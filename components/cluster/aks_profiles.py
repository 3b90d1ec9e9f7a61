"""The profiles of an AKS cluster: each a pure function of the configuration, and why it is so."""

import pulumi
from pulumi_azure_native import containerservice as aks

from components.cluster.aks_pools import gpu_pools, moves_version, system_scales
from components.config import AksConfig

CLEANER_HOURS = 168  # between two sweeps of images that nobody uses; AKS' own default


def network(config: AksConfig) -> aks.ContainerServiceNetworkProfileArgs:
    """Give how pods reach each other and the world."""
    said = config.network
    return aks.ContainerServiceNetworkProfileArgs(
        network_plugin="azure",
        network_plugin_mode="overlay",
        network_dataplane="cilium",
        network_policy="cilium",
        pod_cidr=said.pod_cidr,
        service_cidr=said.service_cidr,
        dns_service_ip=said.dns_service_ip,
        load_balancer_sku="standard",
        outbound_type="userAssignedNATGateway",
    )


def door(
    config: AksConfig, egress: pulumi.Output[str] | None
) -> aks.ManagedClusterAPIServerAccessProfileArgs:
    """Give who reaches the API server.

    Nodes reach a public one from outside, through the gateway. AKS adds a load balancer's address to
    the ranges by itself, but not a gateway's (azure-docs #111834): without it no node would come up.

    Args:
        config: the stack's `cluster` section.
        egress: address of the gateway; None in a subnet of the user's, whose ranges must name it.
    """
    if config.private_api:
        return aks.ManagedClusterAPIServerAccessProfileArgs(
            enable_private_cluster=True, private_dns_zone="system"
        )
    ranges: list[pulumi.Input[str]] = [*config.authorized_ranges]
    if egress is not None:
        ranges.append(pulumi.Output.concat(egress, "/32"))
    return aks.ManagedClusterAPIServerAccessProfileArgs(
        authorized_ip_ranges=ranges, disable_run_command=True
    )


def entra(config: AksConfig) -> aks.ManagedClusterAADProfileArgs:
    """Give who is known to the cluster: Entra's identities, by their roles on Azure."""
    return aks.ManagedClusterAADProfileArgs(
        managed=True,
        enable_azure_rbac=True,
        admin_group_object_ids=list(config.administrators) or None,
    )


def autoscaler(config: AksConfig) -> aks.ManagedClusterPropertiesAutoScalerProfileArgs | None:
    """Give how the autoscaler behaves; the service takes all numbers as text."""
    if not config.autoscaling.enabled:
        return None
    idle = f"{config.autoscaling.scale_down_minutes}m"
    return aks.ManagedClusterPropertiesAutoScalerProfileArgs(
        expander="priority" if has_choice(config) else "least-waste",
        scan_interval="10s",
        scale_down_unneeded_time=idle,
        scale_down_delay_after_add=idle,
        # A spot market takes all nodes of a pool at once. At the default, 45 %, the autoscaler would
        # hold the cluster for broken and buy nothing until they were gone.
        max_total_unready_percentage="100",
        scale_down_unready_time="3m",
        skip_nodes_with_local_storage="false",  # workers keep /dev/shm in an emptyDir
    )


def has_choice(config: AksConfig) -> bool:
    """Say whether there is more than one GPU pool for the autoscaler to choose from."""
    return len(gpu_pools(config)) > 1


def security() -> aks.ManagedClusterSecurityProfileArgs:
    """Give workload identity, and the sweeping of images with known holes that nobody uses."""
    return aks.ManagedClusterSecurityProfileArgs(
        workload_identity=aks.ManagedClusterSecurityProfileWorkloadIdentityArgs(enabled=True),
        image_cleaner=aks.ManagedClusterSecurityProfileImageCleanerArgs(
            enabled=True, interval_hours=CLEANER_HOURS
        ),
    )


def storage_drivers() -> aks.ManagedClusterStorageProfileArgs:
    """Give the CSI drivers: blobs for the shared volume, disks for etcd, nothing else."""
    return aks.ManagedClusterStorageProfileArgs(
        blob_csi_driver=aks.ManagedClusterStorageProfileBlobCSIDriverArgs(enabled=True),
        disk_csi_driver=aks.ManagedClusterStorageProfileDiskCSIDriverArgs(enabled=True),
        file_csi_driver=aks.ManagedClusterStorageProfileFileCSIDriverArgs(enabled=False),
        snapshot_controller=aks.ManagedClusterStorageProfileSnapshotControllerArgs(enabled=False),
    )


def upgrades(config: AksConfig) -> aks.ManagedClusterAutoUpgradeProfileArgs:
    """Give what AKS upgrades by itself; when, the calendars say."""
    return aks.ManagedClusterAutoUpgradeProfileArgs(
        upgrade_channel=config.upgrades.channel,
        node_os_upgrade_channel=config.upgrades.node_image,
    )


def calendar(config: AksConfig) -> aks.MaintenanceWindowArgs:
    """Give the weekly hours in which AKS may upgrade."""
    said = config.upgrades
    week = aks.WeeklyScheduleArgs(interval_weeks=1, day_of_week=said.day)
    return aks.MaintenanceWindowArgs(
        schedule=aks.ScheduleArgs(weekly=week),
        duration_hours=said.hours,
        start_time=f"{said.start_hour:02}:00",
        utc_offset="+00:00",
    )


def not_ours(config: AksConfig) -> list[str]:
    """Give what AKS itself changes in a cluster, and nothing wider.

    To ignore a whole pool would be refused: the list that is sent must name all that there are.
    """
    counts = ["agentPoolProfiles[0].count"] if system_scales(config) else []
    versions = ["kubernetesVersion", "agentPoolProfiles[0].orchestratorVersion"]
    return [*counts, *(versions if moves_version(config) else [])]
