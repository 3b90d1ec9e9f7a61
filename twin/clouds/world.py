"""The account at one moment, for reading. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from twin.pulumi.provider.convert import Plain


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A resource of the account.

    Attributes:
        token: its type.
        id: as the engine knows it; unique within a type.
        urn: of the program's resource that it was made for.
        inputs: those that it was last made or changed from, in clear.
        outputs: what the provider answers.
        answered: whether the engine was told that it exists. One that it was not told of is taken
            up again by the next creation for the same URN, as a client token does in a real cloud.
        ready: whether its creation is over. What is still being made, or failed, does not count for
            what needs it: an add-on that is coming up makes no node Ready.
        made_at: seconds since the epoch.
        notes: what the cloud keeps to itself.
        owner: the id of the resource that it goes with; empty where it goes alone.
    """

    token: str
    id: str
    urn: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    answered: bool = False
    ready: bool = False
    made_at: float = 0.0
    notes: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""

    @property
    def name(self) -> str:
        """Its last name, for messages."""
        return str(self.outputs.get("name") or self.id)

    def value(self, by: str) -> str:
        """Return what others name it by: its id or an output."""
        return self.id if by == "id" else str(self.outputs.get(by) or "")


@dataclass(frozen=True)
class World:
    """All resources of one cloud's account."""

    resources: tuple[Resource, ...] = field(default=())

    @property
    def ready(self) -> "World":
        """What of it can be relied on."""
        return World(tuple(each for each in self.resources if each.ready))

    def all(self, *tokens: str) -> Iterator[Resource]:
        """Yield the resources of these types; of all types where none is named."""
        return (each for each in self.resources if not tokens or each.token in tokens)

    def find(self, tokens: tuple[str, ...], value: str, by: str = "id") -> Resource | None:
        """Return the resource of one of these types that a value names.

        Azure's ids have no case, and no other value differs in case alone.
        """
        wanted = value.lower()
        return next((each for each in self.all(*tokens) if each.value(by).lower() == wanted), None)


def values_at(path: str, inputs: Plain) -> list[Plain]:
    """List what stands at a path; `*` goes through every key or position, and null is nothing."""
    found = [inputs]
    for step in path.split("."):
        found = [below for each in found for below in _step(each, step)]
    return [each for each in found if each is not None]


def _step(value: Plain, step: str) -> list[Plain]:
    if step == "*":
        if isinstance(value, Mapping):
            return list(value.values())
        return list(value) if isinstance(value, list) else []
    return [value[step]] if isinstance(value, Mapping) and step in value else []
