"""The twin's Azure, one module per family of services."""

from itertools import chain

from cloudtwin.providers.azure import aks, aks_pools, common, identity, monitor, network, storage
from cloudtwin.providers.azure.functions import functions
from cloudtwin.providers.azure.registries import registries
from cloudtwin.providers.azure.volumes import volumes
from cloudtwin.providers.inventory import Resource
from cloudtwin.providers.model import Cloud

FAMILIES = (network.TYPES, identity.TYPES, aks.TYPES, aks_pools.TYPES, storage.TYPES, monitor.TYPES)
TYPES = {resource_type.token: resource_type for resource_type in chain.from_iterable(FAMILIES)}


def _timeout_message(resource: Resource) -> str:
    return f"{resource.id}: context deadline exceeded while its state was Creating"


CLOUD = Cloud(
    name="azure-native",
    types=TYPES,
    functions=functions(TYPES),
    throttling_code="TooManyRequests",
    with_defaults=common.with_defaults,
    common_outputs=common.common_outputs,
    common_rules=common.common_rules,
    limits=common.limits,
    configure=common.configure,
    deleted_with=common.deleted_with,
    volumes=volumes,
    registries=registries,
    timeout_message=_timeout_message,
)
