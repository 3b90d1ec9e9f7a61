"""`everstep vanish`: loses a machine without notice."""

from everstep.cli.commands.options import DEFAULT_STACK, NodeName, Stack
from everstep.cli.console import progress
from everstep.cli.engine.context import open_running_stack


def vanish(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Lose a node without notice: cut its network link, then kill everything on it."""
    context = open_running_stack(stack)
    with progress().step(f"Losing {context.check_node(node)} without notice"):
        context.twin().vanish(node)
