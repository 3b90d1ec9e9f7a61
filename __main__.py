"""The Pulumi program: reads the configuration, declares the components and exports the outputs.

With EVERSTEP_PART=registry it declares only the registry, to which images are pushed before the first `up`, and
refuses a stack that has other resources. `everstep up --target registry` sets EVERSTEP_PART=registry-targets: the
program then declares only the registry for any stack, because Pulumi's `--target` options keep the other resources.
"""

import pulumi

from components import config, registry_phase
from components.config.faults import ConfigurationError
from components.cost import estimate
from components.environment import declare, declare_registry
from components.job import job_stack
from components.platform import image_pull
from components.registry_phase import Part
from components.stack import TrainingStack, TrainingStackArgs


def main() -> None:
    """Declare the selected stack."""
    try:
        stack_config = config.load(pulumi.Config())
        for warning in config.warnings(stack_config):
            pulumi.log.warn(warning)
        if (platform := stack_config.platform_stack) is not None:
            pulumi.run(lambda: job_stack.declare(stack_config, platform))
            return
        if (part := registry_phase.declared_part()) is not Part.WHOLE:
            if part is Part.REGISTRY:
                registry_phase.check_new_stack()
            pulumi.export("registry", declare_registry(stack_config, pulumi.get_stack()))
            return
        users = stack_config.platform.registry_logins
        logins = image_pull.logins(users, pulumi.Config(image_pull.PASSWORDS)) if users else ()
        environment = declare(stack_config, pulumi.get_stack())
    except ConfigurationError as error:
        raise pulumi.RunError(str(error)) from None  # for the user to fix: no traceback
    training = TrainingStack(
        "training",
        TrainingStackArgs(
            config=stack_config,
            cluster=environment.cluster,
            volume=environment.volume,
            logins=logins,
            data_access=environment.data_access,
        ),
    )
    outputs = {**environment.outputs, **training.outputs, **price(stack_config)}
    if environment.registry is not None:
        outputs["registry"] = environment.registry
    for name, value in outputs.items():
        pulumi.export(name, value)


def price(stack_config: config.StackConfig) -> dict[str, pulumi.Input[object]]:
    """Return the estimated price in USD per hour and the date of the prices; empty if free."""
    cost = estimate(stack_config)
    if not cost.items:
        return {}
    totals = {"spot": cost.total(spot=True), "onDemand": cost.total(spot=False)}
    per_hour = {kind: str(total) for kind, total in totals.items()}
    return {"usdPerHour": {**per_hour, "pricesAsOf": cost.as_of}}


main()
