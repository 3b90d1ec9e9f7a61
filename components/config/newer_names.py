"""Names of the clouds that are newer than the table of `catalog`: accepted with a warning, misspelled names refused.

A new region, location or instance family has the form of the names in the table. A location that is almost a name of
the table is a typo. New GPU instance types are refused: rules need the number and the memory of their GPUs.
"""

import re
from difflib import SequenceMatcher

from cloudfacts import aws, azure
from pydantic import AfterValidator

from components.config import catalog
from components.config.faults import nearest_hint, refusal

_REGION = re.compile(r"(?P<area>[a-z]{2})-(?P<direction>[a-z]+)-[1-9]")
_LOCATION = re.compile(r"(?=.*(north|south|east|west|central))[a-z]{5,}[2-9]?")
_FAMILY = re.compile(r"[cmrtx][1-9][a-z]*(-[a-z0-9]+)?")  # series of CPU machines
_AREAS = frozenset(name.partition("-")[0] for name in aws.REGIONS)
_DIRECTIONS = frozenset(name.split("-")[1] for name in aws.REGIONS)
MAX_SIMILARITY = 0.82
"""difflib's ratio to a location of the table above which a name is a typo: `easteurope` has 0.90 to
`westeurope`, and `finlandcentral`, which could be new, 0.81 to `polandcentral`."""


def _is_newer_region(name: str) -> bool:
    """Return True if a name has the form of an AWS region."""
    match = _REGION.fullmatch(name)
    return match is not None and match["area"] in _AREAS and match["direction"] in _DIRECTIONS


def _is_newer_location(name: str) -> bool:
    """Return True if a name has the form of an Azure location and is not misspelled."""
    if name in azure.LOCATIONS or not _LOCATION.fullmatch(name):
        return False  # locations of the table that a stack cannot name are refused
    if name.rstrip("23456789") in catalog.AZURE_LOCATIONS:
        return True
    similarities = (
        SequenceMatcher(None, name, location).ratio() for location in catalog.AZURE_LOCATIONS
    )
    return max(similarities) <= MAX_SIMILARITY


def _region(name: str) -> str:
    """Check that a region is in the table, or has the form of a newer one."""
    if name in catalog.AWS_REGIONS or _is_newer_region(name):
        return name
    raise refusal("is not a known AWS region", nearest_hint(name, catalog.AWS_REGIONS))


def _location(name: str) -> str:
    """Check that a location is in the table, or has the form of a newer one."""
    if name in catalog.AZURE_LOCATIONS or _is_newer_location(name):
        return name
    raise refusal("is not a known Azure location", nearest_hint(name, catalog.AZURE_LOCATIONS))


def is_newer_type(name: str) -> bool:
    """Return True if a name has the form of a CPU instance type whose family is not in the table."""
    family, _, size = name.partition(".")
    match = _FAMILY.fullmatch(family)
    families = {aws.family(type_name) for type_name in aws.INSTANCE_TYPE_NAMES}
    sizes = {type_name.partition(".")[2] for type_name in aws.INSTANCE_TYPE_NAMES}
    return match is not None and size in sizes and family not in families


REGION, LOCATION = AfterValidator(_region), AfterValidator(_location)


def zones_in(region: str) -> tuple[str, ...]:
    """Return the zones that a region has, or could have if it is newer than the table."""
    return aws.zones(region) or tuple(f"{region}{letter}" for letter in "abcdef")


def lacks_zones(location: str) -> bool:
    """Return True if the table lists the location without availability zones."""
    return location in azure.LOCATIONS and not azure.LOCATIONS[location].has_zones
