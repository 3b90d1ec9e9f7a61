"""The accepted findings of a scanner."""

import pytest

from tests.scan.accepted import (
    AcceptedFinding,
    Finding,
    parse_accepted,
    stale_entries,
    unaccepted_findings,
)

PAGE = """
| check | resources | reason |
| --- | --- | --- |
| CKV_K8S_11, CKV_K8S_9 | `DaemonSet.*`, `Pod.a` | a reason |
"""
LIMITS = Finding("CKV_K8S_11", "CPU limits", "DaemonSet.spot")
PROBE = Finding("CKV_K8S_9", "Readiness", "Pod.a")


def test_a_row_accepts_findings_of_each_of_its_checks() -> None:
    assert parse_accepted(PAGE) == [
        AcceptedFinding("CKV_K8S_11", ("DaemonSet.*", "Pod.a"), "a reason"),
        AcceptedFinding("CKV_K8S_9", ("DaemonSet.*", "Pod.a"), "a reason"),
    ]


def test_a_page_without_accepted_findings_is_refused() -> None:
    with pytest.raises(ValueError, match="has no row"):
        parse_accepted("| check | resources | reason |\n")


def test_findings_of_other_checks_and_resources_are_not_accepted() -> None:
    other_findings = [
        Finding("CKV_K8S_12", "memory", "DaemonSet.spot"),
        Finding("CKV_K8S_11", "", "Pod.b"),
    ]

    assert unaccepted_findings([LIMITS, PROBE, *other_findings], parse_accepted(PAGE)) == sorted(
        other_findings
    )


def test_an_entry_is_reported_if_one_of_its_resources_has_no_finding() -> None:
    accepted = [
        AcceptedFinding("CKV_K8S_11", ("DaemonSet.*",), ""),
        AcceptedFinding("CKV_K8S_9", ("Pod.*", "Job.*"), ""),
    ]

    assert stale_entries([LIMITS, PROBE], accepted) == accepted[1:]
