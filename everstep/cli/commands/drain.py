"""`everstep drain`: evicts the pods of a machine."""

from everstep.cli.commands.options import DEFAULT_STACK, NodeName, Stack
from everstep.cli.console import progress
from everstep.cli.engine.context import open_running_stack


def drain(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Cordon a node and evict its pods, as for maintenance or after a spot notice."""
    context = open_running_stack(stack)
    with progress().step(f"Draining {context.check_node(node)}"):
        context.twin().drain(node)
