"""The agent's side of `live` mode: workers that live through every change of the group.

torchrun starts the workers and watches over their processes, nothing more: its rendezvous answers at
once, with this node alone. The workers warm up (imports, model, data, a first forward) and say that
they are ready; only then does this node register, so that nobody waits for a newcomer's start. From
there on each new generation is a message to the living workers. When one of them dies this node's
key is taken away in that moment, and the others do not wait for a lease to lapse.
"""

import dataclasses
import functools
import logging
import threading
import time

from torch._C._distributed_c10d import PrefixStore
from torch.distributed.elastic.rendezvous.api import (
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from everstep.elastic import channel
from everstep.elastic.agent import LeftError, Place, RunEndedError
from everstep.elastic.crashes import Crashes, Verdict
from everstep.elastic.membership_events import Ended
from everstep.elastic.rendezvous import (
    EtcdV3Handler,
    RunOverError,
    _later,
    _split,
)
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

PING_SECONDS = 1.0
FLUSH_POLL_SECONDS = 0.02
FROZEN_SECONDS = 8.0  # a worker that answers no ping for so long is frozen: it holds all others up
OBEY_SECONDS = 15.0  # a worker that has not left a broken group so long after `stop` hangs: killed


class LiveHandler(EtcdV3Handler):
    """One node's agent whose workers stay."""

    living = True

    def __init__(self, parameters: RendezvousParameters) -> None:
        super().__init__(parameters)
        self._expected = 0  # workers on this node
        self._inside: dict[int, int] = {}  # worker -> generation it is in, 0: in none, and ready
        self._writing: set[int] = set()  # workers that a departing node still waits for
        self._leaving = self._called = False
        self._broken: Exception | None = None
        self._starts = 0
        self._answered: dict[int, float] = {}  # worker -> when it last answered
        self._crashes_alone = Crashes()

    def next_rendezvous(self) -> RendezvousInfo:
        """Let the workers start: they meet the others when they are warm, not here."""
        self._judge_last_start()
        self._called = self._progressed = False
        if not self._started:
            self._exchange.start()
            self._agent.start()
            self._started = True
            for run in (self._follow, self._ping):
                threading.Thread(target=run, name=f"everstep-{run.__name__}", daemon=True).start()
        if self.ended:
            raise RunOverError(self.ended.reason)
        if self._broken:
            raise self._broken
        self._starts += 1
        where = self._open_store()
        host, port = _split(where)
        store = PrefixStore(f"start/{self._starts}", self._stores[where])
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(host, port))

    def num_nodes_waiting(self) -> int:
        """None that torchrun should know of."""
        return 0

    def leave(self) -> None:
        """The node has been told to go: workers leave after a step all agree on, then this agent departs."""
        self._leaving = True
        super().leave()

    def wait_departed(self, seconds: float) -> bool:
        """Whether the departure is complete, and its workers write nothing any more, in so many seconds."""
        deadline = time.monotonic() + seconds
        departed = super().wait_departed(seconds)
        with self._lock:
            self._writing = set(self._inside)
        self._exchange.broadcast({"flush": True})
        while self._writing and time.monotonic() < deadline:
            time.sleep(FLUSH_POLL_SECONDS)
        return departed and not self._writing

    def _crashed(self) -> bool:
        return self._called and not self._progressed

    # --- the thread that passes generations on ---

    def _follow(self) -> None:
        while True:
            try:
                place = self._agent.next_place()
            except (LeftError, RunEndedError):
                return
            except Exception as error:
                self._broken = error
                self._say_farewell()
                return
            self._call(place)

    def _call(self, place: Place) -> None:
        generation = place.generation
        host, port = _split(generation.store)
        with self._lock:
            if not self._all_out():
                return  # one has died meanwhile, and this node is being withdrawn
            self._place, self._called = place, True
            self._inside = dict.fromkeys(self._inside, generation.number)
            self._crashes_alone.called(self._inside)
        log.info(
            "generation %d: node %d of %d",
            generation.number,
            place.rank,
            len(generation.members),
        )
        self._exchange.broadcast(
            {
                "form": generation.number,
                "node": place.rank,
                "nodes": len(generation.members),
                "host": host,
                "port": port,
                "committed": dataclasses.astuple(self._agent.committed),
            }
        )

    def _ping(self) -> None:
        """Ask each worker for a sign of life: one that is stopped holds a lease up by its living agent."""
        before = time.monotonic()
        while True:
            time.sleep(PING_SECONDS)
            began = time.monotonic()
            if began - before > 2 * PING_SECONDS:  # this agent has itself been frozen, or starved
                self._answered = dict.fromkeys(self._answered, began)
            before = began
            self._exchange.broadcast({"ping": began})
            for pid, answered in list(self._answered.items()):
                if began - answered > FROZEN_SECONDS:
                    self._kill(pid)

    # --- what workers say, and what they are told ---

    def _hear(self, pid: int, message: channel.Message) -> channel.Message | None:
        if "crashed" in message:
            return {"again": self._may_start_again(int(message["crashed"]))}
        if "hello" in message:
            self._expected = int(message.get("local_world_size", 1))
            return self._farewell() or {"welcome": 0}
        if "unfit" in message:
            self._broken = EverstepError(str(message["unfit"]))
            return None
        if "pong" in message:
            self._answered[pid] = time.monotonic()
            return None
        if "stalled" in message:
            self._agent.stalled()
            return None
        if "progressed" in message:
            with self._lock:
                self._crashes_alone.proven(pid)
        if "flushed" in message:
            self._writing.discard(pid)
            return None
        if "out" in message:
            self._note_out(pid, int(message["out"]))
            return None
        return super()._hear(pid, message)

    def _note_out(self, pid: int, generation: int) -> None:
        with self._lock:
            if generation < self._inside.get(pid, 0):
                return  # said before it heard of the newer one
            self._inside[pid] = 0
            complete = self._all_out()
        if complete and not self.ended:
            self._agent.ready()

    def _all_out(self) -> bool:
        return len(self._inside) == self._expected > 0 and not any(self._inside.values())

    def _forget(self, pid: int) -> None:
        with self._lock:
            known = self._inside.pop(pid, None)
            self._answered.pop(pid, None)
            self._writing.discard(pid)
            replaced = self._all_out()
        if known is None or self.ended:
            return
        log.warning("worker %d is gone: this node leaves the group until it is replaced", pid)
        self._agent.withdraw()
        if replaced:  # its successor was here before the news of its end
            self._agent.ready()
        elif self._inside:
            self._stop(f"worker {pid} of this node is gone")

    def _may_start_again(self, pid: int) -> bool:
        """Whether a worker that crashed may start by itself, while its neighbours live on."""
        self._forget(pid)  # its supervisor may know before its line is seen to break
        with self._lock:
            verdict = self._crashes_alone.judge(pid)
        if verdict is Verdict.GIVE_UP:
            self._give_up()
        return verdict is Verdict.ALONE and not self.ended and not self._broken

    def _stop(self, reason: str) -> None:
        number = self._place.generation.number if self._place else 0
        log.warning("generation %d is over: %s", number, reason)
        self._exchange.broadcast({"stop": reason, "generation": number})
        _later(OBEY_SECONDS, functools.partial(self._kill_who_stayed, number))

    def _kill_who_stayed(self, number: int) -> None:
        with self._lock:
            stayed = [pid for pid, inside in self._inside.items() if inside == number != 0]
        for pid in stayed:
            self._kill(pid)

    def _regroup(self, reason: str) -> None:
        number = self._place.generation.number if self._place else 0
        log.info("generation %d ends after a step: %s", number, reason)
        self._exchange.broadcast(
            {"regroup": reason, "generation": number, "leaving": self._leaving}
        )

    def _note_end(self, ended: Ended) -> None:
        self.ended = ended
        self._say_farewell()

    def _say_farewell(self) -> None:
        if farewell := self._farewell():
            self._exchange.broadcast(farewell)

    def _farewell(self) -> channel.Message | None:
        """For the workers that are here when all is over, and for one that is just being started again."""
        if self.ended:
            code = 0 if self.ended.finished else None
            return {"end": f"the run is over: {self.ended.reason}", "code": code}
        return {"end": f"membership ended: {self._broken}"} if self._broken else None
