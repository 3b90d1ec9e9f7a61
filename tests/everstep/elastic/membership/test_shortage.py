"""The message about nodes that a group lacks."""

import itertools
from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.membership.run_view import RunView
from everstep.elastic.membership.shortage import (
    CHANGE_SECONDS,
    QUIET_SECONDS,
    REPEAT_SECONDS,
    Shortage,
    ShortageLog,
    find_shortage,
)

LIMITS = GroupLimits(min_members=2, max_members=4)


def view(
    waiting: Iterable[str], group: tuple[str, ...] = (), training: Iterable[str] = ()
) -> RunView:
    """Return a view after generation 5 of `group`: some members wait, others still train."""
    members = [Member(name, name, "10.0.0.1", 5) for name in waiting]
    members += [Member(name, name, "10.0.0.1", 4) for name in training]
    generation = Generation(5, group) if group else None
    return RunView({member.identity: member for member in members}, current=generation)


def test_an_agent_that_is_alone_lacks_a_node_and_names_the_lost_one() -> None:
    shortage = find_shortage(view(["a"], group=("a", "b")), LIMITS)

    assert shortage == Shortage(1, 2, ("b",))
    assert str(shortage) == "waiting for nodes: 1 of at least 2 ready; lost b"


def test_before_the_first_generation_no_node_is_lost() -> None:
    assert str(find_shortage(view(["a"]), LIMITS)) == "waiting for nodes: 1 of at least 2 ready"


def test_a_node_that_came_back_under_a_new_identity_is_not_lost() -> None:
    group = ("a-1", "b-1", "c-1")
    view_after_return = RunView(
        {"b-2": Member("b-2", "b", "10.0.0.1", 5)}, current=Generation(5, group)
    )

    assert find_shortage(view_after_return, LIMITS) == Shortage(1, 2, ("a", "c"))


def test_with_enough_ready_members_there_is_no_shortage() -> None:
    assert find_shortage(view(["a", "b"]), LIMITS) is None


def test_while_others_still_train_no_shortage_is_reported() -> None:
    assert find_shortage(view(["a"], group=("a", "b"), training=["b"]), LIMITS) is None


def test_a_regroup_shorter_than_a_second_is_not_logged() -> None:
    log = ShortageLog()

    assert log.due(Shortage(1, 2), 10.0) is None
    assert log.due(None, 10.0 + QUIET_SECONDS / 2) is None
    assert log.due(Shortage(1, 2), 10.0 + QUIET_SECONDS) is None, "a new shortage has begun"


def test_a_new_shortage_is_logged_although_the_last_message_was_the_same() -> None:
    log = ShortageLog()
    times = [0.0, QUIET_SECONDS]
    assert [bool(log.due(Shortage(1, 2), now)) for now in times] == [False, True]
    log.due(None, 2.0)

    assert [bool(log.due(Shortage(1, 2), 3.0 + now)) for now in times] == [False, True]


@given(ready=st.lists(st.integers(0, 8), min_size=1, max_size=300))
@example(ready=[1] * 150)  # a random shortage rarely stays the same for a minute
def test_log_lines_have_a_minimum_interval_and_the_log_is_silent_for_at_most_a_minute(
    ready: list[int],
) -> None:
    log, lines = ShortageLog(), list[tuple[int, int]]()
    for second, number in enumerate(ready):
        if log.due(Shortage(number, 9), second):
            lines.append((second, number))

    if len(ready) > QUIET_SECONDS:
        assert lines[0][0] == QUIET_SECONDS
    for (earlier, earlier_line), (later, later_line) in itertools.pairwise(lines):
        assert later - earlier >= (CHANGE_SECONDS if earlier_line != later_line else REPEAT_SECONDS)
        assert later - earlier <= REPEAT_SECONDS
    if lines:
        assert len(ready) - 1 - lines[-1][0] < REPEAT_SECONDS, "the next line would be due"
