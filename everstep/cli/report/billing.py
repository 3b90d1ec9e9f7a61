"""How a stack is paid for: its prices per hour, split into training machines and everything else."""

from typing import TYPE_CHECKING

from everstep.cli.engine.target import Target
from everstep.cli.report.money import Billing, Rates

if TYPE_CHECKING:
    from components.config import StackConfig
    from components.cost import Cost

NOT_BILLED = {
    Target.TWIN: "the twin's machines are namespaces of one computer",
    Target.TWIN_CLOUD: "a twin on one computer stood in for the cloud",
    Target.OWN_CLUSTER: "the stack ran on a cluster of your own and bought no machine",
}
"""Why a run on these targets costs nothing."""

GPU_POOL = "GPU pool"
"""Beginning of the component of training machines in a cost estimate."""


def billing_of(config: "StackConfig", target: Target) -> Billing:
    """Return how the run of a stack is paid for."""
    from components import cost

    rates = rates_of(cost.estimate(config))
    reason = NOT_BILLED.get(target, "")
    return Billing(billed=not reason, reason=reason, rates=rates)


def rates_of(estimate: "Cost") -> Rates | None:
    """Return the prices of an estimate; None if the stack buys nothing."""
    bought = [item for item in estimate.items if item.count]
    if not bought:
        return None
    machine = [item for item in bought if item.component.startswith(GPU_POOL)]
    others = [item for item in bought if item not in machine]
    return Rates(
        machine=_sum([item.spot for item in machine]),
        machine_on_demand=_sum([item.on_demand for item in machine]),
        fixed=sum(item.count * item.on_demand for item in others if item.on_demand is not None),
        as_of=estimate.as_of,
        unknown=tuple(dict.fromkeys(item.name for item in bought if item.spot is None)),
        notes=estimate.notes,
    )


def _sum(prices: list[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return sum(known) if known and len(known) == len(prices) else None
