"""The eviction drill of `everstep up --drill`: which node to disrupt, how and when.

One node is drained and returns. Then the node of rank 0, which writes the journal and the checkpoints,
vanishes without notice and returns. `decide` is a pure function of the events so far and keeps no
state, so an interrupted drill continues where it stopped. `DrillRunner` carries the decisions out.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everstep.cli.report.run_record import MachineEvent, RunRecord

if TYPE_CHECKING:
    from cloudtwin.facade import Twin

WARM_UP_SHARE = 0.12
"""Share of all steps trained before the first disruption, as a baseline."""

SETTLE_STEPS = 12
"""Steps that the full group completes between one node's return and the next loss."""

SURVIVOR_STEPS = 6
"""Steps that the survivors complete before the lost node returns."""

LATEST_SHARE = 0.85
"""Share of all steps after which no node is disrupted: a later return could not be observed."""

DISRUPTIONS = 2
"""Number of disruptions: a drain, with notice, and a vanished node, without notice."""


@dataclass(frozen=True)
class DrillDecision:
    """The next action of the drill.

    Attributes:
        reason: reason for the choice, for the user.
        action: `drain`, `vanish` or `return`; empty while waiting.
        node: node to act on; empty while waiting.
        finished: True if no action follows.
    """

    reason: str
    action: str = ""
    node: str = ""
    finished: bool = False


def decide(run: RunRecord) -> DrillDecision:
    """Return the next action, from the journals and the events so far."""
    if run.finished:
        return DrillDecision("training has finished", finished=True)
    if not run.steps:
        return DrillDecision("waiting for the first step")
    events = run.training_events
    unreturned_loss = _unreturned_loss(events)
    if unreturned_loss is not None:
        return _return_node(run, unreturned_loss)
    losses = [event for event in events if event.kind in ("drain", "vanish")]
    if len(losses) >= DISRUPTIONS:
        return DrillDecision("both nodes have returned", finished=True)
    return _next_disruption(run, losses)


def _unreturned_loss(events: tuple[MachineEvent, ...]) -> MachineEvent | None:
    """Return the last loss of a node that has not returned; None if all have returned."""
    latest_by_node = {event.node: event for event in events}
    losses = [event for event in latest_by_node.values() if event.kind in ("drain", "vanish")]
    return max(losses, key=lambda event: event.at, default=None)


def _return_node(run: RunRecord, loss: MachineEvent) -> DrillDecision:
    earlier_generations = [step.generation for step in run.steps if step.at <= loss.at]
    generation = earlier_generations[-1] if earlier_generations else -1
    survivor_steps = [
        step for step in run.steps if step.at > loss.at and step.generation > generation
    ]
    if len(survivor_steps) < SURVIVOR_STEPS:
        return DrillDecision(f"{loss.node} is gone; waiting until the others have continued")
    return DrillDecision(f"the others continued without {loss.node}", "return", loss.node)


def _next_disruption(run: RunRecord, losses: list[MachineEvent]) -> DrillDecision:
    newest_step = run.steps[-1]
    full_size = max(step.world_size for step in run.steps)
    settled_steps = _steps_at_full_size(run, full_size)
    if losses and (settled_steps < SETTLE_STEPS or not _has_rejoined(run, losses[-1].node)):
        return DrillDecision(f"waiting until {losses[-1].node} has rejoined and training is steady")
    if newest_step.step > run.total_steps * LATEST_SHARE:
        return DrillDecision("training is nearly complete: no more disruptions", finished=True)
    if newest_step.step < run.total_steps * WARM_UP_SHARE:
        return DrillDecision("training without disruption for a baseline")
    group = run.members(newest_step.generation)
    other_nodes = sorted(node for rank, node in group.items() if rank and node != group.get(0))
    if not other_nodes:
        return DrillDecision("a drill needs workers on at least two nodes", finished=True)
    if losses:
        return DrillDecision("the node of rank 0 vanishes without notice", "vanish", group[0])
    return DrillDecision("drain a node, as for maintenance", "drain", other_nodes[0])


def _steps_at_full_size(run: RunRecord, full_size: int) -> int:
    """Return the number of latest consecutive steps that the full group completed."""
    count = 0
    for step in reversed(run.steps):
        if step.world_size != full_size:
            break
        count += 1
    return count


def _has_rejoined(run: RunRecord, node: str) -> bool:
    return_times = [
        event.at for event in run.training_events if event.node == node and event.kind == "return"
    ]
    start_times = [start.at for start in run.starts if start.values.get("node") == node]
    return bool(return_times) and any(started_at > return_times[-1] for started_at in start_times)


class DrillRunner:
    """Runner of the drill alongside the live view.

    It is called with the run record after each reading and returns the current action of the drill. A drain can take
    as long as a worker's termination grace period, so actions run one at a time on a separate thread.
    """

    def __init__(self, twin: "Twin") -> None:
        self._twin = twin
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="drill")
        self._running: Future[None] | None = None
        self._note = ""

    def __enter__(self) -> "DrillRunner":
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(wait=True)

    def __call__(self, run: RunRecord) -> str:
        """Decide on the next action, start it, and return the current action of the drill.

        Raises:
            TwinError: the previous action failed.
        """
        if self._running is not None:
            if not self._running.done():
                return self._note
            self._running.result()
            self._running = None
            return self._note  # this reading may not contain the event of the action yet
        decision = decide(run)
        self._note = decision.reason
        if decision.action:
            self._note = f"{decision.action} {decision.node}: {decision.reason}"
            self._running = self._executor.submit(self._act, decision)
        return self._note

    def _act(self, decision: DrillDecision) -> None:
        actions = {
            "drain": self._twin.drain,
            "vanish": self._twin.vanish,
            "return": self._twin.return_node,
        }
        actions[decision.action](decision.node)
