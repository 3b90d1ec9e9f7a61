"""Holds a resource against its record: names, enums, rules, references, demands. Pure."""

import ipaddress
from collections.abc import Collection, Iterator, Mapping, Sequence

from twin.clouds.errors import CloudError
from twin.clouds.model import Making, Reference, ResourceType, Rule
from twin.clouds.watched import Watch
from twin.clouds.wire.check import Mistake, one_of
from twin.clouds.world import Resource, World, values_at
from twin.pulumi.provider.convert import Path, Plain, Unknown, parse_path


def faults(kind: ResourceType, inputs: Mapping[str, Plain]) -> Iterator[Mistake]:
    """List what a service would refuse, as far as the inputs alone tell."""
    naming = kind.naming
    if naming is not None:
        name = inputs.get(naming.property)
        if isinstance(name, str) and len(name) > naming.longest:
            said = f"{name!r} has {len(name)} characters, {naming.longest} are allowed"
            yield Mistake((naming.property,), said)
    for path, choices in kind.enums.items():
        for value in values_at(path, inputs):
            if not isinstance(value, Unknown):
                yield from one_of(list(choices), value, parse_path(path))
    for rule in kind.rules:
        for mistake in verdict(rule, inputs):
            yield Mistake(mistake.path, f"{mistake.reason} ({rule.source})")


def verdict(rule: Rule, inputs: Mapping[str, Plain]) -> list[Mistake]:
    """Return what a rule says; nothing where it would have to know what is not known yet."""
    watch = Watch()
    found = list(rule.broken(watch.over(inputs)))
    return [] if watch.met_unknown else found


def at(path: str, reason: str) -> Mistake:
    """Return a mistake at a path written as text."""
    where: Path = parse_path(path)
    return Mistake(where, reason)


# RFC 1918 and RFC 6598: ranges from which nobody comes over the Internet. Not is_private: to Python
# the ranges of documentation are private too, and these are what examples are written with.
PRIVATE = tuple(
    ipaddress.IPv4Network(each)
    for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)


def is_private(block: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    """Tell whether a block cannot be reached, or be come from, over the Internet."""
    return isinstance(block, ipaddress.IPv4Network) and any(block.subnet_of(p) for p in PRIVATE)


def lies_in(inner: object, outer: object) -> bool:
    """Tell whether one block of addresses is part of another; what is no block is part of none."""
    try:
        one, other = ipaddress.ip_network(str(inner)), ipaddress.ip_network(str(outer))
    except ValueError:
        return False
    if isinstance(one, ipaddress.IPv4Network) and isinstance(other, ipaddress.IPv4Network):
        return one.subnet_of(other)
    both = isinstance(one, ipaddress.IPv6Network) and isinstance(other, ipaddress.IPv6Network)
    return both and one.network_address in other and one.prefixlen >= other.prefixlen


def known(value: Plain) -> bool:
    """Tell whether a value is there and not yet to come."""
    return value is not None and not isinstance(value, Unknown)


def require(kind: ResourceType, making: Making) -> None:
    """Refuse a resource that its account cannot hold.

    Raises:
        CloudError: in the service's own words, naming the first fault.
    """
    for reference in kind.references:
        _require_there(kind, reference, making)
    for demand in kind.demands:
        for reason in demand.broken(making):
            raise CloudError(demand.code, f"{reason} ({demand.source})")


def _require_there(kind: ResourceType, reference: Reference, making: Making) -> None:
    for value in values_at(reference.path, making.inputs):
        if str(value).startswith(reference.own or ("\0",)):
            continue
        if making.world.find(reference.to, str(value), reference.by) is None:
            what = " or ".join(sorted(each.rpartition(":")[2] for each in reference.to))
            raise CloudError(
                reference.code,
                f"{reference.path} of this {kind.token.rpartition(':')[2]} names the {what} "
                f"{str(value)!r}, which does not exist in the account",
            )


def require_unique(kind: ResourceType, making: Making, identity: str, world: World) -> None:
    """Refuse a second resource of one name, id or address.

    Args:
        kind: its record.
        making: what is to be made.
        identity: the id that it would have.
        world: all of the account, also what is still being made.

    Raises:
        CloudError: the account has one already.
    """
    for other in world.all(kind.token):
        same_id = other.id.lower() == identity.lower()
        if same_id or (kind.unique and _key(kind, other.inputs) == _key(kind, making.inputs)):
            what = kind.token.rpartition(":")[2]
            raise CloudError(
                kind.unique_code,
                f"the {what} {other.id!r} exists already, made for {other.urn.rpartition('::')[2]!r}"
                "; import it, or give this one another name",
            )


def _key(kind: ResourceType, inputs: Mapping[str, Plain]) -> tuple[str, ...]:
    return tuple(repr(values_at(path, inputs)) for path in kind.unique)


def release(
    kind: ResourceType,
    types: Mapping[str, ResourceType],
    gone: Resource,
    world: World,
    going: Collection[tuple[str, str]],
) -> None:
    """Refuse to let a resource go that others need.

    Args:
        kind: its record.
        types: all records of the cloud.
        gone: the resource.
        world: the account.
        going: types and ids of all that goes with it, which does not count.

    Raises:
        CloudError: in the service's own words, naming what holds it.
    """
    for hold in kind.holds:
        for reason in hold.broken(gone, world):
            raise CloudError(hold.code, f"{reason} ({hold.source})")
    for other in world.all():
        if (other.token, other.id) in going:
            continue
        for reference in types[other.token].references if other.token in types else ():
            if reference.holds and _names(reference, other, gone):
                what = other.token.rpartition(":")[2]
                raise CloudError(
                    reference.holds,
                    f"{gone.id} cannot be deleted: the {what} {other.id} still uses it "
                    f"({reference.path})",
                )


def _names(reference: Reference, other: Resource, gone: Resource) -> bool:
    if gone.token not in reference.to or (other.token, other.id) == (gone.token, gone.id):
        return False
    values: Sequence[Plain] = values_at(reference.path, other.inputs)
    return any(str(value).lower() == gone.value(reference.by).lower() for value in values)
