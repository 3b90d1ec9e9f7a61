"""What all sections of a stack's configuration share: their base and the types of their values.

A type here checks one value by itself and says what it should have been; what must hold between
several values stands in the modules of rules.
"""

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from components.faults import refused

LONGEST_TAG_VALUE = 128  # AWS and Azure take 256; the console of neither shows as many
LONGEST_CLUSTER_NAME = 30  # leaves room in IAM's 64 for a role and in AKS' 63 for the DNS prefix


class Section(BaseModel):
    """What all sections share: frozen, camelCase as in the stack file, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, coerce_numbers_to_str=True
    )


def shaped(pattern: str, what: str, example: str, longest: int | None = None) -> AfterValidator:
    """Make a text field accept only what matches `pattern` whole.

    Args:
        pattern: what the whole text must match.
        what: what the text is, after "is no".
        example: how one looks.
        longest: most characters.
    """
    whole = re.compile(pattern)

    def check(text: str) -> str:
        if longest is not None and len(text) > longest:
            raise refused(f"has {len(text)} characters, and {longest} are the most", "shorten it")
        if not whole.fullmatch(text):
            raise refused(f"is no {what}", f"write it as {example}")
        return text

    return AfterValidator(check)


def _is_cidr(text: str) -> str:
    """Check that a text is an IPv4 block without host bits."""
    try:
        ipaddress.IPv4Network(text)
    except ValueError:
        raise refused("is no block of IPv4 addresses", _meant(text)) from None
    return text


def _meant(text: str) -> str:
    """Say which block was probably meant."""
    try:
        interface = ipaddress.IPv4Interface(text)
    except ValueError:
        return "write it as 10.0.0.0/16"
    return f"did you mean {interface.network}?"


Quantity = Annotated[
    str,
    shaped(
        r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?",
        "quantity of Kubernetes",
        "500m, 2Gi or 10G",
    ),
]
Image = Annotated[str, shaped(r"\S+", "image", "registry/name:tag")]
Cidr = Annotated[str, AfterValidator(_is_cidr)]
ClusterName = Annotated[
    str,
    shaped(
        r"[a-z]([-a-z0-9]*[a-z0-9])?",
        "name of a cluster: lower-case letters, digits and dashes",
        "everstep-dev",
        longest=LONGEST_CLUSTER_NAME,
    ),
]
TagValue = Annotated[
    str,
    shaped(
        r"[\w .:/=+@-]+",
        "value of a tag: letters, digits, spaces and _.:/=+@-",
        "vision-team",
        longest=LONGEST_TAG_VALUE,
    ),
]
NodeCount = Annotated[int, Field(ge=0, le=450)]  # EKS: 450 a node group; AKS: 1000 a pool
DiskGib = Annotated[int, Field(ge=30, le=16384)]  # the images of both clouds ask for 30
