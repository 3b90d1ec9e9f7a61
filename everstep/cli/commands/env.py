"""`everstep env`: prints the environment to use pulumi and kubectl by hand."""

import os
import shlex

from everstep.cli.commands.options import DEFAULT_STACK, OnTwin, Stack
from everstep.cli.console import results
from everstep.cli.engine.context import open_running_stack
from everstep.cli.engine.driver import engine_environment, user_environment
from everstep.cli.engine.target import Target
from everstep.progress import Silent


def env(*, stack: Stack = DEFAULT_STACK, twin: OnTwin = False) -> None:
    """Print the exports for using pulumi and kubectl by hand: eval "$(everstep env)"."""
    context = open_running_stack(stack, twin=twin)
    engine = context.engine(Silent())
    workspace, kubeconfig = context.workspace, context.kubeconfig()
    if context.target is Target.CLOUD:
        own_variables = user_environment(workspace)
    else:
        own_variables = engine_environment(workspace, kubeconfig)
    variables = dict(engine.environment)
    if kubeconfig is not None:  # Pulumi needs none on a cloud of the twin, but kubectl does
        variables["KUBECONFIG"] = str(kubeconfig)
    for name, value in sorted(variables.items()):
        if name in own_variables or os.environ.get(name) != value:
            results.print(f"export {name}={shlex.quote(value)}", markup=False)
