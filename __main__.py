"""The Pulumi program: configuration -> components -> outputs."""

import pulumi

from components import config, environment
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
    for name, value in {**place.outputs, **training.outputs}.items():
        pulumi.export(name, value)


main()
