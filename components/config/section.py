"""What all sections of a stack's configuration share: their base and the types of their values.

A type here checks one value by itself and says what it should have been; what must hold between
several values stands in the modules of rules.
"""

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from components.faults import refused

LONGEST_TAG_VALUE = 128  # AWS and Azure take 256; the console of neither shows as many
LONGEST_CLUSTER_NAME = 30  # leaves room in IAM's 64 for a role and in AKS' 63 for the DNS prefix


class Section(BaseModel):
    """What all sections share: frozen, camelCase as in the stack file, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, coerce_numbers_to_str=True
    )


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
        return "write one such as 10.0.0.0/16"
    return f"did you mean {interface.network}?"


Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")]
Image = Annotated[str, StringConstraints(min_length=1, pattern=r"^\S+$")]
Cidr = Annotated[str, AfterValidator(_is_cidr)]
ClusterName = Annotated[
    str,
    StringConstraints(
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=LONGEST_CLUSTER_NAME, min_length=1
    ),
]
TagValue = Annotated[
    str,
    StringConstraints(pattern=r"^[\w .:/=+@-]+$", max_length=LONGEST_TAG_VALUE, min_length=1),
]
NodeCount = Annotated[int, Field(ge=0, le=1000)]  # AKS: 1000 a pool; EKS: 450, less is a rule
DiskGib = Annotated[int, Field(ge=30, le=16384)]  # the images of both clouds ask for 30
