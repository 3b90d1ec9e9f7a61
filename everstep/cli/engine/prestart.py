"""The start of the Pulumi program before the engine requests its run: its imports overlap the engine's start."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from everstep.cli.engine.context import StackContext
from everstep.cli.engine.target import Target

PROGRAM_MODULES = ("components.stack", "components.job.job_stack", "components.cost")
"""Modules that the program imports for every stack."""

ENVIRONMENT_MODULES = {
    "eks": "components.aws.environment",
    "aks": "components.azure.environment",
    "existing": "components.existing.environment",
}
"""Modules that the program imports for one kind of cluster, by that kind."""


def prestarted_program(context: StackContext) -> AbstractContextManager[Mapping[str, str]]:
    """Return a context manager that yields the variables through which the twin's language host finds the program.

    There are none for a real cloud: its official language host starts the program.
    """
    if context.target is Target.CLOUD:
        return nullcontext({})
    from cloudtwin.facade import prestarted_program

    modules = [*PROGRAM_MODULES, ENVIRONMENT_MODULES[context.config.cluster.kind]]
    return prestarted_program(context.workspace.project, modules)
