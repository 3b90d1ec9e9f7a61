"""What Azure announces as Scheduled Events, API version 2020-07-01.

Source: "Azure Metadata Service: Scheduled Events for Linux VMs". An event that is over, or was
called off, is no longer in the document.
"""

import json
from email.utils import parsedate_to_datetime
from typing import Any

from spot.notice import Effect, Notice
from spot.wire import Answer

EVENTS_PATH = "/metadata/scheduledevents?api-version=2020-07-01"
INSTANCE_PATH = "/metadata/instance?api-version=2021-02-01"
HEADERS = {"Metadata": "true"}

EFFECTS = {
    "Preempt": Effect.LEAVE,
    "Terminate": Effect.LEAVE,
    "Reboot": Effect.LEAVE,
    "Redeploy": Effect.LEAVE,
    "Freeze": Effect.PAUSE,
}
DRAINED_BY_AKS = frozenset({"Preempt"})  # "Reboot" and "Terminate" it leaves alone


def read_name(answer: Answer) -> str | None:
    """Give the name under which events speak of this machine; None where the answer has none.

    It is the virtual machine's (`aks-gpu-1-vmss_0`), which is not the node's (`aks-gpu-1-vmss000000`).
    """
    said = _object(answer)
    compute = said.get("compute") if said else None
    name = compute.get("name") if isinstance(compute, dict) else None
    return name if isinstance(name, str) and name else None


def read(answer: Answer, machine: str) -> tuple[Notice, ...] | None:
    """Turn the document into the notices about `machine`; None where it says nothing to rely on.

    The events of all machines of an availability set or a placement group stand in one document.
    """
    said = _object(answer)
    events = said.get("Events") if said else None
    if not isinstance(events, list):
        return None
    return tuple(_notice(event) for event in events if _concerns(event, machine))


def _concerns(event: object, machine: str) -> bool:
    """Say whether this is an event of a kind we know about this machine."""
    if not isinstance(event, dict):
        return False
    kind, machines = event.get("EventType"), event.get("Resources")
    known = isinstance(kind, str) and kind in EFFECTS
    return known and isinstance(machines, list) and machine in machines


def _notice(event: dict[str, Any]) -> Notice:
    """Turn one event into a notice."""
    kind, identifier = event["EventType"], str(event.get("EventId") or "")
    effect = EFFECTS[kind]
    waits = event.get("EventStatus") == "Scheduled" and bool(identifier)
    return Notice(
        cloud="azure",
        reason=kind,
        effect=effect,
        deadline=_time(event.get("NotBefore")),
        identifier=identifier,
        cloud_drains=kind in DRAINED_BY_AKS,
        may_start=waits and effect is Effect.LEAVE,
    )


def start_request(identifier: str) -> bytes:
    """Give the body that lets an event start before its time."""
    return json.dumps({"StartRequests": [{"EventId": identifier}]}).encode()


def _object(answer: Answer) -> dict[str, Any] | None:
    """Give the JSON object in an answer; None where there is none."""
    try:
        said = json.loads(answer.body) if answer.status == 200 else None
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _time(said: object) -> float | None:
    """Read `Mon, 19 Sep 2016 18:29:47 GMT` as seconds since 1970; empty once the event started."""
    try:
        return parsedate_to_datetime(str(said)).timestamp()
    except ValueError:
        return None
