"""What each cloud announces, read from its own words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spot import aws, azure
from spot.notice import Effect, Notice, most_urgent
from spot.wire import Answer

NOTHING = Answer(404, b"<html>Not Found</html>")


def said(body: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode())


TERMINATE = said({"action": "terminate", "time": "2026-11-21T08:22:00Z"})
REBALANCE = said({"noticeTime": "2026-11-21T08:10:00Z"})


def test_an_interruption_says_when_the_machine_goes() -> None:
    (notice,) = aws.read(TERMINATE, NOTHING) or ()

    assert (notice.reason, notice.effect) == ("terminate", Effect.LEAVE)
    assert notice.deadline == 1795249320.0
    assert notice.cloud_drains, "a managed node group drains; two at once would only race"
    assert not notice.may_start, "EC2 waits for nobody"


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_whatever_ec2_does_to_a_spot_machine_ends_what_runs_on_it(action: str) -> None:
    (notice,) = aws.read(said({"action": action, "time": "2026-11-21T08:22:00Z"}), NOTHING) or ()

    assert (notice.reason, notice.effect) == (action, Effect.LEAVE)


def test_a_rebalance_recommendation_is_advice() -> None:
    (notice,) = aws.read(NOTHING, REBALANCE) or ()

    assert (notice.effect, notice.deadline) == (Effect.ADVICE, None)


def test_both_answers_missing_means_that_nothing_is_announced() -> None:
    assert aws.read(NOTHING, NOTHING) == ()


UNRELIABLE = [Answer(500), Answer(401), Answer(200, b""), Answer(200, b"\xff{"), said([1]), said(3)]


@pytest.mark.parametrize("answer", UNRELIABLE)
def test_an_answer_that_makes_no_sense_is_no_all_clear(answer: Answer) -> None:
    assert aws.read(answer, NOTHING) is None
    assert aws.read(NOTHING, answer) is None
    assert azure.read(answer, "vm") is None
    assert azure.read_name(answer) is None


def test_an_interruption_counts_whatever_the_other_path_answers() -> None:
    for answer in UNRELIABLE:
        assert [one.effect for one in aws.read(TERMINATE, answer) or ()] == [Effect.LEAVE]


def test_an_interruption_without_a_time_that_can_be_read_is_still_one() -> None:
    (notice,) = aws.read(said({"action": "stop", "time": "soon"}), NOTHING) or ()

    assert (notice.effect, notice.deadline) == (Effect.LEAVE, None)


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
    document = said({"DocumentIncarnation": 4, "Events": [event(**changes)]})
    (notice,) = azure.read(document, "aks-t4-1-vmss_0") or ()
    return notice


# Drained by AKS itself; whether Azure is told to go ahead once the node is empty.
KINDS = {
    "Preempt": (Effect.LEAVE, True, True),
    "Terminate": (Effect.LEAVE, False, True),
    "Reboot": (Effect.LEAVE, False, True),
    "Redeploy": (Effect.LEAVE, False, True),
    "Freeze": (Effect.PAUSE, False, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_event_has_its_effect(kind: str) -> None:
    notice = read_one(EventType=kind)

    assert (notice.effect, notice.cloud_drains, notice.may_start) == KINDS[kind]
    assert notice.deadline == 1795249320.0


def test_an_event_that_has_started_waits_for_nobody_and_has_no_time_left() -> None:
    notice = read_one(EventStatus="Started", NotBefore="")

    assert (notice.may_start, notice.deadline) == (False, None)


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
def test_events_of_other_machines_and_of_unknown_kinds_are_left_alone(
    changes: dict[str, Any],
) -> None:
    document = said({"Events": [event(**changes), "noise"]})

    assert azure.read(document, "aks-t4-1-vmss_0") == ()


def test_the_machine_is_called_by_its_name_in_azure_not_by_its_nodes() -> None:
    document = {"compute": {"name": "aks-t4-1-vmss_0", "osProfile": {"computerName": "aks-t4-0"}}}

    assert azure.read_name(said(document)) == "aks-t4-1-vmss_0"
    assert azure.read_name(said({"compute": {"name": ""}})) is None


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
answers = st.builds(Answer, st.sampled_from([200, 404, 500]), bodies)


@given(one=answers, other=answers)
def test_no_answer_whatever_brings_the_watcher_down(one: Answer, other: Answer) -> None:
    for found in (aws.read(one, other), azure.read(one, "vm")):
        assert found is None or all(isinstance(notice, Notice) for notice in found)


def test_of_several_notices_the_gravest_and_then_the_earliest_decides() -> None:
    freeze = Notice(cloud="azure", reason="Freeze", effect=Effect.PAUSE, deadline=1.0)
    late = Notice(cloud="azure", reason="Reboot", effect=Effect.LEAVE, deadline=9.0)
    soon = Notice(cloud="azure", reason="Preempt", effect=Effect.LEAVE, deadline=5.0)

    assert most_urgent([freeze, late, soon]) is soon
    assert most_urgent([]) is None
