"""The twin's Azure: what its services demand, refuse and answer. One module a family of services."""

from itertools import chain

from twin.clouds.azure import aks, aks_pools, common, identity, network, others, storage
from twin.clouds.azure.functions import functions
from twin.clouds.azure.volumes import volumes
from twin.clouds.catalog import Cloud
from twin.clouds.faults import Kind
from twin.clouds.world import Resource

FAMILIES = (network.TYPES, identity.TYPES, aks.TYPES, aks_pools.TYPES, storage.TYPES, others.TYPES)
TYPES = {kind.token: kind for kind in chain.from_iterable(FAMILIES)}


def _says(kind: Kind, resource: Resource) -> str:
    if kind is Kind.CAPACITY:
        return (
            f"{resource.id}: AllocationFailed: Allocation failed. We do not have sufficient "
            "capacity for the requested VM size in this region."
        )
    return f"{resource.id}: context deadline exceeded while its state was Creating"


CLOUD = Cloud(
    name="azure-native",
    types=TYPES,
    functions=functions(TYPES),
    throttled="TooManyRequests",
    complete=common.complete,
    adds=common.adds,
    faults=common.faults,
    settings=common.settings,
    goes_with=common.goes_with,
    volumes=volumes,
    says=_says,
)
