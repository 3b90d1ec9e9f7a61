"""An AKS cluster: access, identities, network, upgrades, monitoring and kubeconfig."""

import base64
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.azure import kubeconfig, profiles
from components.azure.roles import BuiltInRole
from components.config import AksConfig
from components.platform.scraping import scrape_job
from tests.components.azure.aks_stack import (
    ADMINISTRATORS,
    ZONE,
    all_features_stack,
    cluster_of,
    declare_aks,
    plain_stack,
    spoke_stack,
)
from tests.components.certificates import CA
from tests.components.recorder import RecordedResource

KUBELET = "everstep-kubelet"
CREDENTIALS = "azure-native:containerservice:listManagedClusterUserCredentials"


def cluster() -> RecordedResource:
    return plain_stack().one("ManagedCluster")


def config_of(**cluster: Any) -> AksConfig:
    return cluster_of(cluster=cluster)


def roles_of(principal: str) -> dict[str, str]:
    """Return a principal's roles by name, each with its only scope."""
    assignments = [
        resource.inputs
        for resource in all_features_stack().of_type("RoleAssignment")
        if resource.inputs["principalId"] == principal
    ]
    roles = {
        BuiltInRole(inputs["roleDefinitionId"].rpartition("/")[2]).name: inputs["scope"]
        for inputs in assignments
    }
    assert len(roles) == len(assignments), f"{principal} has a role on two scopes"
    return roles


def test_the_cluster_has_an_uptime_sla() -> None:
    assert cluster().inputs["sku"] == {"name": "Base", "tier": "Standard"}


def test_pods_use_an_overlay_network_that_enforces_policies() -> None:
    profile = cluster().inputs["networkProfile"]

    assert (profile["networkPlugin"], profile["networkPluginMode"]) == ("azure", "overlay")
    assert (profile["networkDataplane"], profile["networkPolicy"]) == ("cilium", "cilium")
    assert profile["outboundType"] == "userAssignedNATGateway"
    assert (profile["serviceCidr"], profile["dnsServiceIP"]) == ("10.2.0.0/16", "10.2.0.10")


def test_pods_get_their_addresses_from_the_configured_block() -> None:
    assert profiles.network(config_of(network={"podCidr": "100.64.0.0/10"})).pod_cidr == (
        "100.64.0.0/10"
    )


def test_only_named_networks_and_its_own_nodes_reach_the_api() -> None:
    access = cluster().inputs["apiServerAccessProfile"]

    assert (
        access["authorizedIPRanges"]
        == [
            "203.0.113.0/24",
            "198.51.100.9/32",
            "198.51.100.7/32",  # the gateway's address: AKS does not add it, and nodes could not join without it
        ]
    )
    assert access["disableRunCommand"] is True


def test_a_private_api_has_no_authorized_ranges() -> None:
    actual = profiles.api_access_profile(
        config_of(privateApi=True, authorizedRanges=[]), egress=None
    )

    assert actual.enable_private_cluster is True
    assert actual.private_dns_zone == "system"
    assert actual.authorized_ip_ranges is None
    assert actual.disable_run_command is True, (
        "`az aks command invoke` would reach the API from outside the network"
    )


def test_without_a_private_zone_the_api_has_a_public_name() -> None:
    graph = declare_aks(
        cluster={"privateApi": True, "authorizedRanges": [], "privateDnsZone": "none"}
    )
    (credentials,) = graph.calls_of(CREDENTIALS)

    assert graph.one("ManagedCluster").inputs["apiServerAccessProfile"] == {
        "enablePrivateCluster": True,
        "disableRunCommand": True,
        "privateDNSZone": "none",
        "enablePrivateClusterPublicFQDN": True,
    }, "no other name resolves"
    assert credentials.arguments["serverFqdn"] == "public"
    assert graph.outputs["endpoint"] == "https://everstep-0a1b2c3.hcp.eastus.azmk8s.io:443"


