"""When a lease has lapsed, from whole seconds alone, against a lease whose renewals are known."""

import math

from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.lapse import Lapse

TTL_SECONDS = 2.0
times = st.floats(0.0, 6.0)


def left(renewals, moment):
    """What etcd says at a moment of a lease granted at 0; of one that has lapsed 0 until its next look."""
    last = max([0.0, *(each for each in renewals if each <= moment)])
    return math.trunc(last + TTL_SECONDS - moment)


def alive(renewals):
    """The renewals that came in time; those after a lapse are refused."""
    kept = [0.0]
    for moment in sorted(renewals):
        if moment < kept[-1] + TTL_SECONDS:
            kept.append(moment)
    return kept


@given(st.lists(times, max_size=12), st.lists(st.tuples(times, st.floats(0.0, 0.3))))
def test_a_lease_that_stands_is_never_said_to_have_lapsed(renewed, looks):
    renewals = alive(renewed)
    lapses_at = renewals[-1] + TTL_SECONDS
    lapse, free_at = Lapse(7), 0.0

    for moment, takes in sorted(looks):
        asked = max(moment, free_at)
        free_at = asked + takes
        if free_at > lapses_at + 0.9:
            break  # etcd has looked for itself by then
        if lapse.told(left(renewals, asked + takes / 2), asked, free_at):
            assert free_at >= lapses_at


@given(st.floats(0.05, 0.25), st.floats(0.0, 0.9), st.integers(0, 4))
def test_one_that_is_looked_at_before_its_last_second_is_known_two_looks_after_it_lapsed(
    gap, first, renewals
):
    kept = [0.6 * number for number in range(renewals + 1)]
    lapses_at = kept[-1] + TTL_SECONDS
    lapse, moment = Lapse(7), first

    while not lapse.told(left(kept, moment), moment, moment):
        moment += gap

    assert lapses_at <= moment <= lapses_at + 2 * gap + 1e-6


def test_a_renewal_that_nobody_saw_may_hide_in_a_long_gap():
    lapse = Lapse(7)

    assert not lapse.told(0, 1.5, 1.5)
    assert not lapse.told(0, 2.6, 2.6), "it may have been renewed at 1.6"
    assert not lapse.told(0, 3.0, 3.0)
    assert not lapse.told(0, 3.4, 3.4)
    assert lapse.told(0, 3.6, 3.6)
