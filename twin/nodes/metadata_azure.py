"""The instance metadata service of Azure: facts of the machine, and events that are scheduled for it.

Pure: what is answered depends on the request, the machine, its notice and whether that was acknowledged. The real
service arms itself on the first request and may take two minutes for that; here an event shows at once. Source:
"Azure Metadata Service: Scheduled Events for Linux VMs" and "Azure Instance Metadata Service for virtual machines".
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from twin.nodes.instance import AZURE_SUBSCRIPTION
from twin.nodes.metadata_answer import Answer, Request
from twin.nodes.notices import Notice

EVENTS = "/metadata/scheduledevents"
INSTANCE = "/metadata/instance"
EVENT_VERSIONS = ("2020-07-01", "2019-08-01", "2019-04-01", "2019-01-01", "2017-11-01")
INSTANCE_VERSIONS = (
    "2023-07-01",
    "2021-12-13",
    "2021-05-01",
    "2021-02-01",
    "2020-09-01",
    "2019-06-01",
)
JSON = "application/json; charset=utf-8"


def answer(
    request: Request, facts: Mapping[str, Any], notice: Notice | None, *, started: bool
) -> Answer:
    """Answer one request; `started` says that the notice was acknowledged."""
    if request.headers.get("metadata", "").lower() != "true":
        return _refused("Bad request. Required metadata header not specified")
    if "x-forwarded-for" in request.headers:
        return _refused("Bad request. x-forwarded-for header is not supported")
    versions = {EVENTS: EVENT_VERSIONS, INSTANCE: INSTANCE_VERSIONS}.get(request.path)
    if versions is None:
        return Answer(HTTPStatus.NOT_FOUND, json.dumps({"error": "Not found"}), JSON)
    if request.query.get("api-version") not in versions:
        said = {
            "error": "Bad request. api-version is invalid or was not specified in the request.",
            "newest-versions": list(versions),
        }
        return Answer(HTTPStatus.BAD_REQUEST, json.dumps(said), JSON)
    if request.path == INSTANCE:
        return Answer(HTTPStatus.OK, json.dumps(_instance(facts)), JSON)
    if request.method == "POST":
        return _start(request, notice)
    return Answer(HTTPStatus.OK, json.dumps(_events(facts, notice, started=started)), JSON)


def _start(request: Request, notice: Notice | None) -> Answer:
    try:
        wanted = [str(entry["EventId"]) for entry in json.loads(request.body)["StartRequests"]]
    except (KeyError, TypeError, ValueError):
        return _refused("Bad request. StartRequests is missing or malformed")
    if notice is None or notice.event not in wanted:
        return _refused("Bad request. EventId is unknown")
    return Answer(HTTPStatus.OK, "", JSON, acknowledged=notice.event)


def _events(facts: Mapping[str, Any], notice: Notice | None, *, started: bool) -> dict[str, Any]:
    if notice is None:
        return {"DocumentIncarnation": 1, "Events": []}
    event = {
        "EventId": notice.event,
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": [facts["name"]],
        "EventStatus": "Started" if started else "Scheduled",
        # Once it has started there is no time left to name.
        "NotBefore": "" if started else _time(notice.not_before),
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }
    return {"DocumentIncarnation": 3 if started else 2, "Events": [event]}


def _instance(facts: Mapping[str, Any]) -> dict[str, Any]:
    compute = {
        "azEnvironment": "AzurePublicCloud",
        "evictionPolicy": "Delete" if facts["spot"] else "",
        "location": facts["region"],
        "name": facts["name"],
        "osType": "Linux",
        "priority": "Spot" if facts["spot"] else "Regular",
        "resourceGroupName": facts["resource_group"],
        "resourceId": str(facts["provider_id"]).removeprefix("azure://"),
        "subscriptionId": AZURE_SUBSCRIPTION,
        "vmId": facts["instance_id"],
        "vmScaleSetName": facts["scale_set"],
        "vmSize": facts["instance_type"],
        "zone": str(facts["zone"]).rpartition("-")[2],
    }
    address = {"privateIpAddress": facts["address"], "publicIpAddress": ""}
    return {
        "compute": compute,
        "network": {"interface": [{"ipv4": {"ipAddress": [address]}}]},
    }


def _refused(why: str) -> Answer:
    return Answer(HTTPStatus.BAD_REQUEST, json.dumps({"error": why}), JSON)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
