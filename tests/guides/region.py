"""The region of a stack's cloud on the twin, running before the first command of a guide."""

from cloudtwin.progress import Lines

from everstep.cli.engine import cloud_twin
from everstep.cli.engine.context import open_stack


def prepare(stack: str) -> None:
    """Start the region of a stack's cloud on the twin."""
    cloud_twin.prepare(open_stack(stack, twin=True), Lines())
