"""An AKS cluster: who gets in, who it is, how it is reached, kept and watched."""

import base64
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from components.cluster import aks_kubeconfig, aks_profiles
from components.cluster.aks_roles import Role
from components.config import AksConfig
from tests.unit.components.aks_stack import ADMINISTRATORS, cluster_of, full, plain
from tests.unit.components.recorder import Recorded

KUBELET = "everstep-kubelet"


def cluster() -> Recorded:
    return plain().one("ManagedCluster")


def config_of(**said: Any) -> AksConfig:
    return cluster_of(cluster=said)


def roles_of(principal: str) -> dict[str, str]:
    """Give what a principal may do, and on what."""
    return {
        Role(one.inputs["roleDefinitionId"].rpartition("/")[2]).name: one.inputs["scope"]
        for one in full().of("RoleAssignment")
        if one.inputs["principalId"] == principal
    }


def test_it_has_an_uptime_promise() -> None:
    assert cluster().inputs["sku"] == {"name": "Base", "tier": "Standard"}


def test_pods_have_an_overlay_whose_policies_hold() -> None:
    said = cluster().inputs["networkProfile"]

    assert (said["networkPlugin"], said["networkPluginMode"]) == ("azure", "overlay")
    assert (said["networkDataplane"], said["networkPolicy"]) == ("cilium", "cilium")
    assert said["outboundType"] == "userAssignedNATGateway"
    assert (said["serviceCidr"], said["dnsServiceIP"]) == ("10.2.0.0/16", "10.2.0.10")


def test_only_named_networks_and_its_own_nodes_reach_the_api() -> None:
    said = cluster().inputs["apiServerAccessProfile"]

    assert said["authorizedIPRanges"] == [
        "203.0.113.0/24",
        "198.51.100.9/32",
        "198.51.100.7/32",  # the gateway's address: AKS does not add it, and no node would come up
    ]
    assert said["disableRunCommand"] is True


def test_a_private_api_names_no_networks() -> None:
    said = aks_profiles.door(config_of(privateApi=True, authorizedRanges=[]), egress=None)

    assert said.enable_private_cluster is True
    assert said.private_dns_zone == "system"
    assert said.authorized_ip_ranges is None


def test_a_subnet_of_the_users_brings_no_address_to_add() -> None:
    said = aks_profiles.door(config_of(), egress=None)

    assert said.authorized_ip_ranges == ["203.0.113.0/24", "198.51.100.9/32"]


def test_there_are_no_local_accounts() -> None:
    said = cluster().inputs

    assert said["disableLocalAccounts"] is True
    assert said["aadProfile"] == {
        "managed": True,
        "enableAzureRBAC": True,
        "adminGroupObjectIDs": [ADMINISTRATORS],
    }


def test_administrators_may_fetch_a_kubeconfig_and_use_it() -> None:
    id_of_cluster = "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/"

    said = roles_of(ADMINISTRATORS)

    assert set(said) == {"AKS_CLUSTER_USER", "AKS_RBAC_CLUSTER_ADMIN"}
    assert all(scope.startswith(id_of_cluster) for scope in said.values())
    assert all(scope.endswith("/ManagedCluster/everstep") for scope in said.values())


def test_only_administrators_are_groups() -> None:
    for one in full().of("RoleAssignment"):
        group = one.inputs["principalId"] == ADMINISTRATORS
        assert one.inputs["principalType"] == ("Group" if group else "ServicePrincipal"), (
            "unsaid, Azure looks for an identity that its directory may not know yet"
        )


def test_the_control_plane_may_do_two_things() -> None:
    said = roles_of("everstep-control-plane-principal")

    assert set(said) == {"NETWORK_CONTRIBUTOR", "MANAGED_IDENTITY_OPERATOR"}
    assert said["NETWORK_CONTRIBUTOR"].endswith("/Subnet/nodes"), "not on the whole network"
    assert said["MANAGED_IDENTITY_OPERATOR"].endswith(f"/{KUBELET}")


