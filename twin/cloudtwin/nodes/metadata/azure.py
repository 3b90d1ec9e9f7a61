"""The instance metadata service of Azure: properties of the machine, and its scheduled events.

Pure functions of the request, the machine, its notice and its acknowledgement. The real service is enabled by the
first request, which can take two minutes; here an event is visible immediately. Source:
"Azure Metadata Service: Scheduled Events for Linux VMs" and "Azure Instance Metadata Service for virtual machines".
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from cloudtwin.accounts import AZURE_SUBSCRIPTION
from cloudtwin.nodes.metadata.http import MetadataRequest, MetadataResponse
from cloudtwin.nodes.metadata.notices import Notice

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


def respond(
    request: MetadataRequest, facts: Mapping[str, Any], notice: Notice | None, *, started: bool
) -> MetadataResponse:
    """Return the response to a request; `started` is True if the notice was acknowledged."""
    if request.headers.get("metadata", "").lower() != "true":
        return _bad_request("Bad request. Required metadata header not specified")
    if "x-forwarded-for" in request.headers:
        return _bad_request("Bad request. x-forwarded-for header is not supported")
    versions = {EVENTS: EVENT_VERSIONS, INSTANCE: INSTANCE_VERSIONS}.get(request.path)
    if versions is None:
        return MetadataResponse(HTTPStatus.NOT_FOUND, json.dumps({"error": "Not found"}), JSON)
    if request.query.get("api-version") not in versions:
        body = {
            "error": "Bad request. api-version is invalid or was not specified in the request.",
            "newest-versions": list(versions),
        }
        return MetadataResponse(HTTPStatus.BAD_REQUEST, json.dumps(body), JSON)
    if request.path == INSTANCE:
        return MetadataResponse(HTTPStatus.OK, json.dumps(_instance(facts)), JSON)
    if request.method == "POST":
        return _start(request, notice)
    return MetadataResponse(
        HTTPStatus.OK, json.dumps(_events(facts, notice, started=started)), JSON
    )


def _start(request: MetadataRequest, notice: Notice | None) -> MetadataResponse:
    try:
        event_ids = [str(entry["EventId"]) for entry in json.loads(request.body)["StartRequests"]]
    except (KeyError, TypeError, ValueError):
        return _bad_request("Bad request. StartRequests is missing or malformed")
    if notice is None or notice.event not in event_ids:
        return _bad_request("Bad request. EventId is unknown")
    return MetadataResponse(HTTPStatus.OK, "", JSON, acknowledged_event=notice.event)


def _events(facts: Mapping[str, Any], notice: Notice | None, *, started: bool) -> dict[str, Any]:
    if notice is None:
        return {"DocumentIncarnation": 1, "Events": []}
    event = {
        "EventId": notice.event,
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": [facts["name"]],
        "EventStatus": "Started" if started else "Scheduled",
        # Empty for a started event, as in Azure.
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


def _bad_request(reason: str) -> MetadataResponse:
    return MetadataResponse(HTTPStatus.BAD_REQUEST, json.dumps({"error": reason}), JSON)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
