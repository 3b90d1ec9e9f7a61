"""Effects of resources on machines: clusters get an endpoint, pools get machines, drivers run, pods get an identity.

The operations determine the contents of the account; this module creates the machines that follow from them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudtwin.providers.account import Account
from cloudtwin.providers.inventory import Resource
from cloudtwin.providers.machines import Machines
from cloudtwin.providers.model import Inputs, Outputs, ResourceType
from cloudtwin.providers.timeouts import Timeouts

if TYPE_CHECKING:
    from cloudtwin.capacity import Pool


@dataclass(frozen=True)
class Effects:
    """The effects of one cloud's resources.

    Attributes:
        account: source of related resources, such as a subnet's zone.
        machines: interface through which machines are created.
        types: resource types by token.
    """

    account: Account
    machines: Machines
    types: Mapping[str, ResourceType]

    def start_control_plane(
        self, kind: ResourceType, resource: Resource
    ) -> tuple[Outputs, Mapping[str, str]]:
        """Start a cluster's control plane; return its outputs and the values to keep private.

        Nothing is started for another type.

        Raises:
            TwinError: the control plane cannot run here.
        """
        if kind.cluster_outputs is None:
            return {}, resource.private
        endpoint = self.machines.control_plane()
        private = {"address": endpoint.address, "authority": endpoint.ca}
        return kind.cluster_outputs(resource, endpoint), private

    def apply(self, resource: Resource, previous: Resource | None, timeouts: Timeouts) -> None:
        """Install the drivers and create the machines of a resource, and wait for them.

        An update removes the drivers that the resource does not enable, whatever it enabled before: an earlier update
        may have been killed after its inputs were stored and before the removal.

        Args:
            resource: the resource as declared.
            previous: the resource before an update.
            timeouts: time limit of the operation.

        Raises:
            TwinError, ProviderError: an effect failed, timed out or was interrupted.
        """
        for driver, enabled in self._drivers(resource).items():
            if enabled:
                self.machines.set_driver(driver, enabled=True)
            elif previous:
                self._remove_driver(driver, [resource])
        if identity := self._pod_identity(resource):
            self.machines.set_pod_identity(*identity, enabled=True)
        for pool in self._pools(resource):
            self.machines.put(self._with_current_size(pool, previous, resource.inputs))
            self.machines.wait(pool.key, timeouts)

    def undo(self, resources: Iterable[Resource], timeouts: Timeouts) -> None:
        """Remove the machines and drivers of resources, and wait until the machines are gone.

        Raises:
            TwinError, ProviderError: the removal failed, timed out or was interrupted.
        """
        removed = list(resources)
        for resource in removed:
            for pool in self._pools(resource):
                self.machines.delete(pool.key)
                self.machines.wait(pool.key, timeouts)
            for driver in self._drivers(resource):
                self._remove_driver(driver, removed)
            if identity := self._pod_identity(resource):
                self._remove_pod_identity(identity, removed)

    def shortage(self, resource: Resource) -> str:
        """Return the cloud's error if it has no capacity for the machines of a resource."""
        from cloudtwin.capacity import shortage

        pools = self._pools(resource)
        return "; ".join(shortage.reason(pool, max(pool.desired_size, 1)) for pool in pools)

    def current_inputs(self, kind: ResourceType, resource: Resource) -> Inputs:
        """Return the current inputs of a resource: an autoscaler may have resized it."""
        if kind.current_inputs is None:
            return resource.inputs
        sizes = {
            pool.name: size
            for pool in self._pools(resource)
            if (size := self.machines.size(pool.key)) is not None
        }
        return kind.current_inputs(resource.inputs, sizes)

    def _drivers(self, resource: Resource) -> Mapping[str, bool]:
        kind = self.types.get(resource.token)
        return kind.drivers(resource.inputs) if kind and kind.drivers else {}

    def _pod_identity(self, resource: Resource) -> tuple[str, str] | None:
        kind = self.types.get(resource.token)
        return kind.pod_identity(resource.inputs) if kind and kind.pod_identity else None

    def _remove_pod_identity(
        self, identity: tuple[str, str], resources: Sequence[Resource]
    ) -> None:
        """Remove an identity, unless a resource other than these declares it, as for another cluster of the twin."""
        if identity not in map(self._pod_identity, self._others(resources)):
            self.machines.set_pod_identity(*identity, enabled=False)

    def _remove_driver(self, driver: str, resources: Sequence[Resource]) -> None:
        """Remove a driver, unless a resource other than these enables it: the clusters of a twin share its machines."""
        if not any(self._drivers(other).get(driver) for other in self._others(resources)):
            self.machines.set_driver(driver, enabled=False)

    def _others(self, resources: Sequence[Resource]) -> Iterator[Resource]:
        """Yield the account's resources other than these."""
        keys = {(resource.token, resource.id) for resource in resources}
        for other in self.account.read().all():
            if (other.token, other.id) not in keys:
                yield other

    def _pools(self, resource: Resource) -> Iterable["Pool"]:
        kind = self.types.get(resource.token)
        if kind is None or kind.pools is None:
            return ()
        return kind.pools(resource, self.account.read())

    def _with_current_size(self, pool: "Pool", previous: Resource | None, inputs: Inputs) -> "Pool":
        """Return a pool with its current size, unless the update sends a size."""
        current = self.machines.size(pool.key)
        if previous is None or current is None:
            return pool
        sized_by_update = self.types[previous.token].pools_sized_by_update
        if sized_by_update and pool.name in sized_by_update(previous.inputs, inputs):
            return pool
        return replace(pool, desired_size=max(current, pool.min_size))
