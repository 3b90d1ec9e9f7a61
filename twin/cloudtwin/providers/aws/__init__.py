"""The twin's AWS, one module per family of services."""

from collections.abc import Iterable, Mapping
from itertools import chain

from cloudtwin.providers.aws import (
    caller_policy,
    common,
    eks,
    eks_nodes,
    eks_rules,
    endpoints,
    fsx,
    identity,
    machines,
    monitoring,
    network,
    s3,
    security_groups,
)
from cloudtwin.providers.aws.functions import FUNCTIONS
from cloudtwin.providers.aws.registries import registries
from cloudtwin.providers.aws.volumes import volumes
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import Cloud

FAMILIES = (
    network.TYPES,
    security_groups.TYPES,
    endpoints.TYPES,
    identity.TYPES,
    machines.TYPES,
    eks.TYPES,
    fsx.TYPES,
    s3.TYPES,
    eks_nodes.TYPES,
    monitoring.TYPES,
)

# Types whose companions are deleted with them. A resource's `owner` is only an id, which two types may share.
OWNERS = frozenset({network.VPC, eks_rules.CLUSTER})
# Type -> the input by which its parts refer to it, and the types of parts, which are deleted with it.
PARTS: Mapping[str, tuple[str, frozenset[str]]] = {
    eks_rules.CLUSTER: (
        "clusterName",
        frozenset(resource_type.token for resource_type in eks.TYPES) - {eks_rules.CLUSTER},
    ),
    network.TABLE: ("routeTableId", frozenset({network.ROUTE})),
    network.GROUP: (
        "securityGroupId",
        frozenset({network.INGRESS, network.EGRESS, network.GROUP_RULE}),
    ),
    network.SUBNET: ("subnetId", frozenset({network.ASSOCIATION})),
    monitoring.PROMETHEUS_WORKSPACE: ("workspaceId", frozenset({monitoring.METRIC_RULES})),
    s3.BUCKET: (
        "bucket",
        frozenset(
            resource_type.token for resource_type in s3.TYPES if ":s3/" in resource_type.token
        ),
    ),
}


def _deleted_with(root: Resource, account: Inventory) -> Iterable[Resource]:
    """Yield a resource, its companions and its parts."""
    path, tokens = PARTS.get(root.token, ("", frozenset()))
    yield root
    for resource in account.all():
        is_owned = root.token in OWNERS and resource.owner == root.id
        if is_owned or (resource.token in tokens and resource.inputs.get(path) == root.id):
            yield resource


def _timeout_message(resource: Resource) -> str:
    name = f"{resource.token.rpartition(':')[2]} {resource.id}"
    return f"{name}: timeout while waiting for state to become 'ACTIVE'"


CLOUD = Cloud(
    name="aws",
    types={kind.token: kind for kind in chain.from_iterable(FAMILIES)},
    functions=FUNCTIONS,
    throttling_code="ThrottlingException",
    with_defaults=common.with_defaults,
    common_outputs=common.common_outputs,
    common_rules=common.common_rules,
    limits=common.limits,
    configure=common.configure,
    deleted_with=_deleted_with,
    volumes=volumes,
    registries=registries,
    timeout_message=_timeout_message,
    authorize=caller_policy.authorize,
    may_push=caller_policy.may_push,
)
