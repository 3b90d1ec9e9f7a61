"""`everstep node ...`: adds, removes and disrupts individual machines of the twin."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from everstep.cli.commands.options import DEFAULT_STACK, NodeName, OnTwin, Stack
from everstep.cli.console import progress
from everstep.cli.engine.context import machine_names, open_running_stack
from everstep.cli.twin_settings import gpu_machine, system_machine
from everstep.errors import EverstepError

RENAMED_COMMANDS = {"mend": "reconnect"}
"""Former names of commands, and the names to suggest for them."""


class NodeGroup(TyperGroup):
    """The group `everstep node`, which suggests the new name of a renamed command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  typer exports no types
        """Return the command to run; end with a usage error if there is no such command."""
        if args and args[0] in RENAMED_COMMANDS:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{RENAMED_COMMANDS[args[0]]}'?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=NodeGroup, no_args_is_help=True, help="Add, remove or disrupt machines of the twin."
)


@app.command()
def add(
    node: NodeName,
    stack: Stack = DEFAULT_STACK,
    role: Annotated[str, typer.Option(help="gpu or system.")] = "gpu",
    gpus: Annotated[int, typer.Option(min=0, help="Number of GPUs.")] = 1,
) -> None:
    """Start another machine and let it join the cluster."""
    from cloudtwin.facade import Role

    context = open_running_stack(stack)
    context.require_own_project()
    twin = context.twin()
    if node in machine_names(twin):
        raise EverstepError(f"a node named {node} already exists", "Choose another name.")
    if role not in set(Role):
        raise EverstepError(f"{role!r} is not a valid role", f"Valid roles: {', '.join(Role)}.")
    spec = gpu_machine(node, gpus) if role == Role.GPU else system_machine(node)
    twin.add(spec, progress())


@app.command()
def remove(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Remove a machine from the cluster permanently."""
    context = open_running_stack(stack)
    with progress().step(f"Removing {context.check_node(node)}"):
        context.twin().remove(node)


@app.command()
def freeze(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Suspend every process of a machine without ending it; `thaw` resumes it."""
    context = open_running_stack(stack)
    with progress().step(f"Freezing {context.check_node(node)}"):
        context.twin().freeze(node)


@app.command()
def thaw(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Resume a frozen machine."""
    context = open_running_stack(stack)
    with progress().step(f"Thawing {context.check_node(node)}"):
        context.twin().thaw(node)


@app.command()
def cut(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Disconnect a machine from the network; `reconnect` undoes it."""
    context = open_running_stack(stack)
    with progress().step(f"Disconnecting {context.check_node(node)}"):
        context.twin().cut(node)


@app.command()
def reconnect(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Reconnect a machine that was cut off."""
    context = open_running_stack(stack)
    with progress().step(f"Reconnecting {context.check_node(node)}"):
        context.twin().reconnect(node)


@app.command()
def reclaim(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of spot machines.")],
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    notice: Annotated[
        float, typer.Option(min=0, help="Seconds from the cloud's notice to the loss.")
    ] = 30.0,
    return_after: Annotated[
        float, typer.Option(min=0, help="Seconds until the cloud has such machines again.")
    ] = 0.0,
) -> None:
    """Reclaim spot machines as their cloud does: give a notice, then remove them.

    Azure gives notice 30 seconds ahead, AWS 120. Several machines are reclaimed at the same moment. Their pool
    starts replacements, immediately or when the cloud has capacity again.
    """
    from cloudtwin.facade import reclaim as reclaim_machines

    context = open_running_stack(stack, twin=twin)
    machines = [context.check_node(node) for node in nodes]
    unavailable = notice + return_after if return_after else None
    with progress().step(f"Reclaiming {', '.join(machines)} within {notice:g} s"):
        reclaim_machines(context.workspace.state, machines, notice, unavailable)
