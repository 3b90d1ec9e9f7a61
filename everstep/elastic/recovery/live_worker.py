"""A worker that survives changes of its group: it carries out the actions of `state_machine`.

A training loop uses it like this:

    group = attach_live(device)
    while not done:
        assignment = group.join(state)   # waits for a generation, connects, takes the common state
        try:
            train until group.after_all_reduce(...) returns True: the workers regroup
        except PeerLostError as error:
            group.handle_group_loss(str(error))       # rolls back; join again

Two threads: only the training loop's thread changes the state machine; another thread receives
the agent's messages. The second thread responds to pings, passes on assignments and responses, sets flags,
ends the process, and aborts the process group, which wakes the training loop.
"""

import itertools
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch._C._distributed_c10d import Store
from torch.distributed import get_node_local_rank

from everstep.elastic.accounting.time_account import Activity, TimeAccount
from everstep.elastic.recovery import copying
from everstep.elastic.recovery.compatibility import check_group
from everstep.elastic.recovery.state_machine import (
    Action,
    Apply,
    Assigned,
    AwaitRestored,
    Committed,
    Compare,
    Compared,
    Confirm,
    Confirmed,
    Connect,
    Connected,
    Copied,
    Copy,
    CopyPlan,
    EpochEnded,
    Event,
    GroupLost,
    LeaveGroup,
    Leavers,
    Ready,
    Recovery,
    RegroupAgreed,
    Restore,
    Restored,
    RollBack,
    StepProgress,
    Summed,
    Train,
    WarmedUp,
    Written,
)
from everstep.elastic.recovery.worker import TrainingState, Votes
from everstep.elastic.recovery.worker_process import connect_to_agent, end_process
from everstep.elastic.transport import channel
from everstep.elastic.transport.abortable_group import AbortableGroup, GroupAddress
from everstep.elastic.transport.group import (
    PeerLostError,
    RankAssignment,
    await_text,
    choose_interface,
    set_text,
)
from everstep.elastic.transport.stalls import Stall

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_SECONDS = 0.1
"""Shortest interval between two reports of steps to the agent: as often as agents send heartbeats."""
DETACHED_SAVE_SECONDS = 2.0
"""Time that a leaving worker waits for a group that takes its state before it saves the state itself."""


