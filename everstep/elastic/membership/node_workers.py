"""The worker processes of one node, from their agent's point of view.

torchrun only starts the workers and supervises their processes. The workers warm up (imports,
model, data, a first forward pass) and report that they are ready; only then does the agent register
the node, so that no other node waits for a joiner's start. From then on each new generation is a
message to the running workers. When a worker dies, the node's key is removed immediately, and the
others do not wait for its lease to lapse.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from everstep.catalog.addresses import split_address
from everstep.elastic.membership.agent import Agent, LeftError, NodeAssignment, RunEndedError
from everstep.elastic.membership.crashes import MAX_CRASHES_WITHOUT_STEP, CrashAction, Crashes
from everstep.elastic.membership.events import RunEnded
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.transport import channel
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

PING_SECONDS = 1.0
POLL_SECONDS = 0.02
FROZEN_SECONDS = 8.0
"""A worker that is silent for this long counts as frozen and is killed: it blocks all others."""
UNKILLABLE_SECONDS = 5.0  # wait after SIGKILL: a process that hangs in the kernel does not end
EXITED_PEER_SECONDS = 30.0
"""Time for which a worker waits beside a worker that has ended its program: the outcome of the run may still arrive."""
OUTCOME_SECONDS = 30.0
"""Time for which the end of a worker's process waits for the outcome, which another node may announce."""
LAST_MESSAGES_SECONDS = 2.0
"""Time to read a worker's last messages; its child processes may keep the connection open."""
LEAVE_TIMEOUT_SECONDS = 15.0  # time from `stop` until a worker that is still in the group is killed


