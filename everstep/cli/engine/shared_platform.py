"""Checks between a stack with a platform and the stacks whose jobs run on it.

Outside real clouds all of them have their state in one folder; in a real cloud it is in the user's backend. A platform
that was not brought up is reported here only on the twin; elsewhere Pulumi itself reports it.
"""

from collections.abc import Mapping
from dataclasses import replace

from everstep.cli.engine.context import StackContext
from everstep.cli.engine.driver import Deployment, read_deployment, state_file
from everstep.cli.engine.target import Target
from everstep.errors import EverstepError

STACK_REFERENCE = "pulumi:pulumi:StackReference"


def require_platform(context: StackContext) -> None:
    """Check that the stack of the platform was brought up, if it is on the twin.

    Raises:
        EverstepError: the stack of the platform has no state.
    """
    platform = context.platform
    if platform is None or not context.on_twin or state_file(platform.workspace).exists():
        return
    name = platform.workspace.stack
    raise EverstepError(
        f"stack {context.workspace.stack}: platformStack.name is {name}, which is not up on the twin",
        f"Bring it up first: everstep up --stack {name} --detach{_twin_option(platform)}",
    )


def platform_of_job(context: StackContext) -> str | None:
    """Return the stack on whose platform the job of a stack runs; None if the stack has its own platform.

    The state has it too, since a stack file may have become invalid.
    """
    if context.platform is not None:
        return context.platform.workspace.stack
    return next(iter(referenced_stacks(read_deployment(context.workspace))), None)


def local_deployments(context: StackContext) -> dict[str, Deployment]:
    """Return the states of the other stacks in the same state folder, by name."""
    state_path = state_file(context.workspace)
    names = [file.stem for file in state_path.parent.glob("*.json") if file != state_path]
    states = {name: read_deployment(replace(context.workspace, stack=name)) for name in names}
    return {name: state for name, state in states.items() if state is not None}


def refuse_while_shared(context: StackContext, others: Mapping[str, Deployment]) -> None:
    """Check that no other stack has a job on the platform of this stack.

    Args:
        context: the stack to destroy.
        others: states of the other stacks of the same backend, by name.

    Raises:
        EverstepError: there are such stacks; nothing was changed.
    """
    stack = context.workspace.stack
    job_stacks = sorted(name for name, state in others.items() if stack in referenced_stacks(state))
    if not job_stacks:
        return
    option = _twin_option(context)
    commands = "\n".join(f"everstep down --stack {name}{option}" for name in job_stacks)
    raise EverstepError(
        f"nothing was destroyed: jobs of other stacks use the platform of {stack}: {', '.join(job_stacks)}",
        f"Take them down first:\n{commands}",
    )


def referenced_stacks(deployment: Deployment | None) -> list[str]:
    """Return the names of the stacks whose outputs a stack read, from its state; empty without state."""
    resources = (deployment or {}).get("resources") or ()
    ids = [
        str(resource.get("id")) for resource in resources if resource.get("type") == STACK_REFERENCE
    ]
    return [reference.rpartition("/")[2] for reference in ids]


def _twin_option(context: StackContext) -> str:
    """Return ` --twin` for commands on a cloud of the twin; empty on any other target."""
    return " --twin" if context.target is Target.TWIN_CLOUD else ""
