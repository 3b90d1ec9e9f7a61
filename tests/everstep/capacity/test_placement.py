"""The placement policy: rule by rule, and properties of every decision."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from everstep.capacity.lifetimes import PRIOR_LIFETIME_SECONDS, productive_share
from everstep.capacity.placement import (
    EQUAL_SHARE,
    Observation,
    PlacementConfig,
    PlacementDecision,
    PlacementPhase,
    PolicyState,
    ZoneObservation,
    place,
)

CONFIG = PlacementConfig(machines=16)


def zone(
    running: int = 0,
    offered: int | None = None,
    *,
    pending: int = 0,
    price: float | None = 1.0,
    lifetime: float = PRIOR_LIFETIME_SECONDS,
    max_price: float | None = None,
) -> ZoneObservation:
    return ZoneObservation(
        running, pending, offered, price, lifetime_seconds=lifetime, max_price=max_price
    )


def decide(
    *zones: ZoneObservation,
    seconds: float = 100_000,
    short_since: float | None = 0,
    moved_at: float | None = None,
    moving: bool = False,
    config: PlacementConfig = CONFIG,
) -> PlacementDecision:
    policy_state = PolicyState(0, short_since, moved_at)
    return place(config, Observation(seconds, zones, moving), policy_state)


def test_machines_with_an_interruption_notice_count_as_lost() -> None:
    leaving_zone = ZoneObservation(running=16, interrupted=16)

    assert decide(leaving_zone, zone()).search == (1,), "the search begins before they are lost"
    assert decide(leaving_zone, zone(offered=3)).state is PlacementPhase.MOVING


def test_a_complete_group_stays_and_requests_nothing_elsewhere() -> None:
    decision = decide(zone(16), zone(offered=16))

    assert (decision.state, decision.zone, decision.search) == (PlacementPhase.SETTLED, 0, ())
    assert decision.policy_state.short_since is None


def test_the_group_waits_for_requested_machines() -> None:
    assert decide(zone(4, pending=12), zone(offered=16)).state is PlacementPhase.SETTLED


def test_a_shortage_is_watched_before_other_zones_are_tried() -> None:
    first_decision = decide(zone(8), zone(), seconds=50, short_since=None)
    assert first_decision.state is PlacementPhase.SHORT
    assert first_decision.policy_state.short_since == 50

    searching = decide(zone(8), zone(), seconds=50 + CONFIG.short_seconds, short_since=50)
    assert searching.state is PlacementPhase.SEARCHING
    assert searching.search == (1,)
    assert searching.reason == "8 of 16 machines; no other zone has clearly more yet"


def test_without_a_machine_other_zones_are_tried_immediately() -> None:
    decision = decide(zone(0), zone(), zone(), seconds=50, short_since=None)

    assert decision.state is PlacementPhase.SEARCHING
    assert decision.search == (1, 2)


def test_the_group_moves_to_the_zone_with_the_most_machines() -> None:
    decision = decide(zone(4), zone(offered=8), zone(offered=12))

    assert (decision.state, decision.zone) == (PlacementPhase.MOVING, 2)
    assert decision.policy_state == PolicyState(2, moved_at=100_000)
    assert decision.reason == (
        "another zone offers 12 machines, 4 run here; of 2 such zones it has the most productive machines"
    )


def test_of_equal_offers_the_cheapest_wins() -> None:
    decision = decide(zone(0), zone(offered=8, price=2), zone(offered=8, price=1))

    assert decision.zone == 2
    assert decision.reason.endswith(
        "of 2 zones with about as many productive machines it is the cheapest"
    )


def test_of_equal_offers_at_the_same_price_the_first_wins() -> None:
    decision = decide(zone(0), zone(offered=8), zone(offered=8))

    assert decision.zone == 1
    assert decision.reason.endswith("it is the first")


def test_an_unknown_price_counts_as_the_highest() -> None:
    unknown = zone(offered=8, price=None)

    assert decide(zone(0), unknown, zone(offered=8, price=9)).zone == 2
    assert decide(zone(0), unknown, zone(offered=8, price=None)).zone == 1
    assert decide(zone(0), zone(price=None), zone(price=9)).search == (2, 1)
    capped = zone(offered=8, price=None, max_price=9)
    assert decide(zone(0), capped).zone == 0, "its price could be above the ceiling"


def test_a_cheaper_zone_with_clearly_fewer_machines_is_not_entered() -> None:
    assert decide(zone(0), zone(offered=16, price=9), zone(offered=15, price=1)).zone == 1


def test_a_lower_price_alone_moves_no_group() -> None:
    assert decide(zone(16, price=9), zone(offered=16, price=1)).zone == 0
    assert decide(zone(12, price=9), zone(offered=13, price=1)).zone == 0


def test_of_equal_offers_the_zone_whose_machines_live_longer_wins() -> None:
    short_lived = zone(offered=8, lifetime=1800, price=1)
    decision = decide(zone(0), short_lived, zone(offered=8, lifetime=36_000, price=2))

    assert decision.zone == 2
    assert decision.reason.endswith("of 2 such zones it has the most productive machines")


def test_fewer_machines_that_live_longer_are_more_productive() -> None:
    """14 machines that start again every 20 min train for less time than 12 that live for 10 h."""
    few_and_long, many_and_short = zone(offered=12, lifetime=36_000), zone(14, lifetime=1200)
    offer = replace(many_and_short, running=0, offered=14)

    assert decide(zone(4), offer, few_and_long).zone == 2
    assert decide(zone(4), offer, few_and_long, config=replace(CONFIG, start_seconds=0)).zone == 1


def test_lifetimes_that_differ_a_little_leave_the_decision_to_the_price() -> None:
    """After two losses in an hour, the estimates of two zones differ, and the zones may not."""
    expensive, cheap = (
        zone(offered=8, lifetime=5 * 3600, price=2),
        zone(offered=8, lifetime=3 * 3600, price=1),
    )

    assert decide(zone(0), expensive, cheap).zone == 2


def test_a_zone_where_more_machines_would_train_less_is_neither_searched_nor_entered() -> None:
    here, short_lived = zone(10, lifetime=36_000), zone(offered=14, lifetime=300)

    decision = decide(here, short_lived, zone())

    assert (decision.state, decision.zone, decision.search) == (PlacementPhase.SEARCHING, 0, (2,))
    assert decide(here, short_lived).state is PlacementPhase.SHORT
    assert decide(zone(0), short_lived).zone == 1, "any machine is more than none"


def test_a_zone_that_has_not_responded_is_not_entered() -> None:
    assert decide(zone(0), zone()).zone == 0


def test_a_few_more_machines_are_not_worth_a_move() -> None:
    assert decide(zone(12), zone(offered=14)).state is PlacementPhase.SEARCHING
    assert decide(zone(12), zone(offered=15)).state is PlacementPhase.MOVING
    assert decide(zone(1), zone(offered=2)).zone == 0
    assert decide(zone(0), zone(offered=1)).zone == 1, "one machine is more than none"


def test_two_moves_are_at_least_an_interval_apart() -> None:
    decision = decide(zone(0), zone(offered=16), moved_at=100_000 - 3599)
    assert (decision.zone, decision.state) == (0, PlacementPhase.SHORT)
    assert "less than 3600 s ago" in decision.reason

    assert decide(zone(0), zone(offered=16), moved_at=100_000 - 3600).zone == 1


def test_a_move_under_way_is_not_followed_by_another() -> None:
    decision = decide(zone(0), zone(offered=16), moving=True)

    assert (decision.state, decision.zone) == (PlacementPhase.MOVING, 0)
    assert decision.reason == "a move is under way"


def test_a_zone_above_the_maximum_price_is_neither_searched_nor_entered() -> None:
    capped = zone(offered=16, price=2, max_price=1.5)

    assert decide(zone(0), capped).zone == 0
    assert decide(zone(0), zone(offered=16, price=2, max_price=2)).zone == 1
    assert decide(zone(0), zone(price=2, max_price=1.5), zone()).search == (2,)
    assert decide(zone(0), capped).reason == "no other zone is eligible"


def test_each_zone_has_its_own_price_ceiling() -> None:
    cheap = zone(offered=16, price=2, max_price=1.5)
    expensive = zone(offered=16, price=5, max_price=6)

    assert decide(zone(0), cheap, expensive).zone == 2


def test_offers_beyond_the_desired_number_do_not_count() -> None:
    assert decide(zone(15), zone(offered=500)).zone == 0


def share(zone: ZoneObservation) -> float:
    return productive_share(zone.lifetime_seconds, CONFIG.start_seconds)


@given(
    offers=st.lists(
        st.tuples(st.integers(1, 16), st.floats(60, 1e6), st.floats(0.1, 5)), min_size=1, max_size=4
    )
)
def test_the_chosen_zone_is_about_the_most_productive_and_none_as_productive_is_cheaper(
    offers: list[tuple[int, float, float]],
) -> None:
    offered_zones = [
        zone(offered=machines, lifetime=lifetime, price=price)
        for machines, lifetime, price in offers
    ]
    chosen = offered_zones[decide(zone(0), *offered_zones).zone - 1]

    for other in offered_zones:
        ratio = productive(other) / productive(chosen)
        assert ratio <= 1 / EQUAL_SHARE + 1e-9
        assert ratio < 1 or (other.price or 0) >= (chosen.price or 0)


def productive(zone: ZoneObservation) -> float:
    return (zone.offered or 0) * share(zone)


counts = st.integers(0, 20)
zones = counts.flatmap(
    lambda running: st.builds(
        ZoneObservation,
        st.just(running),
        counts,
        st.none() | counts,
        st.none() | st.floats(0.1, 5),
        st.integers(0, running),
        st.just("a zone"),
        st.floats(60, 1e6),
    )
)
policy_states = st.builds(
    PolicyState, st.just(0), st.none() | st.floats(0, 1e5), st.none() | st.floats(0, 1e5)
)


@given(
    observation=st.builds(
        Observation, st.just(1e5), st.lists(zones, min_size=1, max_size=5).map(tuple), st.booleans()
    ),
    policy_state=policy_states,
)
def test_every_decision_is_safe_and_has_a_reason(
    observation: Observation, policy_state: PolicyState
) -> None:
    decision = place(CONFIG, observation, policy_state)

    assert decision.reason
    assert decision == place(CONFIG, observation, policy_state), (
        "a decision depends on its arguments only"
    )
    assert decision.zone not in decision.search
    if decision.zone != policy_state.zone:
        here, other = observation.zones[policy_state.zone], observation.zones[decision.zone]
        offered = min(other.offered or 0, CONFIG.machines)
        assert not observation.moving
        assert offered > here.uninterrupted, "a move gains machines"
        assert offered * share(other) > here.uninterrupted * share(here), (
            "a move gains productive machine time"
        )
        assert (
            policy_state.moved_at is None
            or 1e5 - policy_state.moved_at >= CONFIG.move_interval_seconds
        )
