"""The answers to a scanner's findings."""

import pytest

from tests.scan.answers import Answer, Finding, parse_answers, unanswered, unused

PAGE = """
| rule | resources | reason |
| --- | --- | --- |
| CKV_K8S_11, CKV_K8S_9 | `DaemonSet.*`, `Pod.a` | a reason |
"""
LIMITS = Finding("CKV_K8S_11", "CPU limits", "DaemonSet.spot")
PROBE = Finding("CKV_K8S_9", "Readiness", "Pod.a")


def test_a_row_answers_each_of_its_rules() -> None:
    assert parse_answers(PAGE) == [
        Answer("CKV_K8S_11", ("DaemonSet.*", "Pod.a"), "a reason"),
        Answer("CKV_K8S_9", ("DaemonSet.*", "Pod.a"), "a reason"),
    ]


def test_a_page_without_answers_is_refused() -> None:
    with pytest.raises(ValueError, match="has no row"):
        parse_answers("| rule | resources | reason |\n")


def test_findings_of_other_rules_and_resources_have_no_answer() -> None:
    others = [
        Finding("CKV_K8S_12", "memory", "DaemonSet.spot"),
        Finding("CKV_K8S_11", "", "Pod.b"),
    ]

    assert unanswered([LIMITS, PROBE, *others], parse_answers(PAGE)) == sorted(others)


def test_an_answer_is_unused_if_one_of_its_resources_has_no_finding() -> None:
    answers = [
        Answer("CKV_K8S_11", ("DaemonSet.*",), ""),
        Answer("CKV_K8S_9", ("Pod.*", "Job.*"), ""),
    ]

    assert unused([LIMITS, PROBE], answers) == answers[1:]
