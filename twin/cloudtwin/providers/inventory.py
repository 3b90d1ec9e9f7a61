"""The resources of an account at one moment, read-only. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cloudtwin.providers.protocol.values import Path, PropertyValue


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource of the account.

    Attributes:
        token: type token.
        id: id in the engine's state; unique within a type.
        urn: URN of the program's resource.
        inputs: inputs of the last creation or update, secrets in plain text.
        outputs: outputs that the provider returns.
        acknowledged: True once the engine has received the id. The next creation of the same URN by the same
            process adopts an unacknowledged resource, as a client token does in a real cloud.
        ready: True once the creation has finished. Only ready resources satisfy references and preconditions: no
            node becomes Ready through an add-on that is starting.
        created_at: seconds since the epoch.
        private: values that the cloud does not return as outputs.
        owner: id of the resource with which this one is deleted; empty for none.
    """

    token: str
    id: str
    urn: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    acknowledged: bool = False
    ready: bool = False
    created_at: float = 0.0
    private: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""

    @property
    def name(self) -> str:
        """Name for messages."""
        return str(self.outputs.get("name") or self.id)

    def value(self, key: str) -> str:
        """Return the value that references use: the id or an output."""
        return self.id if key == "id" else str(self.outputs.get(key) or "")


@dataclass(frozen=True)
class Inventory:
    """All resources of one cloud's account."""

    resources: tuple[Resource, ...] = field(default=())

    @property
    def ready(self) -> "Inventory":
        """The resources whose creation has finished."""
        return Inventory(tuple(resource for resource in self.resources if resource.ready))

    @property
    def unfinished(self) -> "Inventory":
        """The resources whose creation has not finished."""
        return Inventory(tuple(resource for resource in self.resources if not resource.ready))

    def all(self, *tokens: str) -> Iterator[Resource]:
        """Yield the resources of these types, or of all types if none is given."""
        return (resource for resource in self.resources if not tokens or resource.token in tokens)

    def where(self, token: str, **inputs: object) -> list[Resource]:
        """Return the resources of a type that have these inputs."""
        return [
            resource
            for resource in self.all(token)
            if all(resource.inputs.get(key) == value for key, value in inputs.items())
        ]

    def find(self, tokens: tuple[str, ...], value: object, key: str = "id") -> Resource | None:
        """Return the resource of one of these types that a value refers to.

        AWS compares ids and ARNs exactly, Azure without regard to case.
        """
        text, lower_case = str(value), str(value).lower()
        return next(
            (
                resource
                for resource in self.all(*tokens)
                if resource.value(key) == text
                or (
                    not resource.token.startswith("aws:")
                    and resource.value(key).lower() == lower_case
                )
            ),
            None,
        )


def items_at(path: str, inputs: PropertyValue) -> list[tuple[Path, PropertyValue]]:
    """Return the values at a path with their own paths; `*` matches every key or index.

    Null values are omitted.
    """
    items: list[tuple[Path, PropertyValue]] = [((), inputs)]
    for step in path.split("."):
        items = [
            next_item
            for path_of_item, item in items
            for next_item in _step(path_of_item, item, step)
        ]
    return [(path_of_item, item) for path_of_item, item in items if item is not None]


def values_at(path: str, inputs: PropertyValue) -> list[PropertyValue]:
    """Return the values at a path; `*` matches every key or index; null values are omitted."""
    return [value for _, value in items_at(path, inputs)]


def _step(path: Path, value: PropertyValue, step: str) -> list[tuple[Path, PropertyValue]]:
    if step == "*":
        if isinstance(value, Mapping):
            return [((*path, key), value[key]) for key in value]
        return (
            [((*path, index), item) for index, item in enumerate(value)]
            if isinstance(value, list)
            else []
        )
    return [((*path, step), value[step])] if isinstance(value, Mapping) and step in value else []