class NodeWorkers:
    """The processes that train on one node, and the generation of each.

    Args:
        socket_path: path of the socket on which workers reach their agent.
        node: name of the node, for messages to the user.

    Attributes:
        outcome: outcome of the run; None while it continues.
        failure: the exception that ended this node's part in the run, if any.
        has_late_failure: whether a worker failed after the run was complete, in the code after its loop.
        assignment: the node's current or last generation; None before the first.
    """

    def __init__(self, socket_path: Path, node: str) -> None:
        self._node = node
        self._agent: Agent | None = None
        self._server = channel.AgentServer(socket_path, self._on_message, self._on_disconnected)
        self._lock = threading.Lock()
        self._worker_count = 0  # workers on this node
        self._generation_by_pid: dict[int, int] = {}  # 0: ready for the next generation
        self._finished_pids: set[int] = set()  # workers whose loop is over
        self._is_loop_complete: dict[int, bool] = {}  # by worker; False if it left the loop early
        self._flushing_pids: set[int] = set()  # workers that a leaving node still waits for
        self._writing_pids: set[int] = set()  # workers that are ready once their write is complete
        self._only_copy_pids: set[int] = set()  # ready workers whose state may be in no other place
        self._last_pong: dict[int, float] = {}
        self._killed_at: dict[int, float] = {}
        self._announcements: dict[int, threading.Thread] = {}  # of an outcome, by worker
        self._single_crashes = Crashes()
        self._crashed_starts = 0  # consecutive starts of all workers that ended before a step
        self._assigned = self._progressed = self._leaving = False
        self._has_ended_worker = False  # one has ended without an error, and does not start again
        self._is_complete = False  # whether a worker or the agent has reported the run complete
        self._hung_reason = ""  # report of the last worker whose storage hung
        self.assignment: NodeAssignment | None = None
        self.outcome: RunEnded | None = None
        self.failure: Exception | None = None
        self.has_late_failure = False

    def start(self, agent: Agent) -> None:
        """Accept workers, and pass the agent's generations on to them."""
        self._agent = agent
        self._server.start()
        for run in (self._follow_assignments, self._ping):
            threading.Thread(target=run, name=f"everstep-{run.__name__}", daemon=True).start()

    def close(self) -> None:
        """Stop listening; the workers end."""
        self._server.close()

    def begin_start(self) -> None:
        """Record that torchrun starts all workers; withdraw the node if they keep ending before a step.

        A program that cannot run would otherwise be started for as long as its pods live.
        """
        crashed = self._assigned and not self._progressed
        self._crashed_starts = self._crashed_starts + 1 if crashed else 0
        if self._crashed_starts >= MAX_CRASHES_WITHOUT_STEP:
            self._give_up()
        self._assigned = self._progressed = self._has_ended_worker = False

    @property
    def are_running(self) -> bool:
        """True if a worker process is connected, whether it trains or runs the code after its loop."""
        return bool(self._server.workers())

    def prepare_to_leave(self) -> None:
        """Make the workers leave after a step that all workers of the group agree on."""
        self._leaving = True
        if self._agent is None:  # `start` has not been called: there are no workers
            return
        newest_commit = dataclasses.astuple(self._agent.committed)
        self._server.broadcast({"node_leaves": True, "newest_commit": newest_commit})

    def flush(self, deadline: float) -> bool:
        """Wait until no worker is writing a checkpoint; return False at the deadline, a monotonic time in seconds."""
        with self._lock:
            self._flushing_pids = set(self._generation_by_pid)
        self._server.broadcast({"flush": True})
        while self._flushing_pids and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return not self._flushing_pids

    # --- callbacks of the agent ---

    def stop(self, reason: str) -> None:
        """Make the workers abort their generation now; kill the workers that do not."""
        number = self._generation()
        log.warning("generation %d is over: %s", number, reason)
        self._server.broadcast({"stop": reason, "generation": number})
        _run_later(LEAVE_TIMEOUT_SECONDS, functools.partial(self._kill_remaining, number))

    def regroup(self, reason: str) -> None:
        """Make the workers leave their generation after a step that all agree on."""
        number = self._generation()
        log.info("generation %d ends after a step: %s", number, reason)
        self._server.broadcast({"regroup": reason, "generation": number, "leaving": self._leaving})

    def note_commit(self, progress: StepProgress) -> None:
        """Inform the workers of a leaving node: a committed state is not the only copy."""
        if self._leaving:
            self._server.broadcast({"newest_commit": dataclasses.astuple(progress)})

    def end(self, outcome: RunEnded) -> None:
        """Stop the workers: the run is over."""
        self.outcome = outcome
        self._is_complete |= outcome.finished
        self._broadcast_end()

    # --- the thread that passes generations on ---

    def _follow_assignments(self) -> None:
        while True:
            try:
                assignment = self._running_agent().next_assignment()
            except (LeftError, RunEndedError):
                return
            except Exception as error:
                self.failure = error
                self._broadcast_end()
                return
            self._assign(assignment)

    def _assign(self, assignment: NodeAssignment) -> None:
        generation = assignment.generation
        host, port = split_address(generation.store)
        with self._lock:
            if not self._all_ready():
                return  # a worker has died in the meantime, and this node is being withdrawn
            self.assignment, self._assigned = assignment, True
            self._generation_by_pid = dict.fromkeys(self._generation_by_pid, generation.number)
            self._single_crashes.record_assignment(self._generation_by_pid)
        log.info(
            "generation %d: node %d of %d",
            generation.number,
            assignment.rank,
            len(generation.members),
        )
        self._server.broadcast(
            {
                "form": generation.number,
                "node": assignment.rank,
                "nodes": len(generation.members),
                "host": host,
                "port": port,
                "committed": dataclasses.astuple(self._running_agent().committed),
            }
        )

    def _ping(self) -> None:
        """Kill workers that do not respond to pings: otherwise the node would keep its lease but could not train."""
        previous = time.monotonic()
        while True:
            time.sleep(PING_SECONDS)
            now = time.monotonic()
            if now - previous > 2 * PING_SECONDS:  # this agent itself was frozen, or starved
                self._last_pong = dict.fromkeys(self._last_pong, now)
            previous = now
            self._server.broadcast({"ping": now})
            self._kill_frozen(now)
            self._withdraw_from_unkillable(now)

    def _kill_frozen(self, now: float) -> None:
        for pid, responded_at in list(self._last_pong.items()):
            if now - responded_at > FROZEN_SECONDS:
                self._kill(pid, f"did not respond for {FROZEN_SECONDS:.0f} s")

    # --- messages of the workers ---

    def _on_message(self, pid: int, message: channel.Message) -> channel.Message | None:
        if "crashed" in message:
            return {"again": self._may_start_again(int(message["crashed"]))}
        if "ended" in message:
            self._note_ended(int(message["ended"]))
            return {"noted": True}
        if "hello" in message:
            self._worker_count = int(message.get("local_world_size", 1))
            self._is_loop_complete[pid] = False
            return self._end_message()
        if "pong" in message:
            self._last_pong[pid] = time.monotonic()
        if "stalled" in message:
            self._running_agent().report_stall()
        if "flushed" in message:
            self._flushing_pids.discard(pid)
        if "ready" in message:
            self._note_ready(pid, message)
        if "hung" in message:
            self._withdraw_hung(pid, str(message["hung"]))
        if "incompatible" in message:
            self.failure = EverstepError(str(message["incompatible"]))
        self._on_progress(pid, message)
        return None

    def _on_progress(self, pid: int, message: channel.Message) -> None:
        """Handle the messages about the run's progress."""
        if "progressed" in message:
            self._progressed = True
            self._running_agent().report_progress(int(message["progressed"]))
            with self._lock:
                self._single_crashes.record_step(pid, int(message["step"]))
        if "loop_over" in message:
            self._finished_pids.add(pid)
            self._is_loop_complete[pid] = bool(message.get("complete"))
        if "commit" in message:
            # In a thread: a commit waits while etcd is unavailable, and the worker's other messages must be read.
            threading.Thread(target=self._commit, args=(pid, message), daemon=True).start()
        for kind in ("finished", "failed"):
            if kind in message:
                outcome = RunEnded(finished=kind == "finished", reason=str(message[kind]))
                # In a thread, for the same reason: a worker whose pongs are not read would be killed.
                announcement = threading.Thread(
                    target=self._end_run, args=(outcome, int(message["generation"])), daemon=True
                )
                self._announcements[pid] = announcement
                announcement.start()

    def _commit(self, pid: int, message: channel.Message) -> None:
        number, snapshot_generation, step = (
            int(message[name]) for name in ("commit", "snapshot_generation", "step")
        )
        allowed = self._running_agent().commit(
            number, snapshot_generation, step, str(message["run"])
        )
        self._server.send(pid, {"answer": allowed, "request": message["request"]})

    def _end_run(self, outcome: RunEnded, number: int) -> None:
        """Announce the outcome that a worker of generation `number` reports; 0 if it was in no generation."""
        is_announced = self._running_agent().end_run(outcome, number)
        self._is_complete |= is_announced and outcome.finished
        if not is_announced and not number:  # it can never join: only this node ends
            self.failure = EverstepError(outcome.reason)

    def _note_ready(self, pid: int, message: channel.Message) -> None:
        with self._lock:
            if int(message["ready"]) < self._generation_by_pid.get(pid, 0):
                return  # sent before the worker received the newer generation
            self._generation_by_pid[pid] = 0
            _include(self._writing_pids, pid, included=bool(message.get("writes")))
            _include(self._only_copy_pids, pid, included=bool(message.get("only_copy")))
            is_complete = self._all_ready() and not self._writing_pids
        if is_complete and not self.outcome:
            self._running_agent().report_ready(may_be_only_copy=bool(self._only_copy_pids))
        if self._has_ended_worker:
            _run_later(EXITED_PEER_SECONDS, self._end_if_peer_exited)

    def _note_ended(self, pid: int) -> None:
        """Handle the end of a worker without an error; end this node if the worker has left its loop early."""
        # Its supervisor may notice before its connection breaks.
        self._wait_until(lambda: pid not in self._server.workers(), LAST_MESSAGES_SECONDS)
        self._wait_for_announcement(pid)
        self._on_gone(pid)
        self._has_ended_worker = True
        # A process between the supervisor and the worker, such as a shell, has no loop of its own.
        is_complete = self._is_loop_complete.pop(pid, any(self._is_loop_complete.values()))
        if is_complete:
            self._wait_until(lambda: False, OUTCOME_SECONDS)
        elif self.assignment and not self._is_ending:
            self._end_incomplete()
        _run_later(EXITED_PEER_SECONDS, self._end_if_peer_exited)

    @property
    def _is_ending(self) -> bool:
        return bool(self.outcome or self.failure or self._leaving)

    def _wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until a condition holds or this node ends, at most `seconds`."""
        deadline = time.monotonic() + seconds
        while not (condition() or self._is_ending) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _end_if_peer_exited(self) -> None:
        """End this node if a worker waits for the next generation, and another one has ended its program.

        The node would never be complete. A worker that trains or runs the code after its loop is not ended.
        """
        with self._lock:
            waits = 0 in self._generation_by_pid.values()
        if waits and self._has_ended_worker and not self._is_ending:
            self._end_incomplete()

    def _end_incomplete(self) -> None:
        """End this node, except for workers that run the code after their loop."""
        self.failure = EverstepError(
            f"on {self._node} a worker has ended its program before the run was complete",
            "Call run.stop() to end a run early: all workers then end after the same step.",
        )
        self._running_agent().withdraw()
        for pid in self._server.workers():
            if pid not in self._finished_pids and (message := self._end_message()):
                self._server.send(pid, message)

    def _all_ready(self) -> bool:
        return len(self._generation_by_pid) == self._worker_count > 0 and not any(
            self._generation_by_pid.values()
        )

    def _on_disconnected(self, pid: int) -> None:
        """Handle a worker's end, after the announcement of the outcome that it reported.

        If this node withdrew before, the others could form the next generation, which refuses the outcome.
        """
        self._wait_for_announcement(pid)
        self._announcements.pop(pid, None)
        self._on_gone(pid)

    def _wait_for_announcement(self, pid: int) -> None:
        if announcement := self._announcements.get(pid):
            announcement.join()

    def _on_gone(self, pid: int) -> None:
        with self._lock:
            assigned_generation = self._generation_by_pid.pop(pid, None)
            self._last_pong.pop(pid, None)
            self._killed_at.pop(pid, None)
            for pids in (
                self._flushing_pids,
                self._finished_pids,
                self._writing_pids,
                self._only_copy_pids,
            ):
                pids.discard(pid)
            is_replaced = self._all_ready()
        if assigned_generation is None or self.outcome:
            return
        log.warning("worker %d is gone: this node leaves the group until it is replaced", pid)
        self._running_agent().withdraw()
        if is_replaced:  # its successor connected before its end was noticed
            self._running_agent().report_ready(may_be_only_copy=bool(self._only_copy_pids))
        elif self._generation_by_pid:
            self.stop(f"worker {pid} of this node is gone")

    def _may_start_again(self, pid: int) -> bool:
        """Return True if a crashed worker may start again while the node's other workers continue."""
        was_killed = pid in self._killed_at
        self._wait_for_announcement(pid)
        self._on_gone(pid)  # its supervisor may notice before its connection breaks
        self._is_loop_complete.pop(pid, None)
        if not was_killed and self._is_complete:
            self.has_late_failure = True
            return False
        with self._lock:
            action = self._single_crashes.judge(pid)
        if action is CrashAction.GIVE_UP:
            self._give_up()
        return action is CrashAction.RESTART_WORKER and not self.outcome and not self.failure

    # --- helpers ---

    def _give_up(self) -> None:
        """Withdraw this node; end the run only if no other node is left and none ever took a step."""
        reason = (
            f"on {self._node} the workers ended {MAX_CRASHES_WITHOUT_STEP} consecutive times before completing "
            f"a new step; {self._hung_reason or 'see their log for the cause'}"
        )
        agent = self._running_agent()
        outcome = RunEnded(finished=False, reason=reason)
        if agent.is_alone_without_progress() and agent.end_run(outcome, self._generation()):
            return
        log.error("this node withdraws, the others continue: %s", reason)
        self.failure = EverstepError(reason)
        agent.withdraw()
        self._broadcast_end()

    def _generation(self) -> int:
        """Return the number of the newest generation with this node; it may end before its workers receive it."""
        return self._agent.generation_number if self._agent else 0

    def _running_agent(self) -> Agent:
        assert self._agent is not None  # noqa: S101 - start() sets it first
        return self._agent

    def _kill_remaining(self, number: int) -> None:
        with self._lock:
            remaining_pids = [
                pid
                for pid, generation in self._generation_by_pid.items()
                if generation == number != 0 and pid not in self._finished_pids
            ]
        for pid in remaining_pids:
            self._kill(pid, "did not stop")

    def _withdraw_from_unkillable(self, now: float) -> None:
        """Withdraw if a killed worker does not end: the others must not wait for it.

        A process in an uninterruptible system call, such as a read from a hung mount, ends only when
        the call returns. Until then the node cannot train in any group.
        """
        for pid, killed_at in list(self._killed_at.items()):
            if now - killed_at > UNKILLABLE_SECONDS:
                log.error(
                    "worker %d hangs in the kernel and cannot be killed; check the mounts and the "
                    "GPU of %s: this node leaves the group until it ends",
                    pid,
                    self._node,
                )
                self._killed_at[pid] = math.inf  # reported and withdrawn only once
                self._running_agent().withdraw()

    def _withdraw_hung(self, pid: int, reason: str) -> None:
        """Withdraw because of a worker that waits for its storage; it ends as soon as the kernel allows it."""
        log.error(
            "worker %d of %s gives up: %s: this node leaves the group", pid, self._node, reason
        )
        self._killed_at.setdefault(pid, time.monotonic())
        self._hung_reason = reason
        self._running_agent().withdraw()

    def _kill(self, pid: int, reason: str) -> None:
        """Kill a worker; a worker whose connection is closed has ended already."""
        if pid in self._server.workers():
            log.warning("worker %d %s: killed", pid, reason)
            self._killed_at.setdefault(pid, time.monotonic())
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _broadcast_end(self) -> None:
        if message := self._end_message():
            self._server.broadcast(message)

    def _end_message(self) -> channel.Message | None:
        """Return the message that ends workers, including workers that are still starting."""
        if self.outcome:
            code = 0 if self.outcome.finished else None
            return {"end": f"the run is over: {self.outcome.reason}", "code": code}
        return {"end": f"membership ended: {self.failure}"} if self.failure else None


def _include(pids: set[int], pid: int, *, included: bool) -> None:
    """Add a process to a set, or remove it."""
    if included:
        pids.add(pid)
    else:
        pids.discard(pid)


def _run_later(seconds: float, run: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, run)
    timer.daemon = True
    timer.start()
