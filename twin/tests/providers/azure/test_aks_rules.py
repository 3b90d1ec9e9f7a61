"""Rules of Azure Kubernetes Service."""

from dataclasses import replace

import pytest
from cloudtwin.providers import azure
from cloudtwin.providers.azure.aks_rules import (
    default_route,
    dns_prefix,
    network,
    snapshot_fits,
    zonal_location,
)
from cloudtwin.providers.azure.identity import CLUSTER
from cloudtwin.providers.azure.network import ROUTE_TABLE
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import ProviderConfig, ResourceRequest
from cloudtwin.providers.protocol.values import Object

from twin.tests.providers.azure.cases import (
    AKS,
    ROUTED,
    ROUTES,
    SNAPSHOT_ID,
    SNAPSHOT_POOL,
    ZONE,
    pools,
    private_api,
    resource,
    snapshot,
    subnet,
)


def request_for(inputs: Object, *resources: Resource) -> ResourceRequest:
    """Return a request for a cluster in a subscription with other resources."""
    config = ProviderConfig(cloud="azure-native")
    return ResourceRequest(
        inputs=inputs, config=config, account=Inventory(resources), entropy="", id=AKS
    )


def test_a_route_without_a_prefix_is_not_the_default_route() -> None:
    routes = [{"nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.1.0.4"}]
    table = resource(ROUTE_TABLE, ROUTES, {"routes": routes})

    (reason,) = default_route(request_for(ROUTED, subnet(routeTable={"id": ROUTES}), table))

    assert "0.0.0.0/0 missing" in reason


@pytest.mark.parametrize(
    ("location", "reasons"),
    [("East US", []), ("westus", ["the location westus has no availability zones"])],
)
def test_an_inline_pool_has_zones_only_in_a_location_with_zones(
    location: str, reasons: list[str]
) -> None:
    inputs = {"location": location, **pools({"availabilityZones": ["1"]})}

    assert list(zonal_location(request_for(inputs))) == reasons


def test_pods_and_services_are_outside_the_blocks_that_aks_reserves() -> None:
    profile = {"podCidr": "172.16.0.0/12", "serviceCidr": "172.31.0.0/24"}

    reasons = [failure.reason for failure in network({"networkProfile": profile})]

    assert [reason.partition(" ")[2] for reason in reasons[:2]] == [
        "overlaps a block that AKS reserves"
    ] * 2


def test_the_snapshot_of_a_pool_is_in_the_location_of_its_cluster() -> None:
    inputs = {"location": "westus", **pools(SNAPSHOT_POOL)}

    (reason,) = snapshot_fits(request_for(inputs, snapshot("Standard_NC24ads_A100_v4")))

    assert reason == f"the snapshot {SNAPSHOT_ID} is in eastus, not in westus"


def test_add_ons_metrics_and_the_proxy_are_kept_by_an_update_that_omits_them() -> None:
    enabled = {
        "addonProfiles": {"omsagent": {"enabled": True}},
        "azureMonitorProfile": {"metrics": {"enabled": True}},
        "httpProxyConfig": {"httpProxy": "http://proxy.example.org:3128"},
    }
    disabled = {
        **enabled,
        "addonProfiles": {"omsagent": {"enabled": False}},
        "azureMonitorProfile": {"metrics": {"enabled": False}},
    }
    names = {"resourceName": "c", "resourceGroupName": "g", "dnsPrefix": "c"}
    versions = {"currentKubernetesVersion": "1.36.2"}
    cluster = replace(resource(CLUSTER, AKS, {**names, **enabled}), outputs={**versions, **enabled})
    describe = azure.CLOUD.types[CLUSTER].describe

    def outputs(inputs: Object) -> Object:
        request = replace(request_for({**names, **inputs}, cluster), previous=cluster)
        return {key: describe(request)[key] for key in enabled}

    assert outputs({}) == enabled
    assert outputs(disabled) == disabled


@pytest.mark.parametrize(
    ("inputs", "is_valid"),
    [
        ({"dnsPrefix": "e"}, True),
        ({"dnsPrefix": "e" * 54}, True),
        ({"dnsPrefix": "e" * 55}, False),
        ({"dnsPrefix": ""}, False),
        ({"dnsPrefix": "-everstep"}, False),
        ({}, False),
        ({"fqdnSubdomain": "everstep"}, True),
        ({"fqdnSubdomain": "everstep", "dnsPrefix": "ever step"}, False),
    ],
)
def test_a_cluster_has_a_dns_prefix_of_at_most_54_characters_or_a_subdomain(
    inputs: Object, is_valid: bool
) -> None:
    assert (list(dns_prefix(inputs)) == []) is is_valid


def test_the_name_of_a_private_api_begins_with_the_subdomain_of_the_cluster() -> None:
    names = {"resourceName": "c", "resourceGroupName": "g", "location": "eastus"}
    inputs = {**names, "fqdnSubdomain": "everstep", **private_api(ZONE)}

    outputs = azure.CLOUD.types[CLUSTER].describe(request_for(inputs))

    assert outputs["privateFQDN"] == "everstep.privatelink.eastus.azmk8s.io"
