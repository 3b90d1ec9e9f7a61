"""Protocols between a training loop and its group, and the group of a single process."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from everstep.elastic.data_order.leftover import Span
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.recovery.worker_process import FAILED, end_process
from everstep.elastic.transport.group import RankAssignment
from everstep.elastic.transport.stalls import Stall


@dataclass(frozen=True)
class Votes:
    """Votes of workers about what happens after a step; 0 means no.

    Attributes:
        regroup: number of workers that want to regroup.
        leavers: number of workers whose nodes leave.
        hung: number of workers that report that the storage of the checkpoints hangs.
        stops: number of workers whose program ends the run with the step.
        due: 1 if the checkpoint of the step is due.
        squares: sum of the squares of the gradients, if each worker has a shard of them and they are clipped.
        non_finite: number of shards whose loss or gradients are not finite: no shard is updated.
    """

    regroup: float = 0
    leavers: float = 0
    hung: float = 0
    stops: float = 0
    due: float = 0
    squares: float = 0
    non_finite: float = 0


class TrainingState(Protocol):
    """A training loop's state, as recovery accesses it."""

    def identity(self) -> Mapping[str, str]:
        """Return texts that are equal on compatible workers, by name: program, model, data, settings, shapes."""

    def shared_tensors(self) -> Sequence[torch.Tensor]:
        """Return every tensor that the next step depends on, in the same order on all workers."""

    def restore(self, committed: StepProgress) -> int:
        """Load the newest checkpoint or initialize the state, on one worker only; return the completed steps.

        Args:
            committed: the newest committed checkpoint, whose files may not be visible in the storage yet.
        """

    def restored_generation(self) -> int:
        """Return the generation of the checkpoint that `restore` has loaded; 0 if it has loaded none."""

    def restore_shard(self, step: int, generation: int) -> None:
        """Load this worker's shard of a checkpoint that another worker of the node has restored.

        Args:
            step: completed steps.
            generation: result of `restored_generation` there.
        """

    def watch_reading(self, on_hung: Callable[[str], object]) -> AbstractContextManager[None]:
        """Return a context manager for `restore`: `on_hung` is called with a reason if the storage hangs."""

    def adopt(self, step: int, computed_units: tuple[Span, ...], *, keeps_units: bool) -> None:
        """Record that the tensors now have the values after `step` completed steps.

        Args:
            step: completed steps.
            computed_units: units of the next step that all workers together have computed.
            keeps_units: whether this worker's own units are among them; if not, it must discard them.
        """

    def computed_units(self) -> tuple[Span, ...]:
        """Return this worker's units of the step in flight, in at most `copying.MAX_COMPUTED_SPANS` spans."""

    def roll_back(self) -> bool:
        """Undo the changes of an unapplied step in the tensors; return True if its gradients are kept."""

    def save_detached(self) -> None:
        """Start a checkpoint: this worker is in no group, and its node leaves."""

    def flush(self) -> None:
        """Return once no write is in progress. Called from a separate thread."""

    def note_stall(self, stall: Stall) -> None:
        """Record a long wait for other workers, or its end. Called from a separate thread."""


