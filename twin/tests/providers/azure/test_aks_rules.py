"""Rules of Azure Kubernetes Service."""

from cloudtwin.providers.azure.aks_rules import default_route
from cloudtwin.providers.azure.network import ROUTE_TABLE
from cloudtwin.providers.inventory import Inventory
from cloudtwin.providers.model import ProviderConfig, ResourceRequest

from twin.tests.providers.azure.cases import ROUTED, ROUTES, resource, subnet


def test_a_route_without_a_prefix_is_not_the_default_route() -> None:
    routes = [{"nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.1.0.4"}]
    table = resource(ROUTE_TABLE, ROUTES, {"routes": routes})
    request = ResourceRequest(
        inputs=ROUTED,
        config=ProviderConfig(cloud="azure-native"),
        account=Inventory((subnet(routeTable={"id": ROUTES}), table)),
        entropy="",
    )

    (reason,) = default_route(request)

    assert "0.0.0.0/0 missing" in reason
