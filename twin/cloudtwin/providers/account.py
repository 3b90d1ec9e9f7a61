"""The account of one cloud: its resources, stored between commands.

One file, because a decision such as "is a resource left in this subnet" reads all of it; a few hundred
kilobytes are read and written in milliseconds. A file lock serializes the changes by several engines' providers
and by the twin's own processes.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from cloudtwin import files, owned_folders
from cloudtwin.providers.inventory import Inventory, Resource


class Account:
    """The account of one cloud in one twin. Safe for many threads and processes."""

    def __init__(self, state: Path, cloud: str) -> None:
        """Open the account; nothing is written before the first change.

        Args:
            state: folder of the twin.
            cloud: aws or azure-native.
        """
        self.folder = state / "cloud"
        self.path = self.folder / f"account-{cloud}.json"
        self._lock = self.folder / "lock"
        self._thread_lock = threading.Lock()

    def read(self) -> Inventory:
        """Return the current resources; an account that was never written is empty."""
        document = files.read_json(self.path) or {}
        return Inventory(tuple(Resource(**resource) for resource in document.get("resources", ())))

    @contextmanager
    def transaction(self) -> Iterator["Transaction"]:
        """Lock the account while the block reads and changes it; an exception discards the changes."""
        owned_folders.mark_new(self.folder.parent)
        with self._thread_lock, files.locked(self._lock):
            initial = self.read()
            transaction = Transaction(initial)
            yield transaction
            if transaction.inventory is not initial:
                resources = [asdict(resource) for resource in transaction.inventory.resources]
                files.write_json(self.path, {"resources": resources}, files.PRIVATE)


class Transaction:
    """A change of the account; `inventory` has the resources after the change."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory

    def put(self, resource: Resource) -> Resource:
        """Add a resource, or replace the resource with the same type and id."""
        self.remove(resource)
        self.inventory = Inventory((*self.inventory.resources, resource))
        return resource

    def remove(self, resource: Resource) -> None:
        """Remove a resource."""
        key = (resource.token, resource.id)
        remaining = (other for other in self.inventory.resources if (other.token, other.id) != key)
        self.inventory = Inventory(tuple(remaining))

    def acknowledge(self, resource: Resource) -> None:
        """Record that the engine has received the id of a resource."""
        self.put(replace(resource, acknowledged=True))
