"""The control plane of an AKS cluster with its system pool, and access to it.

Its settings differ from the defaults of AKS:

* Standard tier, since the default has no uptime guarantee;
* Cilium in an overlay, so that network policies are enforced and pods need no addresses of the subnet;
* Entra identities only, since a copy of a local account's certificate works for anyone;
* an API server that only listed networks reach;
* one setting for the version of control plane and nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_azure_native import containerservice

from components.azure import kubeconfig, profiles
from components.azure.identity import AksIdentities, AksIdentitiesArgs
from components.azure.names import dns_prefix, node_group_name
from components.azure.node_pools import system_pool
from components.azure.propagation import with_retries
from components.azure.roles import BuiltInRole, grant
from components.component import Component
from components.config import AksConfig

if TYPE_CHECKING:
    from components.azure.monitoring import AksMonitoring

# For upgrades of Kubernetes and of node images; AKS prescribes these names.
MAINTENANCE_CONFIGURATIONS = ("aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule")
CLUSTER_CREATE_TIMEOUT = "120m"


@dataclass(frozen=True, kw_only=True)
class AksClusterArgs:
    """Arguments of an AksCluster.

    Attributes:
        config: the `cluster` section of a stack.
        stack: name of the stack.
        group: name of the resource group.
        subnet_id: subnet of the nodes.
        egress: public address of the nodes, which the API server must admit; None if unknown.
        prerequisites: resources that nodes need to start, such as the routes of the subnet.
        tags: tags of all resources that support them.
        protect: whether Pulumi refuses to delete the cluster.
    """

    config: AksConfig
    stack: str
    group: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    egress: pulumi.Input[str] | None = None
    prerequisites: Sequence[pulumi.Resource] = ()
    tags: Mapping[str, str]
    protect: bool = False


class AksCluster(Component):
    """A control plane with its system pool.

    Attributes:
        cluster: the AKS cluster.
        kubelet_id: object id of the nodes' identity, to which a registry assigns its pull role.
        issuer: OIDC issuer of ServiceAccount tokens, which federated credentials trust.
        endpoint: https address of the API server.
        node_group: name of the resource group in which AKS creates machines.
        access: role assignments of the administrators.
    """

    cluster: containerservice.ManagedCluster
    kubelet_id: pulumi.Output[str]
    issuer: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    node_group: str
    access: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: AksClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:AksCluster", name, opts)
        self._args, self._config = args, args.config
        self.node_group = node_group_name(args.config.name, args.stack)
        self._identities = self._declare_identities()
        self._monitoring = self._declare_monitoring()
        self.cluster = self._control_plane()
        if self._monitoring is not None:
            self._monitoring.attach(self.cluster)
        self._declare_maintenance()
        self.kubelet_id = self._identities.kubelet.principal_id
        self.issuer = self.cluster.oidc_issuer_profile.apply(
            lambda profile: (profile.issuer_url if profile else None) or ""
        )
        public = profiles.has_public_name(args.config)
        address = self.cluster.fqdn if public else self.cluster.private_fqdn
        self.endpoint = pulumi.Output.concat("https://", address, ":443")
        self.access = tuple(
            assignment
            for group in args.config.administrators
            for assignment in self._administrators(group)
        )
        self.register_outputs({"name": self.cluster.name, "endpoint": self.endpoint})

    def kubeconfig(self, depends_on: Sequence[pulumi.Resource]) -> pulumi.Output[str]:
        """Return the kubeconfig, which is secret although it contains no credential.

        Args:
            depends_on: resources that must exist before AKS is queried.
        """
        credentials = containerservice.list_managed_cluster_user_credentials_output(
            resource_group_name=self._args.group,
            resource_name=self.cluster.name,
            format="exec",
            server_fqdn="public" if self._config.private_dns_zone == "none" else None,
            opts=pulumi.InvokeOutputOptions(parent=self, depends_on=[*depends_on]),
        )
        encoded = credentials.kubeconfigs[0].value
        return pulumi.Output.secret(encoded.apply(kubeconfig.without_interaction))

    def _declare_identities(self) -> AksIdentities:
        args = AksIdentitiesArgs(
            cluster=self._config.name,
            location=self._config.location,
            group=self._args.group,
            subnet_id=self._args.subnet_id,
            dns_zone_id=self._config.dns_zone_id,
            tags=self._args.tags,
        )
        return AksIdentities(f"{self.name}-identities", args, self.child())

    def _declare_monitoring(self) -> "AksMonitoring | None":
        config = self._config.monitoring
        if not (config.container_insights or config.managed_prometheus):
            return None
        # Imported here: the import takes half a second, and most stacks do not need it.
        from components.azure.monitoring import AksMonitoring, AksMonitoringArgs

        args = AksMonitoringArgs(
            config=config,
            cluster=self._config.name,
            location=self._config.location,
            group=self._args.group,
            tags=self._args.tags,
        )
        return AksMonitoring(f"{self.name}-monitoring", args, self.child())

    def _control_plane(self) -> containerservice.ManagedCluster:
        """Declare the cluster; GPU pools are declared separately."""
        args, config = self._args, self._config
        return containerservice.ManagedCluster(
            f"{self.name}-cluster",
            resource_name_=config.name,
            resource_group_name=args.group,
            node_resource_group=self.node_group,
            location=config.location,
            dns_prefix=dns_prefix(config.name, args.stack),
            kubernetes_version=config.kubernetes_version,
            sku=containerservice.ManagedClusterSKUArgs(name="Base", tier="Standard"),
            support_plan="KubernetesOfficial",
            identity=containerservice.ManagedClusterIdentityArgs(
                type=containerservice.ResourceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[self._identities.control_plane.resource.id],
            ),
            identity_profile={"kubeletidentity": self._kubelet()},
            agent_pool_profiles=[system_pool(config, args.subnet_id, args.tags)],
            network_profile=profiles.network(config),
            http_proxy_config=profiles.proxy(config),
            api_server_access_profile=profiles.api_access_profile(config, args.egress),
            disable_local_accounts=True,
            enable_rbac=True,
            aad_profile=profiles.entra(config),
            oidc_issuer_profile=containerservice.ManagedClusterOIDCIssuerProfileArgs(enabled=True),
            security_profile=profiles.security(),
            storage_profile=profiles.storage_drivers(),
            auto_scaler_profile=profiles.autoscaler(config),
            auto_upgrade_profile=profiles.upgrades(config),
            addon_profiles=profiles.addons(
                self._monitoring.log_workspace if self._monitoring else None
            ),
            azure_monitor_profile=profiles.azure_monitor(config),
            metrics_profile=containerservice.ManagedClusterMetricsProfileArgs(
                cost_analysis=containerservice.ManagedClusterCostAnalysisArgs(enabled=True)
            ),
            tags=args.tags,
            opts=with_retries(
                f"{self.name}-cluster",
                self.child(
                    depends_on=[*args.prerequisites, *self._identities.prerequisites],
                    delete_before_replace=True,
                    ignore_changes=profiles.managed_by_aks(config),
                    protect=args.protect,
                    timeout=CLUSTER_CREATE_TIMEOUT,
                ),
            ),
        )

    def _kubelet(self) -> containerservice.UserAssignedIdentityArgs:
        """Return the identity of the nodes, with its three ids."""
        kubelet = self._identities.kubelet
        return containerservice.UserAssignedIdentityArgs(
            resource_id=kubelet.resource.id,
            client_id=kubelet.client_id,
            object_id=kubelet.principal_id,
        )

    def _declare_maintenance(self) -> None:
        """Declare the maintenance windows, in which AKS may upgrade; Azure supports no tags on them."""
        for name in MAINTENANCE_CONFIGURATIONS:
            containerservice.MaintenanceConfiguration(
                f"{self.name}-{name}",
                config_name=name,
                resource_group_name=self._args.group,
                resource_name_=self.cluster.name,
                maintenance_window=profiles.maintenance_window(self._config),
                opts=self.child(delete_before_replace=True),
            )

    def _administrators(self, group: str) -> list[pulumi.Resource]:
        """Declare the role assignments with which a group fetches a kubeconfig and administers the cluster."""
        roles = {
            "user": BuiltInRole.AKS_CLUSTER_USER,
            "administrator": BuiltInRole.AKS_RBAC_CLUSTER_ADMIN,
        }
        return [
            grant(
                f"{self.name}-{key}-{group}",
                role,
                scope=self.cluster.id,
                principal_id=group,
                to_group=True,
                opts=self.child(delete_before_replace=True),
            )
            for key, role in roles.items()
        ]
