"""`everstep node ...`: machines of the twin, one by one."""

from typing import Annotated

import typer

from everstep.cli.access import machine_names, place_to_look
from everstep.cli.commands.options import DEFAULT_STACK, NodeName, Stack
from everstep.cli.commands.spot import act
from everstep.cli.console import progress
from everstep.errors import EverstepError

app = typer.Typer(no_args_is_help=True, help="Add, remove or trouble machines of the twin.")


@app.command()
def add(
    node: NodeName,
    stack: Stack = DEFAULT_STACK,
    role: Annotated[str, typer.Option(help="gpu or system.")] = "gpu",
    gpus: Annotated[int, typer.Option(min=0, help="GPUs to offer.")] = 1,
) -> None:
    """Start one more machine and let it join the cluster."""
    from twin.nodes import MachineSpec, Role

    twin = place_to_look(stack).twin()
    if node in machine_names(twin):
        raise EverstepError(f"there is a node named {node} already", "Choose another name.")
    if role not in set(Role):
        raise EverstepError(f"no role is named {role!r}", f"There are: {', '.join(Role)}.")
    twin.add(MachineSpec(node, Role(role), gpus), progress())


@app.command()
def remove(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Take a machine out of the cluster for good."""
    here = place_to_look(stack)
    act(f"Removing {here.node(node)}", here.twin().remove, node)


@app.command()
def freeze(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Stop every process of a machine without ending it; `thaw` lets it go on."""
    here = place_to_look(stack)
    act(f"Freezing {here.node(node)}", here.twin().freeze, node)


@app.command()
def thaw(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Let a frozen machine go on."""
    here = place_to_look(stack)
    act(f"Thawing {here.node(node)}", here.twin().thaw, node)


@app.command()
def cut(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Cut a machine's network link; `mend` joins it again."""
    here = place_to_look(stack)
    act(f"Cutting {here.node(node)} off", here.twin().cut, node)


@app.command()
def mend(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Join a machine's network link again."""
    here = place_to_look(stack)
    act(f"Mending the link of {here.node(node)}", here.twin().mend, node)


@app.command()
def reclaim(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="Spot machines' names.")],
    *,
    stack: Stack = DEFAULT_STACK,
    notice: Annotated[
        float, typer.Option(min=0, help="Seconds between the cloud's notice and the end.")
    ] = 30.0,
    return_after: Annotated[
        float, typer.Option(min=0, help="Seconds until the cloud has machines like these again.")
    ] = 0.0,
) -> None:
    """Take spot machines as their cloud does: a notice, and after so many seconds they are gone.

    Azure says so 30 seconds ahead, AWS 120. Several are taken at the same moment. Their pool makes
    others, at once or when the cloud has room again.
    """
    from twin.clouds import capacity

    here = place_to_look(stack)
    taken = [here.node(node) for node in nodes]
    room_in = notice + return_after if return_after else None
    with progress().step(f"Reclaiming {', '.join(taken)} within {notice:g} s"):
        capacity.reclaim(here.workspace.state, taken, notice, room_in)
