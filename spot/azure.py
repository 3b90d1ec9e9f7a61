"""Notices from Azure's Scheduled Events, API version 2020-07-01.

Source: "Azure Metadata Service: Scheduled Events for Linux VMs". The document no longer contains
events that have ended or have been canceled.
"""

import json
from email.utils import parsedate_to_datetime
from typing import Any

from spot.http import HttpResponse
from spot.notice import Effect, Notice, read_object

EVENTS_PATH = "/metadata/scheduledevents?api-version=2020-07-01"
INSTANCE_PATH = "/metadata/instance?api-version=2021-02-01"
HEADERS = {"Metadata": "true"}

EFFECTS = {
    "Preempt": Effect.STOP,
    "Terminate": Effect.STOP,
    "Reboot": Effect.STOP,
    "Redeploy": Effect.STOP,
    "Freeze": Effect.PAUSE,
}
# AKS does not drain for "Reboot", and for "Terminate" only if configured. For "Redeploy" the watcher does not wait.
EVENTS_DRAINED_BY_AKS = frozenset({"Preempt"})


def read_machine_name(response: HttpResponse) -> str | None:
    """Return the name of this machine in events; None if the response does not contain it.

    It is the virtual machine's name (`aks-gpu-1-vmss_0`), not the node's (`aks-gpu-1-vmss000000`).
    """
    body = read_object(response)
    compute = body.get("compute") if body else None
    name = compute.get("name") if isinstance(compute, dict) else None
    return name if isinstance(name, str) and name else None


def read(response: HttpResponse, machine: str) -> tuple[Notice, ...] | None:
    """Parse the notices for `machine`; None if the response is not reliable.

    One document has the events of all machines of an availability set or a placement group.
    """
    body = read_object(response)
    events = body.get("Events") if body else None
    if not isinstance(events, list):
        return None
    return tuple(_read_event(event, machine) for event in events if _concerns(event, machine))


def _concerns(event: object, machine: str) -> bool:
    """Return True for an event of a type in `EFFECTS` that affects this machine."""
    if not isinstance(event, dict):
        return False
    kind, machines = event.get("EventType"), event.get("Resources")
    is_announced_effect = isinstance(kind, str) and kind in EFFECTS
    return is_announced_effect and isinstance(machines, list) and machine in machines


def _read_event(event: dict[str, Any], machine: str) -> Notice:
    """Parse one event of `machine`.

    A request to start an event starts it on all its machines, so an event of several machines begins at its deadline:
    this machine's watcher does not know whether the others are empty.
    """
    kind, identifier = event["EventType"], str(event.get("EventId") or "")
    effect = EFFECTS[kind]
    is_scheduled = event.get("EventStatus") == "Scheduled" and bool(identifier)
    is_own = event["Resources"] == [machine]
    return Notice(
        cloud="azure",
        reason=kind,
        effect=effect,
        deadline=_read_time(event.get("NotBefore")),
        identifier=identifier,
        cloud_drains=kind in EVENTS_DRAINED_BY_AKS,
        may_start=is_scheduled and is_own and effect is Effect.STOP,
    )


def start_request(identifier: str) -> bytes:
    """Return the body of a request to start an event early."""
    return json.dumps({"StartRequests": [{"EventId": identifier}]}).encode()


def _read_time(value: object) -> float | None:
    """Parse `Mon, 19 Sep 2016 18:29:47 GMT` into Unix time; None once the event has started."""
    try:
        return parsedate_to_datetime(str(value)).timestamp()
    except ValueError:
        return None