def test_nodes_may_pull_and_nothing_else() -> None:
    said = roles_of(f"{KUBELET}-principal")

    assert set(said) == {"ACR_PULL"}
    assert said["ACR_PULL"].endswith("/visionimages")


def test_control_plane_and_nodes_have_the_identities_that_were_given_rights() -> None:
    said = cluster().inputs

    assert said["identity"]["type"] == "UserAssigned"
    (control_plane,) = said["identity"]["userAssignedIdentities"]
    assert control_plane.endswith("/everstep-control-plane")
    kubelet = said["identityProfile"]["kubeletidentity"]
    assert kubelet["resourceId"].endswith(f"/{KUBELET}")
    assert kubelet["clientId"] == f"{KUBELET}-client"
    assert kubelet["objectId"] == f"{KUBELET}-principal"


def test_pods_can_be_somebody_on_azure() -> None:
    said = cluster().inputs

    assert said["oidcIssuerProfile"] == {"enabled": True}
    assert said["securityProfile"]["workloadIdentity"] == {"enabled": True}


def test_images_that_nobody_uses_are_swept() -> None:
    said = cluster().inputs["securityProfile"]["imageCleaner"]

    assert said == {"enabled": True, "intervalHours": 168}


def test_blobs_and_disks_can_be_mounted() -> None:
    said = cluster().inputs["storageProfile"]

    assert said["blobCSIDriver"] == {"enabled": True}
    assert said["diskCSIDriver"] == {"enabled": True}


def test_it_upgrades_itself_on_a_quiet_day() -> None:
    said = cluster().inputs["autoUpgradeProfile"]
    calendars = {
        one.inputs["configName"]: one.inputs["maintenanceWindow"]
        for one in plain().of("MaintenanceConfiguration")
    }

    assert said == {"upgradeChannel": "patch", "nodeOSUpgradeChannel": "NodeImage"}
    assert set(calendars) == {"aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"}
    for window in calendars.values():
        assert window["schedule"] == {"weekly": {"dayOfWeek": "Sunday", "intervalWeeks": 1}}
        assert (window["startTime"], window["durationHours"]) == ("02:00", 4)


def test_control_plane_and_all_pools_have_one_version() -> None:
    said = cluster().inputs
    (system,) = said["agentPoolProfiles"]
    versions = [system["orchestratorVersion"]]
    versions += [one.inputs["orchestratorVersion"] for one in plain().of("AgentPool")]

    assert {said["kubernetesVersion"], *versions} == {"1.36"}


def test_system_nodes_are_in_the_same_subnet_as_gpu_nodes() -> None:
    (system,) = cluster().inputs["agentPoolProfiles"]

    assert {one.inputs["vnetSubnetID"] for one in plain().of("AgentPool")} == {
        system["vnetSubnetID"]
    }, "the storage account lets one subnet in"


def test_what_aks_changes_is_left_to_it_and_nothing_wider() -> None:
    assert cluster().ignore_changes == ("agentPoolProfiles[0].count",), (
        "a pool that is ignored whole is a pool that AKS finds missing"
    )
    fixed = config_of(systemPool={"nodes": 3, "maxNodes": 3})
    assert aks_profiles.not_ours(fixed) == []
    rapid = config_of(systemPool={"nodes": 3, "maxNodes": 3}, upgrades={"channel": "rapid"})
    assert aks_profiles.not_ours(rapid) == [
        "kubernetesVersion",
        "agentPoolProfiles[0].orchestratorVersion",
    ]


def test_the_autoscaler_prefers_the_first_pool_and_survives_the_loss_of_all_nodes() -> None:
    said = cluster().inputs["autoScalerProfile"]

    assert said["expander"] == "priority"
    assert said["maxTotalUnreadyPercentage"] == "100"
    assert said["scaleDownUnneededTime"] == "10m"
    assert said["skipNodesWithLocalStorage"] == "false", "a worker's /dev/shm would keep its node"
    assert all(isinstance(value, str) for value in said.values()), "the service takes text"


