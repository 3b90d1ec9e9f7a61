"""`everstep return`: returns a machine to the cluster."""

from everstep.cli.commands.options import DEFAULT_STACK, NodeName, Stack
from everstep.cli.console import progress
from everstep.cli.engine.context import open_running_stack


def return_node(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Return a drained or vanished node to the cluster."""
    context = open_running_stack(stack)
    with progress().step(f"Returning {context.check_node(node)}"):
        context.twin().return_node(node)
