"""Choice of the members whose leases an agent probes, because they may be lost without notice. Pure."""

from everstep.elastic.membership.coordinators import is_large
from everstep.elastic.membership.generations import (
    Generation,
    GroupLimits,
    next_training_member,
    probes_stalls,
    training_members,
)
from everstep.elastic.membership.run_view import RunView

MAX_SUSPECTS = 8  # simultaneous suspects: a whole rack may be lost


def suspects_of_stall(
    view: RunView, identity: str, group: Generation, limits: GroupLimits
) -> list[str]:
    """Return the next member by rank, which this agent's workers may be waiting for.

    Only a few agents probe, to limit the load on etcd; in a large run, only the first coordinator does.
    """
    if is_large(limits) and view.ranked_coordinators(limits)[:1] != [identity]:
        return []
    if not is_large(limits) and not probes_stalls(identity, group):
        return []
    name = next_training_member(identity, view.members, group)
    return [name] if name else []


def suspects_between_groups(view: RunView, identity: str, limits: GroupLimits) -> list[str]:
    """Return the members that have not stopped, if this agent is the next proposer."""
    running = training_members(view.members, view.current)
    if not running or view.first_candidate(limits) != identity:
        return []
    return [member.identity for member in running[:MAX_SUSPECTS]]
