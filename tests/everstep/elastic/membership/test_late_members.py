"""How long a group waits for fenced members that were late."""

import pytest

from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.membership.late_members import RETURN_SECONDS, LateMembers
from everstep.elastic.membership.run_view import RunView

LIMITS = GroupLimits(min_members=1, max_members=3)
NEVER = float("-inf")


def view_of(*identities: str, fenced: tuple[str, ...] = ("node-2.1",), number: int = 4) -> RunView:
    """Return a view in which these identities have keys; the generation is a group of three nodes."""
    members = {name: Member(name, name.rpartition("-")[0], "10.0.0.1") for name in identities}
    group = ("node-0-a", "node-1-a", "node-2-a")
    return RunView(members, current=Generation(number, group, fenced=fenced), revision=9)


FENCED = view_of("node-0-a", "node-1-a", fenced=("node-2-a",))


def test_a_group_waits_for_a_fenced_member_from_its_first_heartbeat() -> None:
    late_members = LateMembers()
    assert late_members.awaited_until(FENCED, LIMITS) == NEVER, "it may be lost"

    late_members.record("node-2-a", FENCED, 10.0)
    late_members.record("node-2-a", FENCED, 10.2)

    assert late_members.awaited_until(FENCED, LIMITS) == 10.0 + RETURN_SECONDS, (
        "a node that never registers must not delay the others again"
    )


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (view_of("node-0-a", "node-1-a", "node-2-b", fenced=("node-2-a",)), "it is registered"),
        (view_of("node-0-a", "node-1-a", fenced=()), "it may put its key back itself"),
        (view_of("node-0-a", "node-1-a", "node-3-a", fenced=("node-2-a",)), "no place is free"),
    ],
)
def test_a_group_does_not_wait(view: RunView, reason: str) -> None:
    late_members = LateMembers()
    late_members.record("node-2-a", view, 10.0)

    assert late_members.awaited_until(view, LIMITS) == NEVER, reason


def test_the_wait_ends_with_the_generation() -> None:
    late_members = LateMembers()
    late_members.record("node-2-a", FENCED, 10.0)
    next_view = view_of("node-0-a", "node-1-a", fenced=(), number=5)
    next_view.current = Generation(5, ("node-0-a", "node-1-a"))

    assert late_members.awaited_until(next_view, LIMITS) == NEVER
    late_members.record("node-2-a", next_view, 11.0)
    assert late_members.awaited_until(next_view, LIMITS) == NEVER, "it is not a member"
