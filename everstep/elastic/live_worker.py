"""A worker that lives through changes of its group: carries out what `recovery` decides.

A training loop uses it so:

    group = attach_live(device)
    while not done:
        seat = group.join(state)         # waits for a generation, meets it, has the common state
        try:
            train until group.after_sum(...) says that the workers regroup
        except PeerLostError as error:
            group.lost(str(error))       # rolls back; join again

Two threads: the training loop's own, which alone touches the state machine, and one that listens to
the node's agent, which only raises flags and aborts the group's link, so that the first one wakes.
"""

import hashlib
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from torch import nn

from everstep.elastic import channel, copying
from everstep.elastic.accounting import Accounting, Name
from everstep.elastic.group import PeerLostError, Seat, choose_interface
from everstep.elastic.leftover import Span
from everstep.elastic.link import Link, Meeting
from everstep.elastic.recovery import (
    Action,
    Agreed,
    Apply,
    AskIn,
    Called,
    Compare,
    Compared,
    Copied,
    Copy,
    Event,
    Lost,
    Meet,
    Met,
    Part,
    Recovery,
    Restore,
    Restored,
    RollBack,
    Standing,
    Summed,
    Train,
    Warm,
)
from everstep.elastic.worker import connect_to_agent, end_process
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

ANSWER_SECONDS = 30.0


class UnfitError(EverstepError):
    """This worker runs another program, model, data set or other settings than its group."""


class State(Protocol):
    """What a training loop holds, as recovery needs it."""

    def identity(self) -> str:
        """Equal on workers that may train together: program, model, data, settings, shapes of the parts."""

    def parts(self) -> Sequence[torch.Tensor]:
        """Every tensor that the next step depends on, in an order that is the same on all workers."""

    def restore(self, committed: Standing) -> int:
        """Take up the newest checkpoint, or the fresh state; the completed steps. Asked of one worker.

        `committed` tells of the newest one that was committed, should it not be in its place yet.
        """

    def adopt(self, step: int, kept: tuple[Span, ...], *, keeps: bool) -> None:
        """The parts are now those after `step` completed steps.

        Args:
            step: completed steps.
            kept: what all workers together have computed of the next one.
            keeps: whether what this one has computed is among it; false: it is to forget that.
        """

    def kept(self) -> tuple[Span, ...]:
        """What this worker has computed of the step in flight, in at most `copying.MOST_KEPT` spans."""

    def roll_back(self) -> bool:
        """Undo what a step that was not applied has touched of the parts; whether work on it is kept."""

    def flush(self) -> None:
        """Return once nothing is being written any more. Asked from a thread of its own."""


