"""Carries out what the drill decides, beside the live view.

A drain takes as long as the worker's notice, so verbs run on a thread of their own; one at a
time, and nothing is decided while one is under way.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from everstep.cli.drill import Decision, decide
from everstep.cli.run import Run

if TYPE_CHECKING:
    from twin.nodes import Twin


class Driller:
    """Called with the run each time it is read; says what the drill is at."""

    def __init__(self, twin: "Twin") -> None:
        self._twin = twin
        self._hands = ThreadPoolExecutor(max_workers=1, thread_name_prefix="drill")
        self._busy: Future[None] | None = None
        self._note = ""

    def __enter__(self) -> "Driller":
        return self

    def __exit__(self, *_: object) -> None:
        self._hands.shutdown(wait=True)

    def __call__(self, run: Run) -> str:
        """Decide and, where there is something to do, begin to do it.

        Raises:
            EverstepError: the last verb failed.
        """
        if self._busy is not None:
            if not self._busy.done():
                return self._note
            self._busy.result()
            self._busy = None
            return self._note  # the event it wrote is in the next reading, not in this one
        decision = decide(run)
        self._note = decision.why
        if decision.verb:
            self._note = f"{decision.verb} {decision.node}: {decision.why}"
            self._busy = self._hands.submit(self._act, decision)
        return self._note

    def _act(self, decision: Decision) -> None:
        verbs = {
            "drain": self._twin.drain,
            "vanish": self._twin.vanish,
            "return": self._twin.come_back,
        }
        verbs[decision.verb](decision.node)
