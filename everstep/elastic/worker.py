"""A worker process's view of its group in `restart` mode: which generation it is in, and when that ends.

`attach()` finds the node's agent and starts one thread that listens. When the agent says `stop` the
process ends at once from that thread, with `RESTART`: gloo cannot abort a collective that waits for
a dead peer, but a process can end, and its memory holds nothing that a checkpoint does not. When it
says `regroup`, the flag `regroup_wanted` goes up; the training loop adds it to a sum that it
exchanges anyway, so that all workers stop after the same step.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from everstep.elastic import channel

log = logging.getLogger(__name__)

RESTART = 75
"""Exit code of a worker that wants to be started again in the next generation (EX_TEMPFAIL)."""

FAILED = 76
"""Exit code of a worker whose failure another start would only repeat; the agent has been told why."""


class Group(Protocol):
    """What a training loop needs to know of its group."""

    @property
    def generation(self) -> int:
        """The generation that this worker is in."""

    @property
    def leaving(self) -> bool:
        """Whether this worker's own node has been told to go."""

    @property
    def regroup_wanted(self) -> bool:
        """Whether somebody wants in or out, so that the loop should stop after a step all agree on."""

    @property
    def regroup_reason(self) -> str:
        """Who wants what."""

    def after_sum(self, votes: float, apply: Callable[[], None]) -> bool:
        """The sum of a step has arrived, with the number of those who want to regroup: apply the step.

        Whether the workers regroup now.
        """

    def agreed(self) -> None:
        """The workers have agreed to regroup outside a step, for instance in an evaluation."""

    def check(self, patience: float = 0.0) -> None:
        """Raise PeerLostError where the group has been no more for so many seconds."""

    def settle(self) -> None:
        """Announce that this worker ends by itself now: from here on a lost peer does not end it."""

    def commit(self, taken_in: int, step: int) -> bool:
        """Commit the snapshot of a step, taken in generation `taken_in`; false: this group may not any more."""

    def finished(self, summary: str) -> None:
        """Tell everybody that the run is complete."""

    def failed(self, reason: str) -> None:
        """Tell everybody that the run has failed and that another try would fail too."""


class Alone:
    """The group of a process that no agent started: nobody joins, nobody is lost, every commit is allowed."""

    generation = 0
    leaving = False
    regroup_wanted = False
    regroup_reason = ""

    def after_sum(self, votes: float, apply: Callable[[], None]) -> bool:
        """The step counts."""
        del votes
        apply()
        return False

    def agreed(self) -> None:
        """Nobody is there to agree with."""

    def check(self, patience: float = 0.0) -> None:
        """Nobody can be lost."""
        del patience

    def settle(self) -> None:
        """Nobody needs to know."""

    def commit(self, taken_in: int, step: int) -> bool:
        """There is no other."""
        del taken_in, step
        return True

    def finished(self, summary: str) -> None:
        """Nobody needs to know."""

    def failed(self, reason: str) -> None:
        """Nobody needs to know."""


class Attached:
    """The group of a worker that an agent started."""

    def __init__(self, line: channel.Line) -> None:
        self._line = line
        self._welcomed, self._answered = threading.Event(), threading.Event()
        self._allowed = self._settling = self._progressed = False
        self.generation = 0
        self.leaving = False
        self.regroup_reason = ""
        threading.Thread(target=self._listen, name="everstep-group", daemon=True).start()
        line.send({"hello": os.getpid(), "rank": int(os.environ.get("RANK", "0"))})
        self._welcomed.wait(30)

    @property
    def regroup_wanted(self) -> bool:
        """Whether the agent has said that somebody wants in or out."""
        return bool(self.regroup_reason)

    def after_sum(self, votes: float, apply: Callable[[], None]) -> bool:
        """Apply the step; says, once, that one has been done, so that this start was worth it.

        Settles first where the workers regroup: a peer that is through with this step sooner ends,
        which must not end this worker before it has saved the step.
        """
        if votes > 0:
            self.settle()
        apply()
        if not self._progressed:
            self._progressed = True
            self._send({"progressed": True})
        return votes > 0

    def agreed(self) -> None:
        """As after a step: a peer's end is not this worker's any more."""
        self.settle()

    def check(self, patience: float = 0.0) -> None:
        """Nothing: where the group is no more, this process ends by itself."""
        del patience

    def settle(self) -> None:
        """Announce that this worker ends by itself now: from here on a lost peer does not end it."""
        self._settling = True
        self._send({"settling": True})

    def commit(self, taken_in: int, step: int) -> bool:
        """Have the agent commit, with etcd; no answer is a no."""
        self._answered.clear()
        self._allowed = False
        self._send({"commit": self.generation, "taken_in": taken_in, "step": step})
        return self._answered.wait(30) and self._allowed

    def finished(self, summary: str) -> None:
        """Tell everybody that the run is complete."""
        self._settling = True
        self._send({"finished": summary})

    def failed(self, reason: str) -> None:
        """Tell everybody that the run has failed and that another try would fail too."""
        self._settling = True
        self._send({"failed": reason})

    def _send(self, message: channel.Message) -> None:
        with contextlib.suppress(OSError):  # a broken line is the listener's to judge
            self._line.send(message)

    def _listen(self) -> None:
        while (message := self._line.receive()) is not None:
            self._hear(message)
        if not self._settling:
            end_process("the node's agent is gone")

    def _hear(self, message: dict[str, Any]) -> None:
        if "welcome" in message:
            self.generation = int(message["welcome"])
            self._welcomed.set()
        if message.get("regroup"):
            self.regroup_reason = str(message["regroup"])
        if "answer" in message:
            self._allowed = bool(message["answer"])
            self._answered.set()
        if message.get("stop") and not self._settling:
            end_process(str(message["stop"]))


def end_process(reason: str, code: int = RESTART) -> NoReturn:
    """End this process at once, also out of a collective that waits for a dead peer."""
    again = ", to start again" if code == RESTART else ""
    with contextlib.suppress(OSError):  # not the logging module: the main thread may hold its lock
        os.write(2, f"worker {os.getpid()} ends{again}: {reason}\n".encode())
    os._exit(code)


def attach() -> Group:
    """The group that this process is in."""
    line = connect_to_agent()
    return Attached(line) if line else Alone()


def connect_to_agent() -> channel.Line | None:
    """The line to the agent that started this process; None where none did.

    An agent that has died meanwhile takes this process with it: on its own it would be a second
    writer, or wait for peers that do not know of it.
    """
    path = os.environ.get(channel.SOCKET_VARIABLE)
    if not path:
        return None
    try:
        return channel.connect(path)
    except OSError as error:
        end_process(f"the node's agent is gone ({error})")
