"""Proposals of an agent in whose groups no worker has taken a step."""

from everstep.elastic.membership.connectivity import ROTATE_AFTER, Connectivity
from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.membership.proposal import Proposal, next_proposal

LIMITS = GroupLimits(min_members=2, max_members=4)
MEMBERS = [Member(name, name, name, after=3) for name in "abc"]


def proposal_of(identity: str) -> Proposal | None:
    """Return the next proposal of a member after generation 3, after which it is the turn of `a` to be left out."""
    connectivity = Connectivity(generations_without_step=ROTATE_AFTER)
    return next_proposal(MEMBERS, identity, Generation(3, ("a", "b", "d")), LIMITS, connectivity)


def names(proposal: Proposal | None) -> list[str]:
    return [member.identity for member in proposal.members] if proposal else []


def test_one_member_is_left_out_while_no_group_takes_a_step() -> None:
    proposal = proposal_of("b")

    assert names(proposal) == ["b", "c"]
    assert proposal
    assert proposal.wait_seconds < LIMITS.turn_seconds


def test_the_member_to_leave_out_proposes_if_the_first_of_the_others_cannot() -> None:
    proposal = proposal_of("a")

    assert names(proposal) == ["a", "c"], "it may be the only coordinator: no other would propose"
    assert proposal
    assert proposal.wait_seconds >= LIMITS.turn_seconds
