"""Read the inputs of `everstep plan` from a stack: machines, zones and prices."""

from typing import TYPE_CHECKING

from everstep.capacity.job import Prices
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import StackConfig
    from components.cost import CostItem

MAX_ZONES = 3
"""Zones of the published traces that histories are fitted to."""


def wanted_machines(config: "StackConfig") -> int:
    """Return the machines that the job's group wants, one for each worker."""
    job = config.job
    return job.max_replicas if job.scaling == "capacity" else job.replicas


def zone_names(config: "StackConfig") -> tuple[str, ...]:
    """Return the names of up to three zones of the stack."""
    zones = tuple(str(zone) for zone in getattr(config.cluster, "zones", ()))
    return zones[:MAX_ZONES] or tuple(f"zone-{number + 1}" for number in range(MAX_ZONES))


def prices(config: "StackConfig", stack: str) -> Prices:
    """Return the prices of the stack's machines, the highest where the cloud may choose one of several types.

    Raises:
        EverstepError: the stack has no machines of its own, or a price is unknown.
    """
    from components import cost

    items = cost.estimate(config).items
    machines = [item for item in items if _is_gpu(item) and not item.name.startswith("disk")]
    if not machines:
        raise EverstepError(
            f"stack {stack} creates no GPU machines, so there is nothing to buy",
            "Plan a stack of a cloud: everstep plan --stack eks-dev",
        )
    disk = max(
        (item.on_demand or 0.0 for item in items if _is_gpu(item) and item.name.startswith("disk")),
        default=0.0,
    )
    spot = [item.spot for item in machines]
    on_demand = [item.on_demand for item in machines]
    if None in spot or None in on_demand:
        unknown = ", ".join(
            item.name for item in machines if item.spot is None or item.on_demand is None
        )
        raise EverstepError(
            f"no price is known for {unknown}",
            "Set everstep:cost.prices in the stack file: the price of each machine type, onDemand and spot.",
        )
    fixed = sum(item.count * (item.on_demand or 0.0) for item in items if not _is_gpu(item))
    return Prices(
        spot=max(price for price in spot if price is not None) + disk,
        on_demand=max(price for price in on_demand if price is not None) + disk,
        fixed=fixed,
    )


def _is_gpu(item: "CostItem") -> bool:
    return item.component.startswith("GPU") and "fallback" not in item.component
