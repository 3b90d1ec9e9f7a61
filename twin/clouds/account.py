"""The account of one cloud: what was made in it, kept between commands.

One file, because a decision such as "is anything still in this subnet" looks at all of it; a few
hundred kilobytes are read and written in milliseconds. Whoever changes it holds a lock of the
kernel's, which also keeps apart the providers of two engines and the twin's own processes.
"""

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from twin.clouds.world import Resource, World
from twin.nodes import files

PRIVATE = 0o600


class Account:
    """The account of one cloud in one twin. Safe for many threads and processes."""

    def __init__(self, state: Path, cloud: str) -> None:
        """Open the account; nothing is written before the first change.

        Args:
            state: the twin's folder.
            cloud: aws or azure-native.
        """
        self.folder = state / "cloud"
        self.path = self.folder / f"account-{cloud}.json"
        self._lock = self.folder / "lock"
        self._threads = threading.Lock()

    def read(self) -> World:
        """Return the account as it stands; an account that was never written to is empty."""
        stored = files.read_json(self.path) or {}
        return World(tuple(Resource(**each) for each in stored.get("resources", ())))

    @contextmanager
    def changing(self) -> Iterator["Change"]:
        """Hold the account while the block decides and changes; an exception changes nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._threads, self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.read()
            change = Change(before)
            yield change
            if change.world is not before:
                resources = [asdict(each) for each in change.world.resources]
                files.write_json(self.path, {"resources": resources}, PRIVATE)


class Change:
    """A change of the account that is being decided."""

    def __init__(self, world: World) -> None:
        self.world = world

    def put(self, resource: Resource) -> Resource:
        """Add a resource, or take it in place of the one with its type and id."""
        others = [each for each in self.world.resources if not _same(each, resource)]
        self.world = World((*others, resource))
        return resource

    def remove(self, resource: Resource) -> None:
        """Forget a resource."""
        others = tuple(each for each in self.world.resources if not _same(each, resource))
        self.world = World(others)

    def answered(self, resource: Resource) -> None:
        """Note that the engine knows of a resource."""
        self.put(replace(resource, answered=True))


def _same(one: Resource, other: Resource) -> bool:
    return (one.token, one.id) == (other.token, other.id)