def test_the_control_plane_registers_a_private_api_in_the_zone_of_the_hub() -> None:
    access = spoke_stack().one("ManagedCluster").inputs["apiServerAccessProfile"]
    roles = {
        (resource.inputs["roleDefinitionId"].rpartition("/")[2], resource.inputs["scope"])
        for resource in spoke_stack().of_type("RoleAssignment")
        if resource.inputs["principalId"] == "everstep-control-plane-principal"
    }

    assert access == {
        "enablePrivateCluster": True,
        "disableRunCommand": True,
        "privateDNSZone": ZONE,
    }
    assert (BuiltInRole.PRIVATE_DNS_ZONE_CONTRIBUTOR.value, ZONE) in roles
    networks = [scope for role, scope in roles if role == BuiltInRole.NETWORK_CONTRIBUTOR.value]
    assert any("subnet" not in scope.lower() for scope in networks), "to link the zone"
    assert spoke_stack().outputs["endpoint"].endswith(".privatelink.eastus.azmk8s.io:443")


def test_an_existing_subnet_adds_no_authorized_range() -> None:
    actual = profiles.api_access_profile(config_of(), egress=None)

    assert actual.authorized_ip_ranges == ["203.0.113.0/24", "198.51.100.9/32"]


def test_egress_through_a_route_table_uses_no_gateway() -> None:
    routed = config_of(network={"egress": "userDefinedRouting", "firewallIp": "10.100.0.4"})

    assert profiles.network(routed).outbound_type == "userDefinedRouting"


def test_traffic_within_the_networks_of_the_cluster_bypasses_the_proxy() -> None:
    proxy = spoke_stack().one("ManagedCluster").inputs["httpProxyConfig"]

    assert proxy["httpProxy"] == proxy["httpsProxy"] == "http://proxy.example.org:3128"
    assert base64.b64decode(proxy["trustedCa"]).decode() == CA
    assert set(proxy["noProxy"]) >= {
        *("10.0.0.0/16", "10.244.0.0/16", "10.2.0.0/16", ".svc", ".cluster.local"),
        *("169.254.169.254", "168.63.129.16", ".corp.example.org"),
        ".blob.core.windows.net",  # the account admits the nodes' subnet only
    }
    assert "httpProxyConfig" not in cluster().inputs


def test_there_are_no_local_accounts() -> None:
    inputs = cluster().inputs

    assert inputs["disableLocalAccounts"] is True
    assert inputs["aadProfile"] == {
        "managed": True,
        "enableAzureRBAC": True,
        "adminGroupObjectIDs": [ADMINISTRATORS],
    }


def test_administrators_may_fetch_a_kubeconfig_and_use_it() -> None:
    actual = roles_of(ADMINISTRATORS)

    assert set(actual) == {"AKS_CLUSTER_USER", "AKS_RBAC_CLUSTER_ADMIN"}
    assert all(scope.endswith("/ManagedCluster/everstep") for scope in actual.values())


def test_only_administrators_have_roles_as_a_group() -> None:
    for resource in all_features_stack().some_of_type("RoleAssignment"):
        group = resource.inputs["principalId"] == ADMINISTRATORS
        assert resource.inputs["principalType"] == ("Group" if group else "ServicePrincipal"), (
            "without a type, Azure looks up an identity that may not be replicated yet"
        )


def test_the_control_plane_has_exactly_two_roles() -> None:
    actual = roles_of("everstep-control-plane-principal")

    assert set(actual) == {"NETWORK_CONTRIBUTOR", "MANAGED_IDENTITY_OPERATOR"}
    assert actual["NETWORK_CONTRIBUTOR"].endswith("/Subnet/nodes"), "not on the whole network"
    assert actual["MANAGED_IDENTITY_OPERATOR"].endswith(f"/{KUBELET}")


def test_nodes_may_only_pull_images() -> None:
    actual = roles_of(f"{KUBELET}-principal")

    assert set(actual) == {"ACR_PULL"}
    assert actual["ACR_PULL"].endswith("/visionimages")


def test_control_plane_and_nodes_use_the_identities_with_the_roles() -> None:
    inputs = cluster().inputs

    assert inputs["identity"]["type"] == "UserAssigned"
    (control_plane,) = inputs["identity"]["userAssignedIdentities"]
    assert control_plane.endswith("/everstep-control-plane")
    kubelet = inputs["identityProfile"]["kubeletidentity"]
    assert kubelet["resourceId"].endswith(f"/{KUBELET}")
    assert kubelet["clientId"] == f"{KUBELET}-client"
    assert kubelet["objectId"] == f"{KUBELET}-principal"