class LiveGroup:
    """The group of a worker whose process survives changes of the group.

    Attributes:
        accounting: account of the worker's time.
        leaving: whether this worker's own node leaves.
    """

    def __init__(
        self,
        stream: channel.MessageStream,
        device: torch.device,
        accounting: TimeAccount | None = None,
    ) -> None:
        self._stream, self._device = stream, device
        self.accounting = accounting or TimeAccount()
        self._core = Recovery()
        # What the training loop handles while it waits for a generation.
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._process_group: AbortableGroup | None = None
        self._address: GroupAddress | None = None
        self._state: TrainingState | None = None
        self._stopped_generation = 0  # the newest generation that the agent has stopped
        # The generation that a node wants to join or leave, and the reason.
        self._regroup_request: tuple[int, str] = (0, "")
        self._loss_reason = ""
        self._machine_workers = 1
        self._unequal_ranks: tuple[int, ...] = ()
        self._received_bytes: Mapping[int, int] = {}
        self._sources: tuple[int, ...] = ()
        self._has_voted_to_leave = False  # in the last all-reduce
        self._detached_progress = StepProgress()  # progress of the state saved outside a group
        self._waits_for_assignment = False
        self._progress_reported, self._progress_reported_at = 0, float("-inf")
        self._end: tuple[str, int | None] | None = None
        self._responses: dict[int, queue.SimpleQueue[bool]] = {}  # by number of the commit request
        self._request_numbers = itertools.count(1)
        self.leaving = False
        threading.Thread(target=self._listen, name="everstep-group", daemon=True).start()
        stream.send({"hello": os.getpid(), "local_world_size": _local_world_size()})

    # --- interface of the training loop ---

    @property
    def generation(self) -> int:
        """The current or last generation of this worker."""
        return self._core.generation

    @property
    def is_regroup_requested(self) -> bool:
        """True if a node wants to join or leave this generation."""
        return self._regroup_request[0] == self._core.generation

    @property
    def regroup_reason(self) -> str:
        """Reason for the regroup or for the last loss of the group, for messages."""
        return self._regroup_request[1] if self.is_regroup_requested else self._loss_reason

    def join(self, state: TrainingState) -> RankAssignment:
        """Wait for a generation and join it with the state that all its members have."""
        self._state = state
        is_first = not self._core.generation and not self._address
        self.accounting.begin(Activity.IDLE if is_first else Activity.FORM)
        if is_first:
            self._run(self._core.handle(WarmedUp()))
        else:
            self._run([])
        process_group = self._process_group
        assert process_group is not None  # noqa: S101 - the state machine trains only in a group
        return RankAssignment(
            process_group.rank,
            process_group.world_size,
            process_group.store,
            self._machine_workers,
            process_group.sum,
            process_group.begin_all_reduce,
            self._unequal_ranks,
            self._received_bytes,
            self._sources,
        )

    def agree(self, votes: Votes) -> Votes:
        """Return the votes: the step's all-reduce has summed them over all workers."""
        return votes

    def agree_in_node(self, key: str, text: str) -> str:
        """Return the text: each worker has the whole model."""
        del key
        return text

    def next_snapshot(self) -> str:
        """Return an empty name: a snapshot has the whole state."""
        return ""

    def regroup_votes(self) -> tuple[float, float]:
        """Return this worker's votes for the next all-reduce: to regroup, and that its node leaves."""
        self._has_voted_to_leave = self.leaving
        return float(self.is_regroup_requested), float(self._has_voted_to_leave)

    def after_all_reduce(self, votes: Votes, apply: Callable[[], None]) -> bool:
        """Apply a step whose sum has arrived; return True if the workers regroup now.

        Args:
            votes: the sums of the workers' votes.
            apply: function that runs the optimizer.
        """
        summed = Summed(round(votes.regroup), self._leavers(votes.leavers))
        for action in self._core.handle(summed):
            if isinstance(action, Apply):
                apply()
                self.accounting.end_step()
                self._report_progress()
            else:
                self._perform([action])
        return votes.regroup > 0

    def handle_epoch_end(self) -> None:
        """Record that the callbacks at the end of an epoch have changed the state."""
        self._perform(self._core.handle(EpochEnded()))

    def handle_agreement(self, leavers: float) -> None:
        """Record that the workers have agreed to regroup outside a step."""
        self._perform(self._core.handle(RegroupAgreed(self._leavers(leavers))))

    def _leavers(self, count: float) -> Leavers:
        """Return which workers leave, from the number of workers whose nodes leave."""
        if not count:
            return Leavers.NONE
        if not self._has_voted_to_leave:
            return Leavers.OTHERS
        return Leavers.ALL if count >= self._required_process_group().world_size else Leavers.THIS

    def handle_group_loss(self, reason: str) -> None:
        """Roll back and leave the group after a failed collective."""
        self._loss_reason = reason.partition("\n")[0]
        self._perform(self._core.handle(GroupLost(self._loss_reason)))

    def check(self, min_age_seconds: float = 0.0) -> None:
        """Raise PeerLostError if the group was aborted at least `min_age_seconds` ago.

        Cheap enough for every layer of a model.
        """
        process_group = self._process_group
        if process_group is not None and process_group.aborted_for(min_age_seconds):
            raise PeerLostError(self._loss_reason or "the group was aborted")

    def commit(self, snapshot_generation: int, step: int, run: str = "") -> bool:
        """Commit the snapshot of a step; return False if it is refused or the response does not arrive in time.

        The commit is refused if another generation is current, or if another worker's state has replaced this
        worker's state since: the snapshot may belong to a history that the group has left.

        Args:
            snapshot_generation: generation in which the snapshot was taken.
            step: completed steps.
            run: identity of the run's folder, recorded with the commit.
        """
        number = self._core.fence(snapshot_generation)
        if not number:
            return False
        request = next(self._request_numbers)
        response = self._responses[request] = queue.SimpleQueue()
        message = {
            "commit": number,
            "snapshot_generation": snapshot_generation,
            "step": step,
            "run": run,
        }
        self._send({**message, "request": request})
        try:
            return response.get(timeout=channel.RESPONSE_SECONDS)
        except queue.Empty:  # a response that arrives later belongs to this request only
            return False
        finally:
            del self._responses[request]

    def report_completion(self, summary: str) -> None:
        """Announce to all agents that the run is complete."""
        self._send({"finished": summary, "generation": self.generation})

    def report_loop_end(self, *, is_complete: bool) -> None:
        """Report to the agent that the training loop is over: code after it may still run."""
        self._send({"loop_over": True, "complete": is_complete})

    def report_failure(self, reason: str) -> None:
        """Announce to all agents that the run has failed permanently."""
        self._send({"failed": reason, "generation": self.generation})

    def report_incompatibility(self, reason: str) -> None:
        """Report to the agent that this node cannot train with the others; their run continues."""
        self._send({"incompatible": reason})

    # --- actions ---

    def _run(self, actions: list[Action]) -> None:
        """Execute actions until the state machine returns `Train`."""
        pending_actions = deque(actions)
        while True:
            action = pending_actions.popleft() if pending_actions else None
            if isinstance(action, Train):
                return
            event = self._try(action) if action else self._next_assignment()
            if isinstance(event, GroupLost):
                pending_actions.clear()
            if event:
                pending_actions.extend(self._core.handle(event))

    def _perform(self, actions: list[Action]) -> None:
        """Execute actions, and the actions that follow from their results."""
        pending_actions = deque(actions)
        while pending_actions:
            if event := self._try(pending_actions.popleft()):
                pending_actions.extend(self._core.handle(event))

    def _try(self, action: Action) -> Event | None:
        """Execute one action; return its result, or that the group is lost."""
        try:
            return self._carry_out(action)
        except PeerLostError as error:
            self._loss_reason = self._loss_reason or str(error).partition("\n")[0]
            log.info("generation %d is aborted: %s", self.generation, self._loss_reason)
            return GroupLost(self._loss_reason)

    def _carry_out(self, action: Action) -> Event | None:
        match action:
            case Ready():
                self._report_ready(action)
            case Connect():
                return self._connect()
            case Compare(report):
                self.accounting.begin(Activity.COPY)
                shared_tensors = self._required_state().shared_tensors()
                current_report = replace(
                    report, computed_units=self._required_state().computed_units()
                )
                return Compared(
                    copying.compare(self._required_process_group(), current_report, shared_tensors)
                )
            case Restore():
                step = self._restore()
                self._announce_restored()
                return Restored(step)
            case AwaitRestored():
                self._await_restored()
            case Copy(plan):
                process_group = self._required_process_group()
                self._copy(process_group, plan)
                keeps_units = process_group.rank in plan.sources
                self._required_state().adopt(
                    plan.progress.step, plan.computed_units, keeps_units=keeps_units
                )
                return Copied()
            case Confirm(leavers):
                self._required_process_group().sum(torch.zeros(1, device=self._device))
                return Confirmed(leavers)
            case RollBack():
                gradients_valid = self._required_state().roll_back()
                self.accounting.break_step(gradients_valid=gradients_valid)
            case LeaveGroup():
                self._leave_group()
        return None

    @property
    def _restoring_workers(self) -> int:
        """Number of workers that restore the state; they have the first ranks of the group."""
        return 1

    def _restore(self) -> int:
        """Load the newest checkpoint or initialize the state; return the completed steps."""
        state = self._required_state()
        with state.watch_reading(self.give_up):
            return state.restore(self._core.committed)

    def _announce_restored(self) -> None:
        set_text(self._store(), _restored_key(self._required_process_group().rank), "")

    def _await_restored(self) -> None:
        """Wait until all workers that restore the state have announced it."""
        for rank in range(self._restoring_workers):
            await_text(self._store(), _restored_key(rank))

    def give_up(self, reason: str) -> None:
        """Stop this worker, whose training loop hangs in a system call, so that another node continues its work.

        The agent and the peers are informed first: a process that hangs in the kernel does not end, and keeps its
        connections.
        """
        self._send({"hung": reason})
        with self._lock:
            process_group = self._process_group
        if process_group:
            process_group.abort()
        end_process(reason, starts_again=not self.leaving)

    def _copy(self, process_group: AbortableGroup, plan: CopyPlan) -> None:
        """Send and receive the tensors of a plan, and record what this worker received."""
        self._note_unequal(plan)
        tensors = self._required_state().shared_tensors()
        copying.copy(process_group, plan, tensors)
        self._received_bytes = copying.received_bytes(plan, process_group.rank, tensors)
        self._sources = plan.sources

    def _note_unequal(self, plan: CopyPlan) -> None:
        self._unequal_ranks = plan.unequal_ranks
        if plan.unequal_ranks:
            log.error(
                "the state of rank %s differs from the state of rank %s after the same step, %d: the hardware "
                "of a node is at fault; the state of the majority is used",
                ", ".join(map(str, plan.unequal_ranks)),
                ", ".join(map(str, plan.sources)),
                plan.progress.step,
            )

    def _connect(self) -> Event:
        self.accounting.begin(Activity.FORM)
        address = self._address
        assert address is not None  # noqa: S101 - Connect follows an assignment
        choose_interface()
        process_group = self._new_process_group(address)
        with self._lock:
            self._process_group, self._loss_reason = process_group, ""
            is_stopped = self._stopped_generation >= address.generation
        if is_stopped:
            process_group.abort()
        process_group.build()
        self._machine_workers = check_group(process_group, self._required_state().identity())
        return Connected()

    def _new_process_group(self, address: GroupAddress) -> AbortableGroup:
        return AbortableGroup(address, self._device, self._report_stall, self._note_stall)

    def _report_stall(self) -> None:
        self._send({"stalled": True})

    def _note_stall(self, stall: Stall) -> None:
        log.warning("%s", stall.sentence())
        self._required_state().note_stall(stall)

    def _leave_group(self) -> None:
        with self._lock:
            process_group, self._process_group = self._process_group, None
        if process_group:
            process_group.abort()
            process_group.close()

    def _next_assignment(self) -> Assigned:
        self._waits_for_assignment = True
        if self._end:
            self._end_process(*self._end)
        message = self._wait_for_assignment()
        self._waits_for_assignment = False
        workers_per_node = _local_world_size()
        rank = int(message["node"]) * workers_per_node + get_node_local_rank(0)
        world_size = int(message["nodes"]) * workers_per_node
        number = int(message["form"])
        self._address = GroupAddress(
            number, str(message["host"]), int(message["port"]), rank, world_size
        )
        return Assigned(number, rank, world_size, StepProgress(*message["committed"]))

    def _wait_for_assignment(self) -> dict[str, Any]:
        """Return the next generation's message; save the state if this node leaves and no message arrives."""
        while True:
            try:
                timeout = DETACHED_SAVE_SECONDS if self._has_unsaved_state() else None
                message = self._inbox.get(timeout=timeout)
            except queue.Empty:
                self._detached_progress = self._core.progress
                self._required_state().save_detached()
                self.accounting.begin(Activity.FORM)
            else:
                if "form" in message:
                    return message
                self._handle_write(message)

    def _handle_write(self, message: Mapping[str, Any]) -> None:
        """Handle the end of a write while this worker waits for a generation."""
        if "written" in message:
            self._perform(self._core.handle(Written()))
        if "newest_commit" in message:
            progress = StepProgress(*message["newest_commit"])
            self._perform(self._core.handle(Committed(progress)))

    def _has_unsaved_state(self) -> bool:
        """Return True if this node leaves with a state that may be the only copy, and does not save it yet."""
        is_unsaved = self._core.progress != self._detached_progress
        return self.leaving and is_unsaved and self._core.may_be_only_copy

    def _report_ready(self, ready: Ready) -> None:
        """Report to the agent; if all workers leave, report again once no write is in progress."""
        self._send(
            {
                "ready": self._core.generation,
                "only_copy": ready.may_be_only_copy,
                "writes": ready.writes,
            }
        )
        if ready.writes:
            threading.Thread(target=self._wait_written, name="everstep-flush", daemon=True).start()

    def _wait_written(self) -> None:
        self._required_state().flush()
        self._inbox.put({"written": True})

    def _required_process_group(self) -> AbortableGroup:
        if self._process_group is None:
            raise PeerLostError("this worker is in no group")
        return self._process_group

    def _store(self) -> Store:
        """Return the store of the group of all workers."""
        store = self._required_process_group().store
        if store is None:
            raise PeerLostError("the group is not built")
        return store

    def _required_state(self) -> TrainingState:
        assert self._state is not None  # noqa: S101 - join() sets it first
        return self._state

    def _report_progress(self) -> None:
        """Report the first step of a generation, and later ones a few times a second: they prove that peers live."""
        now = time.monotonic()
        is_first = self._progress_reported < self.generation
        if is_first or now - self._progress_reported_at >= PROGRESS_INTERVAL_SECONDS:
            self._progress_reported, self._progress_reported_at = self.generation, now
            self._send({"progressed": self.generation, "step": self._core.progress.step})

    # --- the receiving thread ---

    def _send(self, message: channel.Message) -> None:
        try:
            self._stream.send(message)
        except OSError:
            log.debug(
                "the connection to the agent is broken; the listening thread ends this process"
            )

    def _listen(self) -> None:
        while (message := self._stream.receive()) is not None:
            self._handle_message(message)
        self._stream.close()
        reason = "this node leaves" if self.leaving else "the node's agent is gone"
        end_process(reason, starts_again=False)

    def _handle_message(self, message: dict[str, Any]) -> None:
        if "ping" in message:
            self._send({"pong": message["ping"]})
        if "flush" in message:  # in a thread: this thread receives the response to the commit
            threading.Thread(target=self._flush, name="everstep-flush", daemon=True).start()
        if "form" in message:
            self._inbox.put(message)
        self.leaving = self.leaving or "node_leaves" in message
        if "newest_commit" in message:  # wakes the training loop if it waits for a generation
            self._inbox.put(message)
        if message.get("regroup"):
            self.leaving = self.leaving or bool(message.get("leaving"))
            self._regroup_request = (int(message["generation"]), str(message["regroup"]))
        if "answer" in message and (response := self._responses.get(int(message["request"]))):
            response.put(bool(message["answer"]))
        if message.get("stop"):
            self._stop_generation(int(message["generation"]), str(message["stop"]))
        if "end" in message:
            self._end = (str(message["end"]), message.get("code"))
            if self._waits_for_assignment or message.get("code") is None:
                self._end_process(*self._end)

    def _flush(self) -> None:
        """Report to the agent of a leaving node once no write is in progress."""
        if self._state is not None:
            self._state.flush()
        self._send({"flushed": True})

    def _stop_generation(self, generation: int, reason: str) -> None:
        with self._lock:
            self._stopped_generation = max(self._stopped_generation, generation)
            process_group = self._process_group if self._core.generation <= generation else None
            if process_group:
                self._loss_reason = reason
        if process_group:
            process_group.abort()

    def _end_process(self, reason: str, code: int | None) -> NoReturn:
        if code is None:
            end_process(reason, starts_again=False)
        end_process(reason, code)


def attach_live(device: torch.device, accounting: TimeAccount | None = None) -> LiveGroup | None:
    """Connect to the agent that started this process; return None if no agent did."""
    stream = connect_to_agent()
    return LiveGroup(stream, device, accounting) if stream else None


def _restored_key(rank: int) -> str:
    """Return the key in a group's store that a worker sets once it has restored the state."""
    return f"restored-{rank}"


def _local_world_size() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