class LiveGroup:
    """The group of a worker in `live` mode."""

    def __init__(
        self, line: channel.Line, device: torch.device, accounting: Accounting | None = None
    ) -> None:
        self._line, self._device = line, device
        self.accounting = accounting or Accounting()
        self._core = Recovery()
        self._calls: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._meeting: Meeting | None = None
        self._state: State | None = None
        self._stopped = 0  # the newest generation that the agent has called off
        self._wish: tuple[int, str] = (0, "")  # generation that somebody wants to change, and why
        self._why = ""
        self._neighbours = 1
        self._waiting = self._told_progress = False
        self._end: tuple[str, int | None] | None = None
        self._answered, self._allowed = threading.Event(), False
        self.leaving = False
        threading.Thread(target=self._listen, name="everstep-group", daemon=True).start()
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        line.send({"hello": os.getpid(), "local_world_size": local})

    # --- what the training loop asks ---

    @property
    def generation(self) -> int:
        """The generation that this worker is in, or was in last."""
        return self._core.generation

    @property
    def regroup_wanted(self) -> bool:
        """Whether somebody wants in or out of this generation."""
        return self._wish[0] == self._core.generation

    @property
    def regroup_reason(self) -> str:
        """Who wants what, or who was lost."""
        return self._wish[1] if self.regroup_wanted else self._why

    def join(self, state: State) -> Seat:
        """Wait for a generation, and be in it with the state that all its members have."""
        self._state = state
        first = not self._core.generation and not self._meeting
        self.accounting.begin(Name.IDLE if first else Name.FORM)
        if first:
            self._run(self._core.handle(Warm()))
        else:
            self._run([])
        link = self._link
        assert link is not None  # noqa: S101 - the machine trains only in a group
        local = int(os.environ.get("LOCAL_RANK", "0"))
        return Seat(
            link.rank,
            link.world_size,
            local,
            link.store,
            self._neighbours,
            link.sum,
            link.begin_sum,
        )

    def after_sum(self, votes: float, apply: Callable[[], None]) -> bool:
        """The sum of a step has arrived: apply it; whether the workers regroup now.

        Args:
            votes: how many workers want to regroup, by the sum itself.
            apply: lets the optimizer take the step.
        """
        for action in self._core.handle(Summed(round(votes))):
            if isinstance(action, Apply):
                apply()
                self.accounting.end_step()
                self._progressed()
            elif not isinstance(action, Train):
                self._carry_out(action)
        return votes > 0

    def agreed(self) -> None:
        """The workers have agreed to regroup outside a step."""
        self._perform(self._core.handle(Agreed()))

    def lost(self, reason: str) -> None:
        """A collective has failed: roll back and leave the group."""
        self._why = reason.partition("\n")[0]
        self._perform(self._core.handle(Lost(self._why)))

    def check(self, patience: float = 0.0) -> None:
        """Raise PeerLostError where the group has been no more for so many seconds.

        Cheap enough for every layer of a model.
        """
        link = self._link
        if link is not None and link.aborted_for(patience):
            raise PeerLostError(self._why or "the group was given up")

    def commit(self, taken_in: int, step: int) -> bool:
        """Commit the snapshot of a step, taken in generation `taken_in`; false: it may not be any more.

        Refused where another generation is current, or where this worker's state has been another's
        since: the snapshot may be of a history that the group has left.
        """
        number = self._core.fence(taken_in)
        if not number:
            return False
        self._answered.clear()
        self._allowed = False
        self._send({"commit": number, "taken_in": taken_in, "step": step})
        return self._answered.wait(ANSWER_SECONDS) and self._allowed

    def finished(self, summary: str) -> None:
        """Tell everybody that the run is complete."""
        self._send({"finished": summary})

    def failed(self, reason: str) -> None:
        """Tell everybody that the run has failed and that another try would fail too."""
        self._send({"failed": reason})

    def unfit(self, reason: str) -> None:
        """Tell the agent that this node cannot train with the others; their run goes on."""
        self._send({"unfit": reason})

    def settle(self) -> None:
        """Nothing: a living worker has nothing to save before it regroups."""

    # --- carrying out ---

    def _run(self, actions: list[Action]) -> None:
        """Until the state machine says `Train`."""
        pending = deque(actions)
        while True:
            action = pending.popleft() if pending else None
            if isinstance(action, Train):
                return
            try:
                event = self._carry_out(action) if action else self._next_call()
            except PeerLostError as error:
                self._why = self._why or str(error).partition("\n")[0]
                log.info("generation %d is given up: %s", self.generation, self._why)
                event = Lost(self._why)
                pending.clear()
            if event:
                pending.extend(self._core.handle(event))

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> Event | None:
        match action:
            case AskIn():
                self._send({"out": self._core.generation})
            case Meet():
                return self._meet()
            case Compare(report):
                self.accounting.begin(Name.COPY)
                parts = self._held().parts()
                mine = replace(report, kept=self._held().kept())
                return Compared(copying.compare(self._joined(), mine, parts))
            case Restore():
                return Restored(self._held().restore(self._core.committed))
            case Copy(plan):
                link = self._joined()
                copying.copy(link, plan, self._held().parts())
                keeps = link.rank in plan.holders
                self._held().adopt(plan.standing.step, plan.kept, keeps=keeps)
                return Copied()
            case RollBack():
                kept = self._held().roll_back()
                self.accounting.break_step(kept=kept)
            case Part():
                self._part()
        return None

    def _meet(self) -> Event:
        self.accounting.begin(Name.FORM)
        meeting = self._meeting
        assert meeting is not None  # noqa: S101 - Meet follows a call
        choose_interface()
        link = Link(meeting, self._device, lambda: self._send({"stalled": True}))
        with self._lock:
            self._link, self._why = link, ""
            stale = self._stopped >= meeting.generation
        if stale:
            link.abort()
        link.meet()
        self._neighbours = introduce(link, self._held().identity())
        return Met()

    def _part(self) -> None:
        with self._lock:
            link, self._link = self._link, None
        if link:
            link.abort()
            link.close()

    def _next_call(self) -> Event | None:
        self._waiting = True
        if self._end:
            self._die(*self._end)
        call = self._calls.get()
        self._waiting = False
        local, size = _local_rank(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        rank, world = int(call["node"]) * size + local, int(call["nodes"]) * size
        number = int(call["form"])
        self._meeting = Meeting(number, str(call["host"]), int(call["port"]), rank, world)
        return Called(number, rank, world, Standing(*map(int, call["committed"])))

    def _joined(self) -> Link:
        if self._link is None:
            raise PeerLostError("this worker is in no group")
        return self._link

    def _held(self) -> State:
        assert self._state is not None  # noqa: S101 - join() sets it first
        return self._state

    def _progressed(self) -> None:
        if not self._told_progress:
            self._told_progress = True
            self._send({"progressed": True})

    # --- the listening thread ---

    def _send(self, message: channel.Message) -> None:
        try:
            self._line.send(message)
        except OSError:
            log.debug("the agent's line is broken; the listener ends this process")

    def _listen(self) -> None:
        while (message := self._line.receive()) is not None:
            self._hear(message)
        self._line.close()
        end_process("the node's agent is gone")

    def _hear(self, message: dict[str, Any]) -> None:
        if "ping" in message:
            self._send({"pong": message["ping"]})
        if "flush" in message:  # in a thread: what is being written asks this one for its commit
            threading.Thread(target=self._flush, name="everstep-flush", daemon=True).start()
        if "form" in message:
            self._calls.put(message)
        if message.get("regroup"):
            self.leaving = self.leaving or bool(message.get("leaving"))
            self._wish = (int(message["generation"]), str(message["regroup"]))
        if "answer" in message:
            self._allowed = bool(message["answer"])
            self._answered.set()
        if message.get("stop"):
            self._call_off(int(message["generation"]), str(message["stop"]))
        if "end" in message:
            self._end = (str(message["end"]), message.get("code"))
            if self._waiting or message.get("code") is None:
                self._die(*self._end)

    def _flush(self) -> None:
        """The node departs: tell its agent when nothing is being written any more."""
        if self._state is not None:
            self._state.flush()
        self._send({"flushed": True})

    def _call_off(self, generation: int, why: str) -> None:
        with self._lock:
            self._stopped = max(self._stopped, generation)
            link = self._link if self._core.generation <= generation else None
            if link:
                self._why = why
        if link:
            link.abort()

    def _die(self, reason: str, code: int | None) -> NoReturn:
        if code is None:
            end_process(reason)
        end_process(reason, code)


def attach_live(device: torch.device, accounting: Accounting | None = None) -> LiveGroup | None:
    """The group of a worker whose agent works in `live` mode; None where no agent started this process."""
    line = connect_to_agent()
    return LiveGroup(line, device, accounting) if line else None


def interruptible(model: nn.Module, check: Callable[[], None]) -> None:
    """Have a model's forward and backward passes call `check` at each layer, so that it can end them."""
    for module in model.modules():
        if not any(module.children()):
            module.register_forward_pre_hook(lambda *_: check())
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call] # torch's
                lambda _: check()
            )


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def introduce(link: Link, identity: str) -> int:
    """Exchange who and where this worker is: how many of the group share this machine's processors.

    Containers of one kernel have one boot id. The survivors of a group come first in rank, so it is
    a newcomer that finds itself to be another.

    Raises:
        UnfitError: rank 0's identity is not this worker's.
    """
    if link.world_size == 1:
        return 1
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = str(link.rank)
    mine = torch.tensor([_number(boot), _number(identity)], dtype=torch.int64)
    boots, identities = zip(*(told.tolist() for told in link.gather(mine)), strict=True)
    if identities[0] != identities[link.rank]:
        raise UnfitError(
            "this worker is not like the others of its run: program, model, data set or settings differ",
            "Give all workers one image and one command line; this worker's are in its log.",
        )
    return boots.count(boots[link.rank])


def _number(words: str) -> int:
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=7).digest(), "big")