def test_pods_can_use_workload_identities() -> None:
    inputs = cluster().inputs

    assert inputs["oidcIssuerProfile"] == {"enabled": True}
    assert inputs["securityProfile"]["workloadIdentity"] == {"enabled": True}


def test_unused_vulnerable_images_are_removed_from_nodes() -> None:
    image_cleaner = cluster().inputs["securityProfile"]["imageCleaner"]

    assert image_cleaner == {"enabled": True, "intervalHours": 168}


def test_blobs_and_disks_can_be_mounted() -> None:
    storage = cluster().inputs["storageProfile"]

    assert storage["blobCSIDriver"] == {"enabled": True}
    assert storage["diskCSIDriver"] == {"enabled": True}


def test_upgrades_happen_in_the_maintenance_window() -> None:
    upgrades = cluster().inputs["autoUpgradeProfile"]
    windows = {
        resource.inputs["configName"]: resource.inputs["maintenanceWindow"]
        for resource in plain_stack().of_type("MaintenanceConfiguration")
    }

    assert upgrades == {"upgradeChannel": "patch", "nodeOSUpgradeChannel": "NodeImage"}
    assert set(windows) == {"aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"}
    for window in windows.values():
        assert window["schedule"] == {"weekly": {"dayOfWeek": "Sunday", "intervalWeeks": 1}}
        assert (window["startTime"], window["utcOffset"]) == ("02:00", "+00:00")
        assert window["durationHours"] == 4


def test_control_plane_and_all_pools_have_the_same_version() -> None:
    inputs = cluster().inputs
    (system,) = inputs["agentPoolProfiles"]
    versions = [system["orchestratorVersion"]]
    versions += [
        resource.inputs["orchestratorVersion"] for resource in plain_stack().of_type("AgentPool")
    ]

    assert {inputs["kubernetesVersion"], *versions} == {"1.36"}


def test_system_nodes_are_in_the_same_subnet_as_gpu_nodes() -> None:
    (system,) = cluster().inputs["agentPoolProfiles"]

    assert {resource.inputs["vnetSubnetID"] for resource in plain_stack().of_type("AgentPool")} == {
        system["vnetSubnetID"]
    }, "the storage account allows only one subnet"


def test_only_fields_that_aks_changes_are_ignored() -> None:
    assert cluster().ignore_changes == ("agentPoolProfiles[0].count",), (
        "AKS refuses an update that lacks the pool"
    )
    fixed_size = config_of(systemPool={"nodes": 3, "maxNodes": 3})
    assert profiles.managed_by_aks(fixed_size) == []
    rapid_channel = config_of(systemPool={"nodes": 3, "maxNodes": 3}, upgrades={"channel": "rapid"})
    assert profiles.managed_by_aks(rapid_channel) == [
        "kubernetesVersion",
        "agentPoolProfiles[0].orchestratorVersion",
    ]


def test_the_autoscaler_prefers_the_first_pool_and_survives_the_loss_of_all_nodes() -> None:
    profile = cluster().inputs["autoScalerProfile"]

    assert profile["expander"] == "priority"
    assert profile["maxTotalUnreadyPercentage"] == "100"
    assert profile["scaleDownUnneededTime"] == "10m"
    assert profile["skipNodesWithLocalStorage"] == "false", (
        "a worker's data cache in an emptyDir would keep its node"
    )
    assert all(isinstance(value, str) for value in profile.values()), "the API requires strings"


