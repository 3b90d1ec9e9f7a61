"""A Kubernetes cluster on Azure (AKS), ending in the same `Cluster` as any other.

Its choices, each against AKS' default: Standard tier, since the default has no uptime promise;
Cilium in an overlay, so that network policies hold and pods cost no addresses of the network; Entra
identities only, since a local account's certificate opens the cluster to whoever has a copy; an API
server that named networks alone reach; one knob for the version of control plane and nodes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_azure_native import containerservice

from components.cluster import Cluster
from components.cluster import aks_kubeconfig as kubeconfigs
from components.cluster import aks_profiles as profiles
from components.cluster.aks_identity import AksIdentities, AksIdentitiesArgs
from components.cluster.aks_names import dns_prefix, node_group_name
from components.cluster.aks_pools import (
    GPU_PLACEMENT,
    SYSTEM_PLACEMENT,
    AksGpuPools,
    AksGpuPoolsArgs,
    gpu_pools,
    priorities,
    system_pool,
)
from components.cluster.aks_roles import Role, grant
from components.config import AksConfig
from components.network.vnet import Vnet
from components.part import Part

if TYPE_CHECKING:
    from components.cluster.aks_monitoring import AksMonitoring

# One of the version of Kubernetes, one of the nodes' system; AKS knows them by these names.
CALENDARS = ("aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule")


@dataclass(frozen=True, kw_only=True)
class AksClusterArgs:
    """What to make, and where.

    Attributes:
        config: the stack's `cluster` section.
        stack: the stack's name.
        vnet: where its nodes are.
        tags: of all that takes tags.
        protect: whether the cluster refuses to be destroyed.
    """

    config: AksConfig
    stack: str
    vnet: Vnet
    tags: dict[str, str]
    protect: bool = False


class AksCluster(Part):
    """An AKS cluster with its pools, and a provider for what goes into it.

    Attributes:
        cluster: as everything that runs on it sees it.
        kubelet_id: object id of its nodes' identity, to which a registry gives the right to pull.
        issuer: URL of the tokens of its ServiceAccounts, which federated credentials trust.
        node_group: name of the resource group into which AKS puts machines.
    """

    cluster: Cluster
    kubelet_id: pulumi.Output[str]
    issuer: pulumi.Output[str]
    node_group: str

    def __init__(
        self, name: str, args: AksClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:AksCluster", name, opts)
        self._args, self._config = args, args.config
        self.node_group = node_group_name(args.config.name, args.stack)
        self._identities = self._declare_identities()
        self._monitoring = self._declare_monitoring()
        self._made = self._declare_cluster()
        if self._monitoring is not None:
            self._monitoring.attach(self._made)
        self._declare_calendars()
        self.kubelet_id = self._identities.kubelet.principal_id
        self.issuer = self._made.oidc_issuer_profile.apply(
            lambda profile: (profile.issuer_url if profile else None) or ""
        )
        self.cluster = self._describe(after=[*self._admit(), *self._declare_pools().pools])
        self._declare_priorities()
        self.register_outputs({"name": self.cluster.name, "endpoint": self.cluster.endpoint})

    def _declare_identities(self) -> AksIdentities:
        return AksIdentities(
            f"{self.name}-identities",
            AksIdentitiesArgs(
                config=self._config,
                group=self._args.vnet.group,
                subnet_id=self._args.vnet.subnet_id,
                tags=self._args.tags,
            ),
            self.child(),
        )

    def _declare_monitoring(self) -> "AksMonitoring | None":
        said = self._config.monitoring
        if not (said.container_insights or said.managed_prometheus):
            return None
        # Not at the top: half a second to import, for what most stacks leave out.
        from components.cluster.aks_monitoring import AksMonitoring, AksMonitoringArgs

        args = AksMonitoringArgs(
            config=self._config, group=self._args.vnet.group, tags=self._args.tags
        )
        return AksMonitoring(f"{self.name}-monitoring", args, self.child())

    def _declare_cluster(self) -> containerservice.ManagedCluster:
        """Declare control plane and system pool."""
        return containerservice.ManagedCluster(
            f"{self.name}-cluster",
            resource_name_=self._config.name,
            resource_group_name=self._args.vnet.group,
            node_resource_group=self.node_group,
            location=self._config.location,
            dns_prefix=dns_prefix(self._config.name, self._args.stack),
            kubernetes_version=self._config.kubernetes_version,
            sku=containerservice.ManagedClusterSKUArgs(name="Base", tier="Standard"),
            support_plan="KubernetesOfficial",
            identity=containerservice.ManagedClusterIdentityArgs(
                type=containerservice.ResourceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[self._identities.control_plane.resource.id],
            ),
            identity_profile={"kubeletidentity": self._kubelet()},
            agent_pool_profiles=[
                system_pool(self._config, self._args.vnet.subnet_id, self._args.tags)
            ],
            network_profile=profiles.network(self._config),
            api_server_access_profile=profiles.door(self._config, self._args.vnet.egress),
            disable_local_accounts=True,
            enable_rbac=True,
            aad_profile=profiles.entra(self._config),
            oidc_issuer_profile=containerservice.ManagedClusterOIDCIssuerProfileArgs(enabled=True),
            security_profile=profiles.security(),
            storage_profile=profiles.storage_drivers(),
            auto_scaler_profile=profiles.autoscaler(self._config),
            auto_upgrade_profile=profiles.upgrades(self._config),
            addon_profiles=self._monitoring.addons if self._monitoring else None,
            azure_monitor_profile=self._monitoring.azure_monitor if self._monitoring else None,
            metrics_profile=containerservice.ManagedClusterMetricsProfileArgs(
                cost_analysis=containerservice.ManagedClusterCostAnalysisArgs(enabled=True)
            ),
            tags=self._args.tags,
            opts=self.child(
                after=[*self._args.vnet.ready, *self._identities.ready],
                delete_before_replace=True,
                ignore_changes=profiles.not_ours(self._config),
                protect=self._args.protect,
            ),
        )

    def _kubelet(self) -> containerservice.UserAssignedIdentityArgs:
        """Give the nodes' identity by all three names that it has."""
        kubelet = self._identities.kubelet
        return containerservice.UserAssignedIdentityArgs(
            resource_id=kubelet.resource.id,
            client_id=kubelet.client_id,
            object_id=kubelet.principal_id,
        )

    def _declare_calendars(self) -> None:
        """Declare when AKS may upgrade; they take no tags."""
        for calendar in CALENDARS:
            containerservice.MaintenanceConfiguration(
                f"{self.name}-{calendar}",
                config_name=calendar,
                resource_group_name=self._args.vnet.group,
                resource_name_=self._made.name,
                maintenance_window=profiles.calendar(self._config),
                opts=self.child(delete_before_replace=True),
            )

    def _admit(self) -> list[pulumi.Resource]:
        """Let the administrators fetch a kubeconfig, and do everything with it."""
        return [
            grant(
                f"{self.name}-{what}-{group}",
                role,
                scope=self._made.id,
                principal_id=group,
                to_group=True,
                opts=self.child(delete_before_replace=True),
            )
            for group in self._config.administrators
            for what, role in (
                ("user", Role.AKS_CLUSTER_USER),
                ("administrator", Role.AKS_RBAC_CLUSTER_ADMIN),
            )
        ]

    def _declare_pools(self) -> AksGpuPools:
        return AksGpuPools(
            f"{self.name}-pools",
            AksGpuPoolsArgs(
                config=self._config,
                group=self._args.vnet.group,
                cluster=self._made.name,
                subnet_id=self._args.vnet.subnet_id,
                tags=self._args.tags,
            ),
            self.child(),
        )

    def _describe(self, after: list[pulumi.Resource]) -> Cluster:
        """Give the cluster as its users see it.

        Its provider waits for pools and rights, so that all that is in the cluster goes before
        them: an object with a finalizer needs somebody to run and somebody allowed to ask.
        """
        kubeconfig = self._kubeconfig(after)
        address = self._made.private_fqdn if self._config.private_api else self._made.fqdn
        zones = self._config.gpu_pool.zones
        return Cluster(
            provider=kubernetes.Provider(
                f"{self.name}-kubernetes",
                kubeconfig=kubeconfig,
                cluster_identifier=self._made.id,  # a new kubeconfig is no new cluster
                opts=self.child(after=after),
            ),
            gpu_pool=GPU_PLACEMENT,
            system_pool=SYSTEM_PLACEMENT,
            kubeconfig=kubeconfig,
            region=self._config.location,
            zone=zones[0] if len(zones) == 1 else None,
            name=self._made.name,
            endpoint=pulumi.Output.concat("https://", address, ":443"),
        )

    def _kubeconfig(self, after: list[pulumi.Resource]) -> pulumi.Output[str]:
        """Ask AKS for the kubeconfig: it holds no credential, and is kept as a secret all the same."""
        answer = containerservice.list_managed_cluster_user_credentials_output(
            resource_group_name=self._args.vnet.group,
            resource_name=self._made.name,
            format="exec",
            opts=pulumi.InvokeOutputOptions(parent=self, depends_on=after),
        )
        return pulumi.Output.secret(answer.kubeconfigs[0].value.apply(kubeconfigs.fit))

    def _declare_priorities(self) -> None:
        """Tell the autoscaler which pool to try first; it reads this name in this namespace."""
        if not (self._config.autoscaling.enabled and profiles.has_choice(self._config)):
            return
        kubernetes.core.v1.ConfigMap(
            f"{self.name}-priorities",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(
                name="cluster-autoscaler-priority-expander", namespace="kube-system"
            ),
            data={"priorities": priorities(gpu_pools(self._config))},
            opts=pulumi.ResourceOptions.merge(
                self.child(delete_before_replace=True),
                pulumi.ResourceOptions(provider=self.cluster.provider),
            ),
        )
