"""Choice of the peers that an agent probes, and evaluation of their responses. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from everstep.elastic.membership.connectivity import (
    FUTILE_GENERATIONS,
    Admission,
    Connectivity,
    cut_off_reason,
    futile_reason,
)
from everstep.elastic.membership.events import Action, GiveUp, Postpone, Probe, Probed
from everstep.elastic.membership.generations import Generation, GroupLimits, still_training
from everstep.elastic.membership.probed_members import MAX_PROBED, members_to_probe
from everstep.elastic.membership.run_view import RunView


@dataclass
class PeerProbes:
    """The probes of one agent.

    Attributes:
        connectivity: the peers that this agent can train with.
        pending: number of probes without a response yet.
    """

    connectivity: Connectivity = field(default_factory=Connectivity)
    pending: int = 0
    _admission: Admission = field(default_factory=Admission)

    @property
    def retry_at(self) -> float:
        """The earliest time at which a refused joiner tries again."""
        return self._admission.retry_at

    def next_due(self, view: RunView) -> Iterable[float]:
        """Return when avoided members may be probed again."""
        return [] if self.pending else self.connectivity.next_due(view.members)

    def avoided(self, view: RunView) -> tuple[str, ...]:
        """Return the members to avoid, sorted."""
        return self.connectivity.avoided(view.members)

    def of_avoided(self, view: RunView, identity: str, now: float) -> list[Action]:
        """Return the probe of avoided members that is due."""
        if self.pending:
            return []
        return self._request(self.connectivity.due(view.members, now), view, identity)

    def after_futile(self, view: RunView, identity: str, group: Generation) -> list[Action]:
        """Return the probe of the members of a futile generation; give up after too many of them."""
        self.connectivity.failed()
        if self.connectivity.futile >= FUTILE_GENERATIONS:
            others = [view.node(name) for name in group.members if name != identity]
            return [GiveUp(futile_reason(others))]
        return self._request(group.members[:MAX_PROBED], view, identity)

    def before_registration(
        self, view: RunView, limits: GroupLimits, now: float
    ) -> list[Action] | None:
        """Return the probe with which a joiner begins; None if it may register now."""
        if self.pending or now < self._admission.retry_at:
            return []
        if not self._admission.probed and (
            probe := self._request(members_to_probe(view, limits), view, None)
        ):
            return probe
        self._admission.probed = False
        return None

    def take(self, probed: Probed, identity: str | None, now: float) -> None:
        """Record the response to a probe."""
        self.pending -= 1
        self.connectivity.probed(identity or "", probed.targets, probed.unreachable, now)

    def admit(self, probed: Probed, view: RunView, now: float) -> list[Action]:
        """Return the actions after a joiner's probe; it registers only if it reaches enough members."""
        training = {member.identity for member in still_training(view.members, view.current)}
        if self._admission.judge(training.intersection(probed.targets), probed.unreachable, now):
            return []
        reason = cut_off_reason(sorted(view.node(name) for name in probed.unreachable))
        if self._admission.refusals >= FUTILE_GENERATIONS:
            return [GiveUp(f"{reason}; {FUTILE_GENERATIONS} attempts failed")]
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
        self.pending += 1
        return [Probe(targets)]