class Group(Protocol):
    """A training loop's interface to its group."""

    @property
    def generation(self) -> int:
        """The current or last generation of this worker."""

    @property
    def leaving(self) -> bool:
        """True if this worker's own node leaves."""

    @property
    def is_regroup_requested(self) -> bool:
        """True if a node joins or leaves, so that the loop should stop after a step that all agree on."""

    @property
    def regroup_reason(self) -> str:
        """Reason for the regroup or for the last loss of the group, for messages."""

    def join(self, state: TrainingState) -> RankAssignment:
        """Wait for a generation and join it with the state that all its members have."""

    def handle_group_loss(self, reason: str) -> None:
        """Roll back and leave the group after a failed collective."""

    def agree(self, votes: Votes) -> Votes:
        """Return the votes that count for all workers, before a step is applied; raise PeerLostError if one is gone.

        Args:
            votes: votes from the step's all-reduce, and this worker's opinion whether a checkpoint is due.
        """

    def agree_in_node(self, key: str, text: str) -> str:
        """Return the text of the node's first worker on all of its workers; `key` is used once in a generation."""

    def next_snapshot(self) -> str:
        """Return the name of the next snapshot, equal on all workers of this node; empty if they have no shards."""

    def regroup_votes(self) -> tuple[float, float]:
        """Return this worker's votes for the next all-reduce: to regroup, and that its node leaves.

        The group remembers the second one: see rule 7 of the state machine.
        """

    def after_all_reduce(self, votes: Votes, apply: Callable[[], None]) -> bool:
        """Apply a step whose all-reduce is complete; return True if the workers regroup now.

        Args:
            votes: the sums of the workers' votes, from the same all-reduce.
            apply: function that runs the optimizer.
        """

    def handle_epoch_end(self) -> None:
        """Record that the callbacks at the end of an epoch have changed the state, which is now more advanced."""

    def handle_agreement(self, leavers: float) -> None:
        """Record that the workers have agreed to regroup outside a step, for instance in an evaluation.

        Args:
            leavers: number of workers whose nodes leave, from the same sum.
        """

    def check(self, min_age_seconds: float = 0.0) -> None:
        """Raise PeerLostError if the group was aborted at least `min_age_seconds` ago."""

    def commit(self, snapshot_generation: int, step: int, run: str = "") -> bool:
        """Commit the snapshot of a step; return False if it is refused or the response does not arrive in time."""

    def give_up(self, reason: str) -> None:
        """Stop this worker, which hangs while the others wait for it, so that another node continues its work."""

    def report_completion(self, summary: str) -> None:
        """Announce to all agents that the run is complete."""

    def report_loop_end(self, *, is_complete: bool) -> None:
        """Report to the agent that the training loop is over: code after it may still run.

        Args:
            is_complete: whether the run is complete; False if the program left the loop early.
        """

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
    _state: TrainingState | None = None

    def join(self, state: TrainingState) -> RankAssignment:
        """Restore the state at the first call."""
        if self._state is None:
            with state.watch_reading(lambda reason: end_process(reason, FAILED)):
                step = state.restore(StepProgress())
            state.adopt(step, (), keeps_units=True)
        self._state = state
        return RankAssignment.single()

    def handle_group_loss(self, reason: str) -> None:
        """Roll back: the step is computed again."""
        del reason
        if self._state is not None:
            self._state.roll_back()

    def agree(self, votes: Votes) -> Votes:
        """Return the votes: there are no other workers."""
        return votes

    def agree_in_node(self, key: str, text: str) -> str:
        """Return the text: there are no other workers."""
        del key
        return text

    def next_snapshot(self) -> str:
        """Return an empty name."""
        return ""

    def regroup_votes(self) -> tuple[float, float]:
        """Return zeros: there is no agent that wants to regroup."""
        return float(self.is_regroup_requested), float(self.leaving)

    def after_all_reduce(self, votes: Votes, apply: Callable[[], None]) -> bool:
        """Apply the step."""
        del votes
        apply()
        return False

    def handle_epoch_end(self) -> None:
        """Do nothing: there are no other workers."""

    def handle_agreement(self, leavers: float) -> None:
        """Do nothing: there are no other workers."""
        del leavers

    def check(self, min_age_seconds: float = 0.0) -> None:
        """Do nothing: there is no peer to lose."""
        del min_age_seconds

    def commit(self, snapshot_generation: int, step: int, run: str = "") -> bool:
        """Return True: no other process writes."""
        del snapshot_generation, step, run
        return True

    def give_up(self, reason: str) -> None:
        """Do nothing: no other worker waits for this one."""

    def report_completion(self, summary: str) -> None:
        """Do nothing: there are no agents."""

    def report_loop_end(self, *, is_complete: bool) -> None:
        """Do nothing: there are no agents."""
        del is_complete

    def report_failure(self, reason: str) -> None:
        """Do nothing: there are no agents."""

    def report_incompatibility(self, reason: str) -> None:
        """Do nothing: there are no agents."""