def test_without_a_choice_there_are_no_priorities() -> None:
    one_size = config_of(gpuPool={"vmSizes": {"t4": "Standard_NC4as_T4_v3"}})
    said = aks_profiles.autoscaler(one_size)

    assert said is not None
    assert said.expander == "least-waste", "without its table `priority` would choose at random"


def test_without_autoscaling_nobody_scales() -> None:
    assert aks_profiles.autoscaler(config_of(autoscaling={"enabled": False})) is None


def test_monitoring_costs_nothing_until_it_is_asked_for() -> None:
    assert "addonProfiles" not in cluster().inputs
    assert "azureMonitorProfile" not in cluster().inputs
    assert not plain().of("DataCollectionRule")
    assert not plain().of("Workspace")


def test_logs_and_metrics_have_a_switch_a_place_a_rule_and_an_association() -> None:
    said = full().one("ManagedCluster").inputs
    agent = said["addonProfiles"]["omsagent"]
    rules = {
        one.inputs["dataCollectionRuleName"]: one.inputs for one in full().of("DataCollectionRule")
    }
    associations = {
        one.inputs["dataCollectionRuleId"].rpartition("/")[2]: one.inputs["resourceUri"]
        for one in full().of("DataCollectionRuleAssociation")
    }

    assert agent["config"]["useAADAuth"] == "true", "else the agent shows a key"
    assert agent["config"]["logAnalyticsWorkspaceResourceID"].endswith("/Workspace/everstep-logs")
    assert said["azureMonitorProfile"]["metrics"]["enabled"] is True
    assert set(rules) == set(associations) == {"everstep-logs", "everstep-metrics"}
    assert all(uri.endswith("/ManagedCluster/everstep") for uri in associations.values())
    metrics = rules["everstep-metrics"]
    assert metrics["dataFlows"] == [
        {"streams": ["Microsoft-PrometheusMetrics"], "destinations": ["metrics"]}
    ]
    assert metrics["dataCollectionEndpointId"].endswith("/everstep-metrics")


def answered(arguments: list[str]) -> str:
    user = {"name": "u", "user": {"exec": {"command": "kubelogin", "args": arguments}}}
    content = {"apiVersion": "v1", "users": [user], "clusters": []}
    return base64.b64encode(yaml.safe_dump(content).encode()).decode()


def test_a_program_never_waits_for_a_person_at_a_keyboard() -> None:
    asked = ["get-token", "--login", "devicecode", "--server-id", "6dae42f8"]

    (user,) = yaml.safe_load(aks_kubeconfig.fit(answered(asked)))["users"]

    assert user["user"]["exec"]["args"] == [
        "get-token",
        "--login",
        "azurecli",
        "--server-id",
        "6dae42f8",
    ]


@settings(deadline=None)  # a busy machine is no fault
@given(st.lists(st.sampled_from(["get-token", "--login", "-l", "spn", "--server-id"]), max_size=6))
def test_the_rest_of_the_kubeconfig_is_left_as_it_is(arguments: list[str]) -> None:
    fitted = yaml.safe_load(aks_kubeconfig.fit(answered(arguments)))
    (user,) = fitted["users"]

    assert fitted["apiVersion"] == "v1"
    said = user["user"]["exec"]["args"]
    assert len(said) == len(arguments)
    for index, (before, after) in enumerate(zip(arguments, said, strict=True)):
        after_switch = index > 0 and arguments[index - 1] in {"--login", "-l"}
        assert after == ("azurecli" if after_switch else before)


def test_the_same_cluster_gives_the_same_text() -> None:
    answer = answered(["get-token", "-l", "devicecode"])

    assert aks_kubeconfig.fit(answer) == aks_kubeconfig.fit(answer)


def test_a_new_kubeconfig_is_no_new_cluster() -> None:
    said = plain()["aks-cluster-kubernetes"].inputs

    assert said["clusterIdentifier"].endswith("/ManagedCluster/everstep")
