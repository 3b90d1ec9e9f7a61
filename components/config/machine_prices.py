"""The price of a machine: from the stack's configuration, else from the price table."""

from collections.abc import Mapping

from cloudfacts import prices

from components.config.platform import PriceConfig


def machine_price(
    machine: str, region: str, overrides: Mapping[str, PriceConfig]
) -> prices.MachinePrice:
    """Return the prices of a machine type in a region, in USD per hour; an unknown price is None."""
    if machine in overrides:
        return prices.MachinePrice(
            on_demand=overrides[machine].on_demand, spot=overrides[machine].spot
        )
    return prices.machine(machine, region)
