"""Rules and the resources that they check; tests need neither the engine nor the SDK.

The pack (`policy.pack`) turns rules into Pulumi's policies; each of the other modules
contains the rules about one subject.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from everstep.catalog.names import PRODUCTION

Properties = Mapping[str, Any]

NOT_PRODUCTION = ("preprod", "pre-prod", "nonprod", "non-prod")


class Level(StrEnum):
    """Enforcement level of a rule."""

    MANDATORY = "mandatory"
    ADVISORY = "advisory"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource before the engine creates it.

    Attributes:
        type: token of its type, such as `aws:eks/nodeGroup:NodeGroup`.
        properties: its inputs under their schema names; reading an input that is unknown in a preview raises an error.
        stack: name of the stack.
        protect: whether Pulumi refuses to delete it.
        default_tags: tags that its provider adds to all resources.
    """

    type: str
    properties: Properties
    stack: str = "dev"
    protect: bool = False
    default_tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def tags(self) -> Mapping[str, str]:
        """Its tags, including the provider's default tags."""
        return {**self.default_tags, **(self.properties.get("tags") or {})}

    @property
    def in_production(self) -> bool:
        """Whether it belongs to production: by its tag, or by the name of its stack."""
        has_production_name = self.stack.endswith(PRODUCTION) and not self.stack.endswith(
            NOT_PRODUCTION
        )
        return has_production_name or self.tags.get("environment") == PRODUCTION


Check = Callable[[Resource], Iterable[str]]


@dataclass(frozen=True, kw_only=True)
class PolicyRule:
    """A rule for all resources of some types.

    Attributes:
        name: identifier in `--policy-pack-config` and in reports.
        description: the rule and its reason, in one sentence.
        types: tokens of the resources that it checks.
        check: function that yields the violations of a resource, each with its fix.
        level: whether a violation stops the run; `--policy-pack-config` can change it.
    """

    name: str
    description: str
    types: frozenset[str]
    check: Check
    level: Level = Level.MANDATORY

    def violations(self, resource: Resource) -> Iterator[str]:
        """Yield the violations of a resource; none for a type that the rule does not cover."""
        if resource.type in self.types:
            yield from self.check(resource)
