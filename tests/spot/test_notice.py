"""Parsing of the responses of both clouds' metadata services."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spot import aws, azure
from spot.http import HttpResponse
from spot.notice import Effect, Notice, most_urgent

NOTICE_TIME = 1_795_249_320.0  # 2026-11-21T08:22:00Z
NOT_FOUND = HttpResponse(404, b"<html>Not Found</html>")


def response_with(body: object, status: int = 200) -> HttpResponse:
    return HttpResponse(status, json.dumps(body).encode())


TERMINATE = response_with({"action": "terminate", "time": "2026-11-21T08:22:00Z"})
REBALANCE = response_with({"noticeTime": "2026-11-21T08:10:00Z"})


def test_an_interruption_has_the_time_of_the_stop() -> None:
    (notice,) = aws.read(TERMINATE, NOT_FOUND) or ()

    assert (notice.reason, notice.effect) == ("terminate", Effect.STOP)
    assert notice.deadline == NOTICE_TIME
    assert notice.cloud_drains, "managed node groups drain; two drains would race"
    assert not notice.may_start, "EC2 does not start events early"


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_every_action_of_ec2_stops_the_machine(action: str) -> None:
    (notice,) = (
        aws.read(response_with({"action": action, "time": "2026-11-21T08:22:00Z"}), NOT_FOUND) or ()
    )

    assert (notice.reason, notice.effect) == (action, Effect.STOP)


def test_a_rebalance_recommendation_is_advice() -> None:
    (notice,) = aws.read(NOT_FOUND, REBALANCE) or ()

    assert (notice.effect, notice.deadline) == (Effect.ADVICE, None)


def test_nothing_is_announced_if_both_paths_are_missing() -> None:
    assert aws.read(NOT_FOUND, NOT_FOUND) == ()


INVALID = [
    HttpResponse(500),
    HttpResponse(401),
    HttpResponse(200, b""),
    HttpResponse(200, b"\xff{"),
    response_with([1]),
    response_with(3),
]


@pytest.mark.parametrize("response", INVALID)
def test_an_invalid_response_does_not_count_as_no_notice(response: HttpResponse) -> None:
    assert aws.read(response, NOT_FOUND) is None
    assert aws.read(NOT_FOUND, response) is None
    assert azure.read(response, "vm") is None
    assert azure.read_machine_name(response) is None


def test_an_interruption_counts_even_if_the_other_response_is_invalid() -> None:
    for response in INVALID:
        assert [notice.effect for notice in aws.read(TERMINATE, response) or ()] == [Effect.STOP]


def test_an_interruption_with_an_invalid_time_has_no_deadline() -> None:
    (notice,) = aws.read(response_with({"action": "stop", "time": "soon"}), NOT_FOUND) or ()

    assert (notice.effect, notice.deadline) == (Effect.STOP, None)


def event(**changes: Any) -> dict[str, Any]:
    return {
        "EventId": "C7061BAC",
        "EventType": "Preempt",
        "EventStatus": "Scheduled",
        "ResourceType": "VirtualMachine",
        "Resources": ["aks-t4-1-vmss_0"],
        "NotBefore": "Sat, 21 Nov 2026 08:22:00 GMT",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
        **changes,
    }


def read_one(**changes: Any) -> Notice:
    document = response_with({"DocumentIncarnation": 4, "Events": [event(**changes)]})
    (notice,) = azure.read(document, "aks-t4-1-vmss_0") or ()
    return notice


# Event type -> effect, drained by AKS, started early once the node is empty.
KINDS = {
    "Preempt": (Effect.STOP, True, True),
    "Terminate": (Effect.STOP, False, True),
    "Reboot": (Effect.STOP, False, True),
    "Redeploy": (Effect.STOP, False, True),
    "Freeze": (Effect.PAUSE, False, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_event_has_its_effect(kind: str) -> None:
    notice = read_one(EventType=kind)

    assert (notice.effect, notice.cloud_drains, notice.may_start) == KINDS[kind]
    assert notice.deadline == NOTICE_TIME


def test_a_started_event_has_no_deadline_and_cannot_be_started() -> None:
    notice = read_one(EventStatus="Started", NotBefore="")

    assert (notice.may_start, notice.deadline) == (False, None)


@pytest.mark.parametrize("others", [["aks-t4-1-vmss_1"], ["aks-t4-1-vmss_1", "aks-t4-1-vmss_2"]])
def test_an_event_of_several_machines_is_not_started_early(others: list[str]) -> None:
    """Azure starts it on all of them, and the pods of the other machines may still run."""
    for machines in (["aks-t4-1-vmss_0", *others], [*others, "aks-t4-1-vmss_0"]):
        assert not read_one(Resources=machines).may_start


@pytest.mark.parametrize(
    "changes",
    [
        {"Resources": ["aks-t4-1-vmss_1"]},
        {"Resources": "aks-t4-1-vmss_0"},
        {"Resources": None},
        {"EventType": "Ceremony"},
        {"EventType": ["Preempt"]},
    ],
)
def test_events_of_other_machines_and_of_unknown_types_are_ignored(
    changes: dict[str, Any],
) -> None:
    document = response_with({"Events": [event(**changes), "noise"]})

    assert azure.read(document, "aks-t4-1-vmss_0") == ()


def test_the_machine_is_identified_by_its_name_in_azure_and_not_by_its_node_name() -> None:
    document = {"compute": {"name": "aks-t4-1-vmss_0", "osProfile": {"computerName": "aks-t4-0"}}}

    assert azure.read_machine_name(response_with(document)) == "aks-t4-1-vmss_0"
    assert azure.read_machine_name(response_with({"compute": {"name": ""}})) is None


def test_the_request_to_start_names_the_event() -> None:
    assert json.loads(azure.start_request("C7061BAC")) == {
        "StartRequests": [{"EventId": "C7061BAC"}]
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
events = st.fixed_dictionaries(
    {},
    optional={
        "EventId": json_values,
        "EventType": json_values | st.sampled_from(sorted(KINDS)),
        "EventStatus": json_values,
        "Resources": json_values | st.just(["vm"]),
        "NotBefore": json_values,
    },
)
bodies = st.binary(max_size=20) | st.builds(
    lambda value: json.dumps(value).encode(),
    json_values
    | st.fixed_dictionaries({"Events": st.lists(events | json_values, max_size=3)})
    | st.fixed_dictionaries({"action": json_values, "time": json_values}),
)
responses = st.builds(HttpResponse, st.sampled_from([200, 404, 500]), bodies)


@given(response=responses, advice=responses)
def test_no_response_crashes_the_watcher(response: HttpResponse, advice: HttpResponse) -> None:
    for notices in (aws.read(response, advice), azure.read(response, "vm")):
        assert notices is None or all(isinstance(notice, Notice) for notice in notices)


def test_the_earliest_of_the_most_severe_notices_is_most_urgent() -> None:
    freeze = Notice(cloud="azure", reason="Freeze", effect=Effect.PAUSE, deadline=1.0)
    reboot = Notice(cloud="azure", reason="Reboot", effect=Effect.STOP, deadline=9.0)
    preemption = Notice(cloud="azure", reason="Preempt", effect=Effect.STOP, deadline=5.0)

    assert most_urgent([freeze, reboot, preemption]) is preemption
    assert most_urgent([]) is None


def test_an_event_that_has_started_is_more_urgent_than_a_scheduled_one() -> None:
    """Azure clears `NotBefore` of an event that has started."""
    scheduled = Notice(cloud="azure", reason="Reboot", effect=Effect.STOP, deadline=5.0)
    started = Notice(cloud="azure", reason="Preempt", effect=Effect.STOP)
    freeze = Notice(cloud="azure", reason="Freeze", effect=Effect.PAUSE)

    assert most_urgent([freeze, scheduled, started]) is started
