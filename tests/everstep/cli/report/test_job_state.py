"""Rows about a job, from the status that the controller writes."""

from everstep.cli.report.job_state import job_state


def test_the_zone_has_its_state_and_reason() -> None:
    placement = {"zone": "zone-a", "state": "short", "reason": "1 of 3 machines"}

    assert job_state({"placement": placement}) == (("zone", "zone-a, short: 1 of 3 machines"),)


def test_a_status_of_an_older_controller_has_only_the_zone() -> None:
    assert job_state({"placement": {"zone": "zone-a"}}) == (("zone", "zone-a"),)


def test_a_status_without_a_zone_has_no_rows() -> None:
    assert job_state({}) == job_state({"placement": None}) == ()


def test_the_deadline_and_the_on_demand_workers_are_shown_where_the_job_has_them() -> None:
    spending = {"deadline": "2026-11-24T12:00:00Z", "onDemand": 2, "useSpot": True, "usd": 1.5}

    assert job_state({"spending": spending}) == (
        ("deadline", "2026-11-24T12:00:00Z"),
        ("on demand", "2 workers, in addition to spot machines"),
    )


def test_a_used_up_budget_is_reported_as_such() -> None:
    ((name, value),) = job_state({"spending": {"usedUp": True, "onDemand": 0}})

    assert (name, value) == ("budget", "used up: the job is suspended with a checkpoint")


def test_on_demand_workers_without_spot_workers_are_reported_as_such() -> None:
    status = {"spending": {"onDemand": 1, "useSpot": False}}

    assert job_state(status) == (("on demand", "1 worker, and none on spot"),)
