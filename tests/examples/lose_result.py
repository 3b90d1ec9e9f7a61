"""Run an example of a sharded model, and lose a node in an agreement whose result reaches one worker of the other node.

    python lose_result.py FOLDER SCRIPT [ARGUMENT...]

The workers of node n0 stop after their part in the agreement, until the test kills them. On node n1 the first worker
receives the result; the second one loses its connection. FOLDER remembers that this has happened.
"""

import itertools
import os
import runpy
import sys
import threading
from pathlib import Path

import torch

from everstep.catalog.names import POD_NAME_VARIABLE
from everstep.elastic.recovery.sharded_worker import GroupWithSubgroups
from everstep.elastic.transport.abortable_group import AbortableGroup
from everstep.elastic.transport.group import PeerLostError

AGREEMENTS = 20
"""Agreements before the lost one, one for each step."""


def lose_result(folder: Path) -> None:
    """Make the sums over all workers, which are agreements, lose a result."""
    sums = itertools.count(1)
    node, worker = os.environ[POD_NAME_VARIABLE], os.environ["LOCAL_RANK"]
    mark = folder / f"{node}-{worker}"

    def sum_over_all(group: GroupWithSubgroups, tensor: torch.Tensor) -> None:
        AbortableGroup.sum(group, tensor)
        if next(sums) <= AGREEMENTS or mark.exists():
            return
        mark.touch()
        if node == "n0":
            threading.Event().wait()
        if worker == "1":
            raise PeerLostError("the connection is lost before the result arrives")

    GroupWithSubgroups.sum = sum_over_all  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _, marks, script, *arguments = sys.argv
    lose_result(Path(marks))
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
