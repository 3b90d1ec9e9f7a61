"""What follows from the books: a cluster is reached, pools become machines, drivers come.

It stands between the provider's operations, which decide what is in the account, and the machines,
which know no resources.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twin.clouds.account import Account
from twin.clouds.acting import Machines
from twin.clouds.model import Inputs, Outputs, ResourceType
from twin.clouds.patience import Patience
from twin.clouds.world import Resource, World

if TYPE_CHECKING:
    from twin.clouds.capacity import Pool


@dataclass(frozen=True)
class Deeds:
    """What one cloud does with machines.

    Attributes:
        account: read for what a resource needs of others, such as its subnet's zone.
        machines: who does it.
        types: by token.
    """

    account: Account
    machines: Machines
    types: Mapping[str, ResourceType]

    def reach(self, kind: ResourceType, resource: Resource) -> tuple[Outputs, Mapping[str, str]]:
        """Make a cluster answer; return what that adds to its outputs, and what is kept of it.

        Raises:
            EverstepError: it cannot stand here.
        """
        if kind.cluster is None:
            return {}, resource.notes
        endpoint = self.machines.control_plane()
        notes = {"address": endpoint.address, "authority": endpoint.authority}
        return kind.cluster(resource, endpoint), notes

    def do(
        self, kind: ResourceType, resource: Resource, before: Resource | None, patience: Patience
    ) -> None:
        """Bring the drivers and machines that a resource stands for, and wait for them.

        Args:
            kind: its record.
            resource: as it is to be.
            before: as it was, where it was changed.
            patience: of the operation.

        Raises:
            EverstepError, ProviderError: not possible, or not in time.
        """
        for driver in kind.drivers(resource.inputs) if kind.drivers else ():
            self.machines.driver(driver, wanted=True)
        for pool in self._pools(resource):
            self.machines.put(self._sized(pool, before))
            self.machines.settle(pool.name, patience)

    def undo(self, going: Iterable[Resource], patience: Patience) -> None:
        """Take away the machines and drivers of all that goes, and wait until they are gone.

        Raises:
            EverstepError, ProviderError: not in time.
        """
        for resource in going:
            for pool in self._pools(resource):
                self.machines.drop(pool.name)
                self.machines.settle(pool.name, patience)
            kind = self.types.get(resource.token)
            for driver in kind.drivers(resource.inputs) if kind and kind.drivers else ():
                self.machines.driver(driver, wanted=False)

    def live(self, kind: ResourceType, resource: Resource) -> Inputs:
        """Return the inputs that a resource stands for now: an autoscaler may have resized it."""
        if kind.resized is None:
            return resource.inputs
        sizes = {
            pool.name: size
            for pool in self._pools(resource)
            if (size := self.machines.size(pool.name)) is not None
        }
        return kind.resized(resource.inputs, sizes)

    def _pools(self, resource: Resource, world: World | None = None) -> Iterable["Pool"]:
        kind = self.types.get(resource.token)
        if kind is None or kind.pools is None:
            return ()
        return kind.pools(resource, world or self.account.read())

    def _sized(self, pool: "Pool", before: Resource | None) -> "Pool":
        """Keep the size that an autoscaler chose, unless the program has just asked for another."""
        old = self._pools(before) if before else ()
        asked = next((each.desired for each in old if each.name == pool.name), None)
        live = self.machines.size(pool.name)
        if live is None or asked != pool.desired:
            return pool
        return replace(pool, desired=min(max(live, pool.minimum), pool.maximum))
