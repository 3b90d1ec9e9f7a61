"""What the controller says about a job, for people."""

from everstep.cli.report.job_state import job_state


def test_the_zone_has_its_state_and_reason() -> None:
    placement = {"zone": "zone-a", "state": "short", "reason": "1 of 3 machines"}

    assert job_state({"placement": placement}) == (("zone", "zone-a, short: 1 of 3 machines"),)


def test_a_status_without_a_zone_has_no_rows() -> None:
    assert job_state({}) == job_state({"placement": None}) == ()
