"""The zones of a job with their prices, and the timeouts and intervals of its moves, from an annotation.

The Pulumi program writes only the zones and their prices. Errors are values, like errors of the spec.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from everstep.catalog.names import PLACEMENT_ANNOTATION, ZONE_LABEL

LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
PRICES = "usdPerHour"
CEILINGS = "maxUsdPerHour"
PATH = f"metadata.annotations[{PLACEMENT_ANNOTATION}]"


@dataclass(frozen=True, kw_only=True)
class PlacementSettings:
    """The zones of a job with their prices and the timeouts and intervals of its moves.

    Attributes:
        zones: values of the nodes' zone label, in order of preference.
        start_seconds: time after which a zone is assumed to have no machine for a worker without a node.
        short_seconds: time with too few machines after which other zones are tried.
        further_node_seconds: time without a further node for a placeholder after which a zone's offer is complete.
        retry_seconds: time after which a zone that offered too few machines is tried again.
        move_interval_seconds: minimum time between two moves.
        join_seconds: maximum time for which the old zone's workers wait for a running worker of the new zone to join.
        move_seconds: time after which a move is abandoned, or continues although not all its workers run.
        usd_per_hour: price of one spot machine in each zone; a zone is absent if its price is unknown.
        max_usd_per_hour: price above which a zone is not entered; a zone is absent without a ceiling.
    """

    zones: tuple[str, ...]
    start_seconds: float = 300.0
    short_seconds: float = 600.0
    further_node_seconds: float = 120.0
    retry_seconds: float = 1800.0
    move_interval_seconds: float = 3600.0
    join_seconds: float = 300.0
    move_seconds: float = 900.0
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    max_usd_per_hour: Mapping[str, float] = field(default_factory=dict)

    def admits(self, zone: str) -> bool:
        """Return True if a zone has no price ceiling, or a price that is not above it."""
        ceiling = self.max_usd_per_hour.get(zone, inf)
        return ceiling == inf or self.usd_per_hour.get(zone, inf) <= ceiling


def read_settings(text: str | None) -> tuple[PlacementSettings | None, tuple[str, ...]]:
    """Parse the annotation; return the settings and no errors, or None and all errors."""
    if text is None:
        return None, ()
    try:
        source = json.loads(text)
    except ValueError:
        source = None
    if not isinstance(source, Mapping):
        return None, (
            f'{PATH} is {text!r}; set it to a JSON object such as {{"zones": ["us-east-1a"]}}',
        )
    errors = (
        *_errors_of_zones(source.get("zones")),
        *_errors_of_prices(PRICES, source.get(PRICES, {}), source.get("zones")),
        *_errors_of_prices(CEILINGS, source.get(CEILINGS, {}), source.get("zones")),
        *_errors_of_times(source),
    )
    if errors:
        return None, errors
    times = {name: float(source[key]) for key, name in _times().items() if key in source}
    prices, ceilings = (
        {zone: float(price) for zone, price in source.get(key, {}).items()}
        for key in (PRICES, CEILINGS)
    )
    settings = PlacementSettings(
        zones=tuple(source["zones"]), usd_per_hour=prices, max_usd_per_hour=ceilings, **times
    )
    return settings, ()


def _times() -> dict[str, str]:
    """Return the field for each key: `short_seconds` for `shortSeconds`."""
    names = [item.name for item in fields(PlacementSettings) if item.name.endswith("_seconds")]
    return {_camel(name): name for name in names}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _errors_of_zones(zones: object) -> tuple[str, ...]:
    names = zones if isinstance(zones, list) else []
    if not names or not all(isinstance(name, str) and name for name in names):
        return (f"{PATH}.zones is {zones!r}; set it to a list of at least one zone",)
    if len(set(names)) < len(names):
        return (f"{PATH}.zones is {zones!r}; name each zone once",)
    return tuple(
        f"{PATH}.zones has {name!r}; a zone is a value of the label {ZONE_LABEL}, such as us-east-1a"
        for name in names
        if not LABEL_VALUE.fullmatch(name)
    )


def _errors_of_prices(key: str, prices: object, zones: object) -> tuple[str, ...]:
    if not isinstance(prices, Mapping):
        return (
            f'{PATH}.{key} is {prices!r}; set it to an object such as {{"us-east-1a": 0.5}}, or leave it out',
        )
    names = zones if isinstance(zones, list) else []
    return (
        *(
            f"{PATH}.{key} has a price for {zone!r}, which is not in {PATH}.zones; add the zone or remove its price"
            for zone in prices
            if zone not in names
        ),
        *(
            f"{PATH}.{key}[{zone!r}] is {price!r}; set it to a price in USD per hour, greater than 0 and less than "
            "1e9, or leave it out"
            for zone, price in prices.items()
            if not _is_number(price) or price == 0
        ),
    )


def _errors_of_times(source: Mapping[str, Any]) -> tuple[str, ...]:
    times = _times()
    valid_keys = ["zones", PRICES, CEILINGS, *times]
    unknown = [key for key in source if key not in valid_keys]
    return (
        *(f"{PATH}.{key} is unknown; use {', '.join(valid_keys)}" for key in unknown),
        *(
            f"{PATH}.{key} is {source[key]!r}; set it to a number of seconds, at least 0 and less than 1e9, "
            "or leave it out"
            for key in times
            if key in source and not _is_number(source[key])
        ),
    )


def _is_number(value: object) -> bool:
    """Return True for a number of at least 0 and less than 1e9."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
