"""What the twin knows of a resource type beyond the SDK, as one record per type. Pure.

Words: a *rule* looks at the inputs alone, so it speaks at preview; a *demand* looks at the account
too, so it speaks when the resource is made; a *reference* names another resource, which must be
there and, if it *holds*, cannot go before this one.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from twin.clouds.acting import Endpoint
from twin.clouds.wire.check import Mistake
from twin.clouds.world import Resource, World
from twin.pulumi.provider.convert import Plain

if TYPE_CHECKING:
    from twin.clouds.capacity import Pool

Inputs: TypeAlias = Mapping[str, Any]
Outputs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the provider was configured with.

    Attributes:
        cloud: aws or azure-native.
        region: AWS region or Azure location; empty where none was given.
        tags: what AWS puts on every resource.
    """

    cloud: str
    region: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Making:
    """A resource that is being made or changed.

    Attributes:
        inputs: as checked, without unknowns.
        settings: of the provider.
        world: the account as it stands.
        entropy: random hexadecimal digits, for a new id. Whatever else a service invents comes from
            the id, so that it stays the same for as long as the resource lives.
        id: empty while it is not yet identified.
        made_at: seconds since the epoch.
        before: the resource as it stands, where it is being changed.
    """

    inputs: Inputs
    settings: Settings
    world: World
    entropy: str
    id: str = ""
    made_at: float = 0.0
    before: Resource | None = None

    def digits(self, what: str, length: int) -> str:
        """Return hexadecimal digits that belong to the resource, a different row for each purpose."""
        return hashlib.sha256(f"{self.id}/{what}".encode()).hexdigest()[:length]

    @property
    def region(self) -> str:
        """Where the resource is: its own region or location, else the provider's."""
        own = self.inputs.get("region" if self.settings.cloud == "aws" else "location")
        return str(own or self.settings.region)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a service demands of the inputs alone.

    Attributes:
        name: unique among all rules; tests have a passing and a failing case under it.
        source: where the service says so.
        broken: names the faults. What it says after it met an unknown does not count.
    """

    name: str
    source: str
    broken: Callable[[Inputs], Iterable[Mistake]]


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What a service demands of the account when a resource is made or changed.

    Attributes:
        name: unique among all demands.
        source: where the service says so.
        code: the service's word for the refusal.
        broken: names the faults.
    """

    name: str
    source: str
    code: str
    broken: Callable[[Making], Iterable[str]]


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Why a service lets a resource not go, beyond what refers to it."""

    name: str
    source: str
    code: str
    broken: Callable[[Resource, World], Iterable[str]]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A property that names other resources.

    Attributes:
        path: where the values stand: `vpcConfig.subnetIds.*`, where * is every key or position.
        to: tokens of the types that may be meant.
        by: `id`, or the output that is named.
        code: the service's word where nothing of that name is there.
        holds: the service's word where the named one is asked to go first; empty where it may.
        own: values that the cloud itself owns, by prefix: they are always there.
    """

    path: str
    to: tuple[str, ...]
    by: str = "id"
    code: str = "NotFound"
    holds: str = ""
    own: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Naming:
    """The property that names a resource, and what names may be.

    Attributes:
        property: as on the wire.
        longest: characters; the source stands beside each record.
        automatic: whether the provider invents a name where none is given.
    """

    property: str = "name"
    longest: int = 255
    automatic: bool = True


def nothing(making: Making) -> Outputs:  # noqa: ARG001  the signature of ResourceType.describe
    """Describe a resource that the service adds nothing to."""
    return {}


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """One resource type, as the service behind it sees it.

    Attributes:
        token: as the engine names it.
        identify: makes the id, in the form of the real provider.
        describe: what the service adds to the inputs: addresses, ARNs, states.
        defaults: what the service fills in where the program says nothing.
        naming: None where it bears no name.
        immutable: paths whose change needs a new resource.
        enums: path -> values, where the SDK has none.
        unique: inputs that no two resources may share, and the service's word where they do.
        parent: the ARM id that must be there first; empty where there is none.
        brings: what the service makes beside it, such as a cluster's security group.
        alone: names what only one write at a time may change; a second one beside it is refused.
        drivers: the storage drivers that it brings to the cluster.
        cluster: adds to a cluster's outputs how it is reached; None where this is no cluster.
        pools: the machines that it stands for.
        resized: the inputs as the service would answer them now, when an autoscaler has given pools,
            by name, another size, and the service has added what it imposes.
    """

    token: str
    identify: Callable[[Making], str]
    describe: Callable[[Making], Outputs] = nothing
    defaults: Mapping[str, Plain] = field(default_factory=dict)
    naming: Naming | None = None
    immutable: tuple[str, ...] = ()
    enums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    demands: tuple[Demand, ...] = ()
    holds: tuple[Hold, ...] = ()
    references: tuple[Reference, ...] = ()
    unique: tuple[str, ...] = ()
    unique_code: str = "AlreadyExists"
    parent: Callable[[str], str] | None = None
    brings: Callable[[Resource, World], Iterable[Resource]] | None = None
    alone: Callable[[Inputs], str] | None = None
    alone_code: str = ""
    drivers: Callable[[Inputs], Sequence[str]] | None = None
    cluster: Callable[[Resource, Endpoint], Outputs] | None = None
    pools: Callable[[Resource, World], Sequence["Pool"]] | None = None
    resized: Callable[[Inputs, Mapping[str, int]], Inputs] | None = None
