"""The twin's AWS: what its services demand, refuse and answer. One module a family of services."""

from collections.abc import Iterable, Mapping
from itertools import chain

from twin.clouds.aws import (
    common,
    eks,
    eks_nodes,
    eks_rules,
    fsx,
    identity,
    machines,
    network,
    others,
    s3,
    security,
)
from twin.clouds.aws.functions import FUNCTIONS
from twin.clouds.aws.volumes import volumes
from twin.clouds.catalog import Cloud
from twin.clouds.faults import Kind
from twin.clouds.world import Resource, World

FAMILIES = (
    network.TYPES,
    identity.TYPES,
    machines.TYPES,
    eks.TYPES,
    fsx.TYPES,
    s3.TYPES,
    security.TYPES,
    eks_nodes.TYPES,
    others.TYPES,
)

# Type -> the property by which others say that they belong to it, and which do.
WITH_IT: Mapping[str, tuple[str, frozenset[str]]] = {
    eks_rules.CLUSTER: (
        "clusterName",
        frozenset(each.token for each in eks.TYPES) - {eks_rules.NODES, eks_rules.CLUSTER},
    ),
    network.TABLE: ("routeTableId", frozenset({network.ROUTE})),
    network.GROUP: (
        "securityGroupId",
        frozenset({network.INGRESS, network.EGRESS, network.OLD_RULE}),
    ),
    network.SUBNET: ("subnetId", frozenset({network.ASSOCIATION})),
    s3.BUCKET: (
        "bucket",
        frozenset(each.token for each in s3.TYPES if ":s3/" in each.token),
    ),
}


def _goes_with(gone: Resource, world: World) -> Iterable[Resource]:
    """Return a resource, what its service made beside it, and what is nothing without it."""
    field = WITH_IT.get(gone.token)
    yield gone
    for each in world.all():
        owned = each.owner and each.owner == gone.id
        if owned or (field and each.token in field[1] and each.inputs.get(field[0]) == gone.id):
            yield each


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
    volumes=volumes,
    says=_says,
)
