"""Checks from which the rows of rule tables are built. Pure.

A value check takes one known value and returns the reason for a refusal, or None. `value_rule` converts it
to an input rule; `matches`, `in_range`, `one_of_values` and `cidr` return value checks.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cloudtwin.providers.inventory import items_at
from cloudtwin.providers.model import InputRule, Inputs, ValueCheck
from cloudtwin.providers.protocol.values import PropertyValue, Unknown, parse_path
from cloudtwin.providers.schema.check import CheckFailure

Block = ipaddress.IPv4Network | ipaddress.IPv6Network

# Kubernetes documentation, "Labels and Selectors", syntax and character set.
LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LABEL_PREFIX = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
)

# RFC 1918 and RFC 6598: ranges that are not routed over the Internet. Not the `is_private` of `ipaddress`: it
# includes the documentation ranges, which examples use.
PRIVATE_NETWORKS = tuple(
    ipaddress.IPv4Network(network)
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)


def value_rule(name: str, path: str, check: ValueCheck, source: str) -> InputRule:
    """Return the rule that applies a check to every value at a path, such as `taints.*.key`."""

    def violations(inputs: Inputs) -> Iterator[CheckFailure]:
        for location, value in items_at(path, inputs):
            if reason := check(value):
                yield CheckFailure(location, reason)

    return InputRule(name, source, violations)


def failure_at(path: str, reason: str) -> CheckFailure:
    """Return a failure at a path in text form."""
    return CheckFailure(parse_path(path), reason)


def is_known(value: PropertyValue) -> bool:
    """Return True if a value is set and not unknown."""
    return value is not None and not isinstance(value, Unknown)


def objects_at(path: str, inputs: Inputs) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the objects in a top-level list with their paths in text form."""
    value = inputs.get(path)
    elements = enumerate(value) if isinstance(value, list) else ()
    return [(f"{path}[{index}]", item) for index, item in elements if isinstance(item, Mapping)]


def label_error(key: object, value: object) -> str | None:
    """Return the reason why a label is not valid in Kubernetes; None if it is valid."""
    prefix, slash, name = str(key).rpartition("/")
    if not LABEL_NAME.fullmatch(name) or (slash and not LABEL_PREFIX.fullmatch(prefix)):
        return (
            f"{key!r} is not a valid label key: up to 63 letters, digits, '-', '_' and '.', with a letter or digit at "
            "both ends, after an optional DNS name and '/'"
        )
    if isinstance(value, str) and value and not LABEL_NAME.fullmatch(value):
        return (
            f"{value!r} is not a valid label value: up to 63 letters, digits, '-', '_' and '.', with a letter or "
            "digit at both ends"
        )
    return None


def section(inputs: Inputs, *steps: str) -> Mapping[str, Any]:
    """Return a nested object; an absent object is empty."""
    value: Any = inputs
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def matches(pattern: str, requirement: str, flags: int = 0) -> ValueCheck:
    """Return a check that text matches a pattern; `requirement` completes the message."""
    regex = re.compile(pattern, flags)

    def check(value: PropertyValue) -> str | None:
        fits = not isinstance(value, str) or regex.fullmatch(value)
        return None if fits else f"{value!r} {requirement}"

    return check


def in_range(low: float, high: float, unit: str) -> ValueCheck:
    """Return a check that a number is in a range, inclusive."""

    def check(value: PropertyValue) -> str | None:
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and not low <= value <= high
        ):
            return f"{value} {unit}: {low} to {high} are allowed"
        return None

    return check


def one_of_values(*choices: PropertyValue) -> ValueCheck:
    """Return a check that a value is one of a few choices, all of which the message lists."""

    def check(value: PropertyValue) -> str | None:
        choice_list = ", ".join(map(str, choices))
        return None if value in choices else f"{value!r} is not one of {choice_list}"

    return check


def block_of(text: object) -> Block | None:
    """Return an address block; None if the text is not a block."""
    try:
        return ipaddress.ip_network(str(text))
    except ValueError:
        return None


def block_error(text: str) -> str | None:
    """Return the reason why text is not an address block; None if it is valid."""
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        return f"{text!r} is not a valid CIDR block: {error}"
    return None


def cidr(min_prefix: int = 0, max_prefix: int = 128, version: int = 0) -> ValueCheck:
    """Return a check that text is a block with a prefix length in a range.

    Args:
        min_prefix: minimum prefix length.
        max_prefix: maximum prefix length.
        version: IP version of the block, 4 or 6; 0 for either.
    """

    def check(value: PropertyValue) -> str | None:
        if not isinstance(value, str):
            return None
        if reason := block_error(value) or (
            "" if "/" in value else f"{value!r} has no prefix length"
        ):
            return reason
        block = ipaddress.ip_network(value)
        if version and block.version != version:
            return f"{value} is not an IPv{version} block"
        if not min_prefix <= block.prefixlen <= max_prefix:
            return f"{value} is not a block between /{min_prefix} and /{max_prefix}"
        return None

    return check


def public_range(value: PropertyValue) -> str | None:
    """Return the reason why text is not a range of public addresses; None if it is valid."""
    if not isinstance(value, str):
        return None
    block = block_of(value)
    if block is None:
        return block_error(value)
    if is_private(block):
        return f"{value} is a private range, from which no client reaches a public endpoint"
    return None


def is_private(block: Block) -> bool:
    """Return True if a block is in one of PRIVATE_NETWORKS; False for IPv6."""
    return isinstance(block, ipaddress.IPv4Network) and any(
        block.subnet_of(p) for p in PRIVATE_NETWORKS
    )


def lies_in(inner: object, outer: object) -> bool:
    """Return True if one address block is part of another; False if either is not a block."""
    inner_block, outer_block = block_of(inner), block_of(outer)
    if inner_block is None or outer_block is None or inner_block.version != outer_block.version:
        return False
    return (
        inner_block.network_address in outer_block
        and inner_block.prefixlen >= outer_block.prefixlen
    )


def overlap(block: object, other_block: object) -> bool:
    """Return True if two address blocks overlap; False if either is not a block."""
    return lies_in(block, other_block) or lies_in(other_block, block)
