"""A training loop's interface to its group, and the process's connection to the node's agent."""

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Protocol

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.accounting.journal import flush_all
from everstep.elastic.transport import channel

if TYPE_CHECKING:
    from everstep.elastic.recovery.live_worker import TrainingState
    from everstep.elastic.transport.group import RankAssignment

RESTART = 75
"""Exit code of a worker that requests a restart in the next generation (EX_TEMPFAIL)."""

FAILED = 76
"""Exit code of a worker whose failure a restart would repeat; the agent has the reason."""

LAST_LINES_SECONDS = 0.5
"""Time for the last lines of the journal before a process ends itself; its disk may hang."""


class Group(Protocol):
    """A training loop's interface to its group."""

    @property
    def generation(self) -> int:
        """The generation that this worker is in."""

    @property
    def leaving(self) -> bool:
        """Whether this worker's own node leaves."""

    @property
    def is_regroup_requested(self) -> bool:
        """Whether a node joins or leaves, so that the loop should stop after a step that all agree on."""

    @property
    def regroup_reason(self) -> str:
        """The node that joins, leaves or was lost, as a message."""

    def join(self, state: "TrainingState") -> "RankAssignment":
        """Wait for a generation and join it with the state that all its members have."""

    def handle_loss(self, reason: str) -> None:
        """Roll back and leave the group after a failed collective."""

    def after_sum(self, votes: float, apply: Callable[[], None]) -> bool:
        """Apply a step whose sum has arrived; return whether the workers regroup now.

        Args:
            votes: number of workers that want to regroup, from the same sum.
            apply: function that runs the optimizer.
        """

    def handle_agreement(self) -> None:
        """Record that the workers have agreed to regroup outside a step, for instance in an evaluation."""

    def check(self, min_age_seconds: float = 0.0) -> None:
        """Raise PeerLostError if the group was aborted at least `min_age_seconds` ago."""

    def commit(self, snapshot_generation: int, step: int, run: str = "") -> bool:
        """Commit the snapshot of a step; return False if it is fenced out."""

    def report_completion(self, summary: str) -> None:
        """Announce to all agents that the run is complete."""

    def report_failure(self, reason: str) -> None:
        """Announce to all agents that the run has failed permanently."""

    def report_incompatibility(self, reason: str) -> None:
        """Report to the agent that this node cannot train with the others; their run continues."""


class SingleProcessGroup:
    """The group of a process that no agent started: no peers, and every commit is allowed."""

    generation = 0
    leaving = False
    is_regroup_requested = False
    regroup_reason = ""
    _state: "TrainingState | None" = None

    def join(self, state: "TrainingState") -> "RankAssignment":
        """Restore the state at the first call."""
        # The agent's processes import this module, too, and need no torch.
        from everstep.elastic.recovery.state_machine import StepProgress
        from everstep.elastic.transport.group import RankAssignment

        if self._state is None:
            with state.watch_reading(lambda reason: end_process(reason, FAILED)):
                step = state.restore(StepProgress())
            state.adopt(step, (), keeps_units=True)
        self._state = state
        return RankAssignment.single()

    def handle_loss(self, reason: str) -> None:
        """Roll back: the step is computed again."""
        del reason
        if self._state is not None:
            self._state.roll_back()

    def after_sum(self, votes: float, apply: Callable[[], None]) -> bool:
        """Apply the step."""
        del votes
        apply()
        return False

    def handle_agreement(self) -> None:
        """Do nothing: there are no other workers."""

    def check(self, min_age_seconds: float = 0.0) -> None:
        """Do nothing: there is no peer to lose."""
        del min_age_seconds

    def commit(self, snapshot_generation: int, step: int, run: str = "") -> bool:
        """Return True: no other process writes."""
        del snapshot_generation, step, run
        return True

    def report_completion(self, summary: str) -> None:
        """Do nothing: there are no agents."""

    def report_failure(self, reason: str) -> None:
        """Do nothing: there are no agents."""

    def report_incompatibility(self, reason: str) -> None:
        """Do nothing: there are no agents."""


def end_process(reason: str, code: int = RESTART) -> NoReturn:
    """Exit immediately, even inside a collective that waits for a dead peer."""
    purpose = ", to start again" if code == RESTART else ""
    with contextlib.suppress(OSError):  # not the logging module: the main thread may hold its lock
        os.write(2, f"worker {os.getpid()} ends{purpose}: {reason}\n".encode())
    flush_all(LAST_LINES_SECONDS)
    os._exit(code)


def connect_to_agent() -> channel.MessageStream | None:
    """Connect to the agent that started this process; return None if no agent did.

    If the agent has died meanwhile, end this process, which would otherwise be a second writer or wait for peers
    that never connect.
    """
    path = os.environ.get(AGENT_VARIABLE)
    if not path:
        return None
    try:
        return channel.connect(path)
    except OSError as error:
        end_process(f"the node's agent is gone ({error})")
