"""The base of all sections of a stack's configuration and the types of their values.

A type checks one value. The modules named `*_rules` check several values together.
"""

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from components.config.faults import refusal
from everstep.catalog import image_reference

PRIVATE_BLOCKS = tuple(
    map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
)
"""RFC 1918, and RFC 6598 (carrier-grade NAT)."""

MAX_TAG_VALUE_LENGTH = 128  # AWS and Azure allow 256; their consoles show fewer
MAX_OBJECT_NAME_LENGTH = 253  # limit of Kubernetes for a DNS subdomain
CREDENTIALS_IN_URL = r"://[^/\s:@]+:[^/\s:@]+@"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OBJECT_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_CIDR = re.compile(r"[0-9.]+/[0-9]{1,2}")
# EKS allows 63 characters for a node group's name; `-system-` has 8, and the AWS provider appends 26.
MAX_CLUSTER_NAME_LENGTH = 29


class Section(BaseModel):
    """The base of all sections: frozen, camelCase as in the stack file, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
    )


def matches_pattern(
    pattern: str, description: str, example: str, max_length: int | None = None
) -> AfterValidator:
    """Return a validator that accepts only strings that match `pattern` as a whole.

    Args:
        pattern: regular expression for the whole string.
        description: kind of string with its article; follows "is not" in the message.
        example: a valid string.
        max_length: maximum number of characters.
    """
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if max_length is not None and len(text) > max_length:
            raise refusal(
                f"has {len(text)} characters; the maximum is {max_length}",
                f"shorten it to {max_length}",
            )
        if not compiled.fullmatch(text):
            raise refusal(f"is not {description}", f"write it as {example}")
        return text

    return AfterValidator(check)


def _is_cidr(text: str) -> str:
    """Check that a string is an IPv4 block with a prefix length and without host bits."""
    fault = refusal("is not a block of IPv4 addresses in CIDR notation", _suggestion(text))
    if not _CIDR.fullmatch(text):  # IPv4Network also accepts a netmask, or no prefix length
        raise fault
    try:
        ipaddress.IPv4Network(text)
    except ValueError:
        raise fault from None
    return text


def _is_private_address(text: str) -> str:
    """Check that a string is a private IPv4 address."""
    fix = "write it as 10.1.0.4"
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise refusal("is not an IPv4 address", fix) from None
    if not any(address in block for block in PRIVATE_BLOCKS):
        raise refusal("is not a private address", fix)
    return text


def has_password(text: str) -> bool:
    """Return True if a text has a URL with a user name and a password; `secrets` reports it without showing it."""
    return re.search(CREDENTIALS_IN_URL, text) is not None


def _is_image(text: str) -> str:
    """Check that a string is an image reference, as containerd reads it."""
    if has_password(text):
        return text
    try:
        image_reference.parse(text)
    except ValueError as error:
        fix = "write it as registry/name:tag or registry/name@sha256:64 hexadecimal digits"
        raise refusal(f"is not an image: {error}", fix) from None
    return text


def is_object_name(text: str) -> bool:
    """Return True if a string is a name of a Kubernetes object: a DNS subdomain."""
    return len(text) <= MAX_OBJECT_NAME_LENGTH and bool(_OBJECT_NAME.fullmatch(text))


def _suggestion(text: str) -> str:
    """Return a fix: the enclosing block if the string is an address, with or without a mask."""
    try:
        interface = ipaddress.IPv4Interface(text)
    except ValueError:
        return "write it as an IPv4 block, such as 203.0.113.0/24 or 10.0.0.0/16"
    return f"did you mean {interface.network}?"


Quantity = Annotated[
    str,
    matches_pattern(
        r"(?=.*[1-9])[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?",
        "a valid Kubernetes quantity above 0",
        "500m, 2Gi or 10G",
    ),
]
_SUFFIXES = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}


def quantity_value(quantity: str) -> float:
    """Return a valid Kubernetes quantity as a number in its base unit: bytes or cores."""
    number = quantity.rstrip("mkKMGTPEi")
    return float(number) * _SUFFIXES[quantity[len(number) :]]


Image = Annotated[str, AfterValidator(_is_image)]
Cidr = Annotated[str, AfterValidator(_is_cidr)]
PrivateAddress = Annotated[str, AfterValidator(_is_private_address)]
ClusterName = Annotated[
    str,
    matches_pattern(
        r"[a-z]([-a-z0-9]*[a-z0-9])?",
        "a name of a cluster: lower-case letters, digits and dashes",
        "everstep-dev",
        max_length=MAX_CLUSTER_NAME_LENGTH,
    ),
]
ObjectName = Annotated[
    str,
    matches_pattern(
        _OBJECT_NAME.pattern,
        "a name of a Kubernetes object: lower-case letters, digits, dashes and dots",
        "shared-data",
        max_length=MAX_OBJECT_NAME_LENGTH,
    ),
]
LabelKey = Annotated[
    str,
    matches_pattern(
        r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
        "a key of a Kubernetes label",
        "example.org/pool",
    ),
]
LabelValue = Annotated[
    str,
    matches_pattern(
        r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?",
        "a value of a Kubernetes label: up to 63 letters, digits, dashes, dots and underscores",
        "gpu-spot",
    ),
]
TagValue = Annotated[
    str,
    matches_pattern(
        r"[\w .:/=+@-]+",
        "a value of a tag: letters, digits, spaces and _.:/=+@-",
        "vision-team",
        max_length=MAX_TAG_VALUE_LENGTH,
    ),
]
NodeCount = Annotated[int, Field(ge=0, le=450)]  # EKS: 450 per node group; AKS: 1000 per pool
DiskGib = Annotated[int, Field(ge=30, le=16384)]  # the minimum for the images of both clouds
