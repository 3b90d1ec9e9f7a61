"""The Pulumi program: configuration -> components -> outputs."""

import pulumi

from components import config, environment
from components.cost import estimate
from components.faults import ConfigurationError
from components.stack import TrainingStack, TrainingStackArgs


def main() -> None:
    """Declare the stack that is selected."""
    try:
        said = config.load(pulumi.Config())
        place = environment.declare(said, pulumi.get_stack())
    except ConfigurationError as error:
        raise pulumi.RunError(str(error)) from None  # the user's to put right: no traceback
    training = TrainingStack(
        "training", TrainingStackArgs(config=said, cluster=place.cluster, volume=place.volume)
    )
    outputs = {**place.outputs, **training.outputs, **price(said)}
    if place.registry is not None:
        outputs["registry"] = place.registry
    for name, value in outputs.items():
        pulumi.export(name, value)


def price(said: config.StackConfig) -> dict[str, pulumi.Input[object]]:
    """Give what the stack costs, USD per hour, where it buys anything; the table's date with it."""
    cost = estimate(said)
    if not cost.lines:
        return {}
    both = {"spot": cost.total(spot=True), "onDemand": cost.total(spot=False)}
    shown = {kind: str(total) for kind, total in both.items()}
    return {"usdPerHour": {**shown, "pricesAsOf": cost.as_of}}


main()
