"""Detection of expired leases from TTLs in whole seconds, for leases with known renewals."""

import math

from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.membership.lease_probe import LeaseProbe

TTL_SECONDS = 2.0
times = st.floats(0.0, 6.0)


def remaining_seconds(renewals: list[float], moment: float) -> int:
    """Return the remaining seconds that etcd reports for a lease granted at 0; 0 once it has expired."""
    last_renewal = max([0.0, *(renewal for renewal in renewals if renewal <= moment)])
    return math.trunc(last_renewal + TTL_SECONDS - moment)


def accepted_renewals(renewals: list[float]) -> list[float]:
    """Return the renewals before the lease expired; later ones are refused."""
    renewals_at = [0.0]
    for moment in sorted(renewals):
        if moment < renewals_at[-1] + TTL_SECONDS:
            renewals_at.append(moment)
    return renewals_at


@given(st.lists(times, max_size=12), st.lists(st.tuples(times, st.floats(0.0, 0.3))))
def test_a_valid_lease_is_never_reported_as_lapsed(
    attempts: list[float], probes: list[tuple[float, float]]
) -> None:
    renewals = accepted_renewals(attempts)
    lapses_at = renewals[-1] + TTL_SECONDS
    probe, free_at = LeaseProbe(7), 0.0

    for moment, probe_seconds in sorted(probes):
        probed_at = max(moment, free_at)
        free_at = probed_at + probe_seconds
        if free_at > lapses_at + 0.9:
            break  # etcd has removed the lease by then
        if probe.observe(
            remaining_seconds(renewals, probed_at + probe_seconds / 2), probed_at, free_at
        ):
            assert free_at >= lapses_at


@given(st.floats(0.05, 0.25), st.floats(0.0, 0.9), st.integers(0, 4))
def test_expiry_is_detected_within_two_probes_if_the_lease_was_probed_before_its_last_second(
    gap: float, first_probe: float, renewals: int
) -> None:
    renewals_at = [0.6 * number for number in range(renewals + 1)]
    lapses_at = renewals_at[-1] + TTL_SECONDS
    probe, moment = LeaseProbe(7), first_probe

    while not probe.observe(remaining_seconds(renewals_at, moment), moment, moment):
        moment += gap

    assert lapses_at <= moment <= lapses_at + 2 * gap + 1e-6


def test_a_long_gap_between_probes_may_contain_a_renewal() -> None:
    probe = LeaseProbe(7)

    assert not probe.observe(0, 1.5, 1.5)
    assert not probe.observe(0, 2.6, 2.6), "it may have been renewed at 1.6"
    assert not probe.observe(0, 3.0, 3.0)
    assert not probe.observe(0, 3.4, 3.4)
    assert probe.observe(0, 3.6, 3.6)
