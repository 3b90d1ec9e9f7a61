"""The eviction drill: what to do to which machine, and when.

One node is drained and comes back; then the node of rank 0, the one that keeps the journal and
writes the checkpoints, vanishes without a word and comes back. `decide` is a pure function of
what has happened so far, with nothing remembered: a drill that was cut short goes on where it
stopped.
"""

from dataclasses import dataclass

from everstep.cli.run import Event, Run

WARM_UP_SHARE = 0.12
"""Share of all steps that are trained in peace first, to have something to compare with."""

SETTLE_STEPS = 12
"""Steps that the whole group finishes between one machine's return and the next one's loss."""

ALONE_STEPS = 6
"""Steps that the survivors finish before the lost machine comes back."""

LAST_SHARE = 0.85
"""Share of all steps after which no machine is taken any more: too late to see it come back."""


ACTS = 2
"""A drain, which gives notice, and a vanishing, which does not."""


@dataclass(frozen=True)
class Decision:
    """What to do now: a verb and a node, or neither while waiting; always with the reason."""

    why: str
    verb: str = ""
    node: str = ""
    over: bool = False


def decide(run: Run) -> Decision:
    """Decide the next action from the journals and from what was already done to machines."""
    if run.finished:
        return Decision("the training is finished", over=True)
    if not run.steps:
        return Decision("waiting for the first step")
    done = run.training_events
    away = _away(done)
    if away is not None:
        return _bring_back(run, away)
    losses = [event for event in done if event.kind in ("drain", "vanish")]
    if len(losses) >= ACTS:
        return Decision("both machines are back", over=True)
    return _take_next(run, losses)


def _away(done: tuple[Event, ...]) -> Event | None:
    """The last machine that was taken and has not been brought back."""
    last = {event.node: event for event in done}
    gone = [event for event in last.values() if event.kind in ("drain", "vanish")]
    return gone[-1] if gone else None


def _bring_back(run: Run, lost: Event) -> Decision:
    before = [step.generation for step in run.steps if step.at <= lost.at]
    generation = before[-1] if before else -1
    alone = [step for step in run.steps if step.at > lost.at and step.generation > generation]
    if len(alone) < ALONE_STEPS:
        return Decision(f"{lost.node} is gone; waiting until the others have trained on")
    return Decision(f"the others trained on without {lost.node}", "return", lost.node)


def _take_next(run: Run, losses: list[Event]) -> Decision:
    newest = run.steps[-1]
    total = run.newest_start.number("total_steps") if run.newest_start else 0
    full = max(step.world_size for step in run.steps)
    settled = _steps_at_full_size(run, full)
    if losses and (settled < SETTLE_STEPS or not _rejoined(run, losses[-1].node)):
        return Decision(f"waiting until {losses[-1].node} has joined and trains steadily")
    if newest.step > total * LAST_SHARE:
        return Decision("the training is nearly done: no machine is taken any more", over=True)
    if newest.step < total * WARM_UP_SHARE:
        return Decision("training in peace for a while")
    group = run.members(newest.generation)
    others = sorted(node for rank, node in group.items() if rank and node != group.get(0))
    if not others:
        return Decision("one worker alone cannot be drilled", over=True)
    if losses:
        return Decision("the node of rank 0 goes without a word", "vanish", group[0])
    return Decision("a node is drained, as for maintenance", "drain", others[0])


def _steps_at_full_size(run: Run, full: int) -> int:
    """How many steps in a row, up to now, the whole group has finished."""
    count = 0
    for step in reversed(run.steps):
        if step.world_size != full:
            break
        count += 1
    return count


def _rejoined(run: Run, node: str) -> bool:
    back = [e.at for e in run.training_events if e.node == node and e.kind == "return"]
    starts = [line.at for line in run.starts if line.values.get("node") == node]
    return bool(back) and any(at > back[-1] for at in starts)
