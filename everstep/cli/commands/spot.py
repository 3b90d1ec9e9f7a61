"""Evict machines and bring them back: `everstep drain`, `vanish`, `return`."""

from collections.abc import Callable

from everstep.cli.access import place_to_look
from everstep.cli.commands.options import DEFAULT_STACK, NodeName, Stack
from everstep.cli.console import progress


def drain(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Cordon a node and evict its pods, as for maintenance or after a spot notice."""
    here = place_to_look(stack)
    act(f"Draining {here.node(node)}", here.twin().drain, node)


def vanish(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Let a node vanish without a word: its link goes down, then everything on it is killed."""
    here = place_to_look(stack)
    act(f"Taking {here.node(node)} away", here.twin().vanish, node)


def come_back(node: NodeName, stack: Stack = DEFAULT_STACK) -> None:
    """Bring a drained or vanished node back."""
    here = place_to_look(stack)
    act(f"Bringing {here.node(node)} back", here.twin().come_back, node)


def act(what: str, verb: Callable[[str], object], node: str) -> None:
    """Do something to a machine, with progress."""
    with progress().step(what):
        verb(node)
