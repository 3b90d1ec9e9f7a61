"""Read the inputs of `everstep plan` from a stack: machines, zones and prices."""

from typing import TYPE_CHECKING

from everstep.capacity.history import HOUR_SECONDS
from everstep.capacity.job import JobModel, Prices
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import StackConfig
    from components.cost import CostItem

DEFAULT_HOURS = 12.0
"""Work of a job by default, in hours of all its machines."""

DISK = "disk of"
"""Beginning of the name of a disk in the cost of a stack."""

MAX_WORK_HOURS = 10_000_000
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


def job_model(config: "StackConfig", stack: str, work_hours: float | None) -> JobModel:
    """Return the job of a stack.

    Args:
        config: the stack's configuration.
        stack: the stack's name.
        work_hours: machine-hours of the whole job; None for the default.

    Raises:
        EverstepError: the work is out of range, the stack has no machines of its own, or a price is unknown.
    """
    machines = wanted_machines(config)
    hours = DEFAULT_HOURS * machines if work_hours is None else work_hours
    if not 0 < hours < MAX_WORK_HOURS:
        raise EverstepError(
            f"--work {hours:g} is outside of what can be planned",
            f"Use the machine-hours of the whole job: more than 0, less than {MAX_WORK_HOURS:,}.",
        )
    return JobModel(
        work=hours * HOUR_SECONDS,
        machines=machines,
        min_machines=min(config.job.min_replicas, machines),
        prices=prices(config, stack),
    )


def prices(config: "StackConfig", stack: str) -> Prices:
    """Return the prices of the stack's machines, the highest where the cloud may choose one of several types.

    Raises:
        EverstepError: the stack has no machines of its own, or a price is unknown.
    """
    from components import cost

    items = cost.estimate(config).items
    disks = [item for item in items if _is_gpu(item) and item.name.startswith(DISK)]
    machines = [item for item in items if _is_gpu(item) and not item.name.startswith(DISK)]
    others = [item for item in items if not _is_gpu(item) and item.count]
    if not machines:
        raise EverstepError(
            f"stack {stack} creates no GPU machines, so there is nothing to buy",
            "Plan a stack of a cloud: everstep plan --stack eks-dev",
        )
    disk = max((item.on_demand or 0.0 for item in disks), default=0.0)
    return Prices(
        spot=max(_known(item, item.spot) for item in machines) + disk,
        on_demand=max(_known(item, item.on_demand) for item in machines) + disk,
        fixed=sum(item.count * (item.on_demand or 0.0) for item in others),
        unknown=tuple(item.name for item in [*disks, *others] if item.on_demand is None),
    )


def _known(item: "CostItem", price: float | None) -> float:
    if price is None:
        raise EverstepError(
            f"no price is known for {item.name}",
            "Set everstep:cost.prices in the stack file: onDemand and spot of each machine type.",
        )
    return price


def _is_gpu(item: "CostItem") -> bool:
    return item.component.startswith("GPU") and "fallback" not in item.component
