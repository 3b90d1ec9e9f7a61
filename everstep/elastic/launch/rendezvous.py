"""The launcher's rendezvous, which also gives up on a program that cannot start.

torchrun restarts all workers of a node if one ends before it has joined a group. The launcher sets
torchrun's own limit so high that it never applies, because each change of the group counts as a restart.
"""

import time

from torch.distributed.elastic.rendezvous.api import RendezvousInfo

from everstep.elastic.membership.rendezvous import EtcdV3Handler
from everstep.errors import EverstepError

PAUSES_SECONDS = (1.0, 2.0, 4.0)
"""Pauses before the second and each later consecutive start of workers that did not join a group."""


class NodeFailedError(EverstepError):
    """The program does not start on this node, although the run has committed a step on others."""


class ProgramFailedError(EverstepError):
    """The program does not start, and the run has not committed a step on any node."""


class LauncherRendezvous(EtcdV3Handler):
    """One node's agent, which gives up if its workers keep ending before they join a group."""

    _failed_starts = -1
    _last_assignment: object = None

    def next_rendezvous(self) -> RendezvousInfo:
        """Let torchrun start the workers.

        Raises:
            NodeFailedError: the workers keep ending before they join a group; the run has committed a step.
            ProgramFailedError: the workers keep ending before they join a group; no step is committed.
        """
        assignment = self._workers.assignment
        self._failed_starts = self._failed_starts + 1 if assignment is self._last_assignment else 0
        self._last_assignment = assignment
        if self._failed_starts > len(PAUSES_SECONDS):
            raise self._failure()
        if self._failed_starts > 0 and not self.outcome:
            time.sleep(PAUSES_SECONDS[self._failed_starts - 1])
        return super().next_rendezvous()

    def _failure(self) -> EverstepError:
        message = (
            f"the workers ended {self._failed_starts} consecutive times before they joined the run; "
            "see their output above for the reason"
        )
        if self._agent.committed.step:
            return NodeFailedError(
                message, "The run has progressed on other nodes: replace this one."
            )
        return ProgramFailedError(message, "Correct the program or its arguments.")