def test_a_single_pool_needs_no_priorities() -> None:
    one_size = config_of(gpuPool={"vmSizes": [{"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}]})
    actual = profiles.autoscaler(one_size)

    assert actual is not None
    assert actual.expander == "least-waste", "without its ConfigMap, `priority` chooses at random"


def test_without_autoscaling_there_is_no_autoscaler_profile() -> None:
    assert (
        profiles.autoscaler(config_of(autoscaling={"enabled": False}, gpuPool={"nodes": 3})) is None
    )


def test_monitoring_is_off_by_default_and_disabled_explicitly_since_aks_keeps_what_is_omitted() -> (
    None
):
    assert cluster().inputs["addonProfiles"] == {"omsagent": {"enabled": False}}
    assert cluster().inputs["azureMonitorProfile"] == {"metrics": {"enabled": False}}
    assert not plain_stack().of_type("DataCollectionRule")
    assert not plain_stack().of_type("Workspace")
    assert not [name for name in plain_stack().resources if name.endswith("-scraping")]


def test_logs_and_metrics_each_have_a_cluster_setting_a_rule_and_an_association() -> None:
    inputs = all_features_stack().one("ManagedCluster").inputs
    agent = inputs["addonProfiles"]["omsagent"]
    rules = {
        resource.inputs["dataCollectionRuleName"]: resource.inputs
        for resource in all_features_stack().of_type("DataCollectionRule")
    }
    associations = {
        resource.inputs["dataCollectionRuleId"].rpartition("/")[2]: resource.inputs["resourceUri"]
        for resource in all_features_stack().of_type("DataCollectionRuleAssociation")
    }

    assert agent["config"]["useAADAuth"] == "true", "otherwise the agent uses an access key"
    assert agent["config"]["logAnalyticsWorkspaceResourceID"].endswith("/Workspace/everstep-logs")
    assert inputs["azureMonitorProfile"]["metrics"]["enabled"] is True
    assert set(rules) == set(associations) == {"everstep-logs", "everstep-metrics"}
    assert all(uri.endswith("/ManagedCluster/everstep") for uri in associations.values())
    metrics = rules["everstep-metrics"]
    assert metrics["dataFlows"] == [
        {"streams": ["Microsoft-PrometheusMetrics"], "destinations": ["metrics"]}
    ]
    assert metrics["dataCollectionEndpointId"].endswith("/everstep-metrics")


def test_the_azure_monitor_agent_finds_the_scrape_job_by_the_name_of_its_config_map() -> None:
    inputs = all_features_stack()["aks-cluster-scraping"].inputs
    config = yaml.safe_load(inputs["data"]["prometheus-config"])

    assert inputs["metadata"]["name"] == "ama-metrics-prometheus-config"
    assert inputs["metadata"]["namespace"] == "kube-system", "the agent reads it only there"
    assert config == {"scrape_configs": [scrape_job(15)]}


def test_the_kubeconfig_of_aks_fetches_tokens_with_kubelogin() -> None:
    (credentials,) = plain_stack().calls_of(CREDENTIALS)

    assert credentials.arguments["format"] == "exec", (
        "kubectl has had no built-in Azure login since 1.26"
    )
    assert "serverFqdn" not in credentials.arguments


def kubeconfig_with(arguments: list[str]) -> dict[str, Any]:
    user = {"name": "u", "user": {"exec": {"command": "kubelogin", "args": arguments}}}
    return {"apiVersion": "v1", "users": [user], "clusters": []}


def converted(arguments: list[str]) -> dict[str, Any]:
    """Return the kubeconfig of AKS after its conversion."""
    encoded = base64.b64encode(yaml.safe_dump(kubeconfig_with(arguments)).encode()).decode()
    content: dict[str, Any] = yaml.safe_load(kubeconfig.without_interaction(encoded))
    return content


def test_the_kubeconfig_needs_no_interactive_login() -> None:
    arguments = ["get-token", "--login", "devicecode", "--server-id", "6dae42f8"]

    assert converted(arguments) == kubeconfig_with(
        ["get-token", "--login", "azurecli", "--server-id", "6dae42f8"]
    )


@given(st.lists(st.sampled_from(["get-token", "--login", "-l", "spn", "--server-id"]), max_size=6))
def test_the_rest_of_the_kubeconfig_is_unchanged(arguments: list[str]) -> None:
    expected = [
        "azurecli" if previous in {"--login", "-l"} else argument
        for previous, argument in zip(["", *arguments], arguments, strict=False)
    ]

    assert converted(arguments) == kubeconfig_with(expected)


def test_a_new_kubeconfig_does_not_replace_the_objects_in_the_cluster() -> None:
    inputs = plain_stack()["aks-cluster-kubernetes"].inputs

    assert inputs["clusterIdentifier"].endswith("/ManagedCluster/everstep")
