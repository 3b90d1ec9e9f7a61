"""Choice of the peers that an agent probes, and evaluation of their responses. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from everstep.elastic.membership.connectivity import (
    MAX_GENERATIONS_WITHOUT_STEP,
    Admission,
    Connectivity,
    cut_off_reason,
    give_up_reason,
)
from everstep.elastic.membership.events import Action, GiveUp, Postpone, Probe, Probed
from everstep.elastic.membership.generations import Generation, GroupLimits, training_members
from everstep.elastic.membership.probed_members import MAX_PROBED, members_to_probe
from everstep.elastic.membership.run_view import RunView


@dataclass
class PeerProbes:
    """The probes of one agent.

    Attributes:
        connectivity: the peers that this agent can train with.
        pending_probes: number of probes without a result yet.
    """

    connectivity: Connectivity = field(default_factory=Connectivity)
    pending_probes: int = 0
    _admission: Admission = field(default_factory=Admission)

    @property
    def retry_at(self) -> float:
        """The earliest time at which a refused joiner tries again."""
        return self._admission.retry_at

    def next_due(self, view: RunView) -> Iterable[float]:
        """Return when avoided members may be probed again."""
        return [] if self.pending_probes else self.connectivity.next_due(view.members)

    def avoided(self, view: RunView) -> tuple[str, ...]:
        """Return the members to avoid, sorted."""
        return self.connectivity.avoided(view.members)

    def probe_avoided(self, view: RunView, identity: str, now: float) -> list[Action]:
        """Return the probe of avoided members that is due."""
        if self.pending_probes:
            return []
        due_members = self.connectivity.due_members(view.members, now)
        return self._request(due_members, view, identity) if due_members else []

    def probe_after_failure(self, view: RunView, identity: str, group: Generation) -> list[Action]:
        """Return a probe of the members of a generation that ended without a step, or `GiveUp` after too many."""
        self.connectivity.record_failure(group.members)
        if self.connectivity.generations_without_step >= MAX_GENERATIONS_WITHOUT_STEP:
            others = [view.node(name) for name in group.members if name != identity]
            return [GiveUp(give_up_reason(others))]
        return self._request(group.members[:MAX_PROBED], view, identity)

    def probe_before_registration(
        self, view: RunView, limits: GroupLimits, now: float
    ) -> list[Action] | None:
        """Return the probe before a joiner's registration; empty while it must wait, None if it may register now."""
        if self.pending_probes or now < self._admission.retry_at:
            return []
        if not self._admission.is_admitted and (
            probe := self._request(members_to_probe(view, limits), view, None)
        ):
            return probe
        self._admission.is_admitted = False
        return None

    def record(self, probed: Probed, identity: str | None, now: float) -> None:
        """Record the result of a probe."""
        self.pending_probes -= 1
        self.connectivity.record_probe(identity or "", probed.targets, probed.unreachable, now)

    def admit(self, probed: Probed, view: RunView, now: float) -> list[Action]:
        """Return the actions after a joiner's probe; the joiner registers only if it reaches enough members."""
        training = {member.identity for member in training_members(view.members, view.current)}
        if self._admission.judge(training.intersection(probed.targets), probed.unreachable, now):
            return []
        reason = cut_off_reason(sorted(view.node(name) for name in probed.unreachable))
        if self._admission.refusals >= MAX_GENERATIONS_WITHOUT_STEP:
            return [GiveUp(f"{reason}; {MAX_GENERATIONS_WITHOUT_STEP} attempts failed")]
        return [Postpone(reason)]

    def _request(self, names: Iterable[str], view: RunView, identity: str | None) -> list[Action]:
        """Return the action that probes these members, or none if no member can be probed."""
        members = view.coordinators.members | view.members
        targets = tuple(
            (name, members[name].endpoint)
            for name in names
            if name != identity and name in members and members[name].endpoint
        )
        if not targets:
            return []
        self.pending_probes += 1
        return [Probe(targets)]
