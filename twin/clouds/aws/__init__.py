"""The twin's AWS: what its services demand, refuse and answer. One module a family of services."""

from collections.abc import Iterable
from itertools import chain

from twin.clouds.aws import common, network
from twin.clouds.aws.functions import FUNCTIONS
from twin.clouds.catalog import Cloud
from twin.clouds.faults import Kind
from twin.clouds.world import Resource, World

FAMILIES = (network.TYPES,)


def _goes_with(gone: Resource, world: World) -> Iterable[Resource]:
    """Return a resource and what its service made beside it."""
    return [gone, *(each for each in world.all() if each.owner == gone.id)]


def _says(kind: Kind, resource: Resource) -> str:
    what = resource.token.rpartition(":")[2]
    if kind is Kind.CAPACITY:
        return (
            f"{what} {resource.id}: UnfulfillableCapacity: Could not launch Spot Instances. "
            "There is no Spot capacity available that matches your request."
        )
    return f"{what} {resource.id}: timeout while waiting for state to become 'ACTIVE'"


CLOUD = Cloud(
    name="aws",
    types={kind.token: kind for kind in chain.from_iterable(FAMILIES)},
    functions=FUNCTIONS,
    throttled="ThrottlingException",
    complete=common.complete,
    adds=common.adds,
    faults=common.faults,
    settings=common.settings,
    goes_with=_goes_with,
    volumes=lambda _world: {},
    says=_says,
)
