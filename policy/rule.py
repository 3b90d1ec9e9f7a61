"""What a rule is, and what it sees: pure, so that a test needs neither engine nor SDK.

The pack (`policy.pack`) turns rules into Pulumi's policies; each module of rules beside this one
holds one subject.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Properties = Mapping[str, Any]


class Level(StrEnum):
    """How hard a violation is."""

    MANDATORY = "mandatory"
    ADVISORY = "advisory"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource, as the engine is about to make it.

    Attributes:
        type: its token, such as `aws:eks/nodeGroup:NodeGroup`.
        properties: its inputs, named as on the wire; reading one that is not known yet raises.
        stack: name of the stack.
        protect: whether Pulumi refuses to delete it.
        default_tags: tags that its provider adds to everything.
    """

    type: str
    properties: Properties
    stack: str = "dev"
    protect: bool = False
    default_tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags it will carry."""
        return {**self.default_tags, **(self.properties.get("tags") or {})}

    @property
    def in_production(self) -> bool:
        """Whether it belongs to production: by its tag, else by the name of its stack."""
        return self.tags.get("environment", "") == "prod" or self.stack.endswith("prod")


Check = Callable[[Resource], Iterable[str]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What must hold for each resource of some types.

    Attributes:
        name: as `--policy-pack-config` and reports call it.
        description: the rule and its reason, in one sentence.
        types: tokens of the resources that it looks at.
        check: gives what is wrong and how to put it right; nothing where all is well.
        level: whether a violation stops the run; `--policy-pack-config` can change it.
    """

    name: str
    description: str
    types: frozenset[str]
    check: Check
    level: Level = Level.MANDATORY

    def violations(self, resource: Resource) -> Iterator[str]:
        """Give what is wrong with a resource; nothing for one that the rule does not look at."""
        if resource.type in self.types:
            yield from self.check(resource)
