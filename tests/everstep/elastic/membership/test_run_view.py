"""The facts that one agent derives from its view of a run, for any view."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.membership.events import GenerationPut, MembershipSnapshot
from everstep.elastic.membership.generations import (
    Generation,
    GroupLimits,
    Member,
    training_members,
    trains,
    waiting_members,
)
from everstep.elastic.membership.run_view import RunView

IDENTITIES = [f"node{number}-abcd" for number in range(6)]
SMALL = GroupLimits(max_members=6)
LARGE = GroupLimits(max_members=6, full_view_members=3, coordinators=2)

identities = st.sampled_from(IDENTITIES)
limits = st.sampled_from([SMALL, LARGE])


@st.composite
def views(draw: st.DrawFn) -> RunView:
    members = {
        name: Member(
            name,
            name,
            "10.0.0.1",
            after=draw(st.integers(0, 3)),
            leaving=draw(st.booleans()),
            order=draw(st.integers(0, 3)),
            avoids=tuple(draw(st.lists(identities, max_size=1))),
        )
        for name in draw(st.lists(identities, unique=True))
    }
    group = draw(st.lists(identities, unique=True))
    current = draw(st.sampled_from([None, Generation(draw(st.integers(1, 3)), tuple(group))]))
    view = RunView(members=members, current=current)
    for name in draw(st.lists(identities, unique=True, max_size=3)):
        view.coordinators.members[name] = Member(name, name, "10.0.0.1")
    return view


@given(views(), limits)
def test_the_first_candidate_is_the_first_of_all_candidates(
    view: RunView, limits: GroupLimits
) -> None:
    candidates = [member.identity for member in view.candidates(limits)]

    assert [view.first_candidate(limits)] == (candidates[:1] or [""])


@given(views(), identities, limits)
def test_a_member_is_left_out_if_it_waits_and_no_group_may_include_it(
    view: RunView, identity: str, limits: GroupLimits
) -> None:
    waits = identity in [m.identity for m in waiting_members(view.members, view.current)]
    is_candidate = identity in [member.identity for member in view.candidates(limits)]

    assert view.is_left_out(identity, limits) == (waits and not is_candidate)


@given(views())
def test_every_member_either_trains_or_waits_or_leaves(view: RunView) -> None:
    current, members = view.current, view.members
    training = [
        member
        for member in members.values()
        if current and member.identity in current.ranks and trains(member, current)
    ]

    assert training_members(members, current) == training
    assert waiting_members(members, current) == [
        member for member in members.values() if not member.leaving and member not in training
    ]


rows = st.tuples(identities, st.integers(1, 2), st.integers(1, 2))
groups = st.lists(
    st.tuples(st.lists(rows, unique_by=lambda row: row[0]), st.lists(identities, max_size=1)),
    max_size=4,
)


@given(groups)
def test_an_agent_without_a_full_view_has_the_members_that_the_newest_generation_describes(
    groups: list[tuple[list[tuple[str, int, int]], list[str]]],
) -> None:
    view = RunView()
    view.adopt(MembershipSnapshot((), None, 0, complete=False))
    for number, (rows, fenced) in enumerate(groups, 1):
        generation = Generation(
            number,
            tuple(name for name, _, _ in rows),
            fenced=tuple(fenced),
            endpoints=tuple(f"10.0.0.{host}:1" for _, host, _ in rows),
            orders=tuple(order for _, _, order in rows),
        )
        view.observe(GenerationPut(generation, number))

        assert {
            name: (member.node, member.address, member.endpoint, member.order)
            for name, member in view.members.items()
        } == {
            name: (name[:5], f"10.0.0.{host}", f"10.0.0.{host}:1", order)
            for name, host, order in rows
            if name not in fenced
        }
        assert all(trains(member, generation) for member in view.members.values()), (
            "they were in the group when it was agreed"
        )
        for name, member in view.members.items():  # this agent's own entry changes when it waits
            view.members[name] = replace(member, after=9)
