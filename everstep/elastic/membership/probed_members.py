"""Choice of the members that an agent probes before it registers. Pure."""

from everstep.elastic.membership.coordinators import is_large
from everstep.elastic.membership.generations import GroupLimits, training_members, waiting_members
from everstep.elastic.membership.run_view import RunView

MAX_PROBED_TRAINING = 8  # training members that a joiner probes
MAX_PROBED = 64  # waiting members that a joiner probes; members probed after a failed generation


def members_to_probe(view: RunView, limits: GroupLimits) -> list[str]:
    """Return the members that a joiner probes: a few that train, or those that wait; in a large run, coordinators."""
    if is_large(limits):
        return view.ranked_coordinators(limits)
    training = training_members(view.members, view.current)
    if training:
        return [member.identity for member in training[:MAX_PROBED_TRAINING]]
    return [member.identity for member in waiting_members(view.members, view.current)[:MAX_PROBED]]
