"""The instance metadata service of AWS, version 2: a token first, then one value for each path.

Functions of the request, the machine, its notice, the valid tokens and the clock. Source: the EC2 user guide, chapters
"Instance metadata" and "Spot Instance interruptions".
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.nodes.metadata.http import MetadataRequest, MetadataResponse
from cloudtwin.nodes.metadata.notices import Notice

TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path, not a token
TOKEN_HEADER = "x-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
TTL_HEADER = "x-aws-ec2-metadata-token-ttl-seconds"
MAX_TTL_SECONDS = 21600
VALUES = "/latest/meta-data/"
DOCUMENT = "/latest/dynamic/instance-identity/document"
NOT_FOUND = MetadataResponse(HTTPStatus.NOT_FOUND, "404 - Not Found", "text/html")


@dataclass
class Tokens:
    """Valid tokens with their expiry times, in seconds since the epoch."""

    expiry_times: dict[str, float] = field(default_factory=dict)

    def new(self, seconds: int, now: float) -> str:
        """Return a new token."""
        self.expiry_times = {
            token: expiry for token, expiry in self.expiry_times.items() if expiry > now
        }
        token = secrets.token_urlsafe(42)
        self.expiry_times[token] = now + seconds
        return token

    def is_valid(self, token: str, now: float) -> bool:
        """Return True if a token exists and has not expired."""
        return self.expiry_times.get(token, 0.0) > now


def respond(
    request: MetadataRequest,
    facts: Mapping[str, Any],
    notice: Notice | None,
    tokens: Tokens,
    now: float,
) -> MetadataResponse:
    """Return the response to a request."""
    if request.path == TOKEN_PATH:
        return _token(request, tokens, now)
    if not tokens.is_valid(request.headers.get(TOKEN_HEADER, ""), now):
        return MetadataResponse(HTTPStatus.UNAUTHORIZED, "401 - Unauthorized", "text/html")
    if request.method != "GET":
        return MetadataResponse(
            HTTPStatus.METHOD_NOT_ALLOWED, "405 - Method Not Allowed", "text/html"
        )
    if request.path == DOCUMENT:
        return MetadataResponse(HTTPStatus.OK, json.dumps(_document(facts)), "text/plain")
    values = _values(facts, notice)
    if request.path.startswith(VALUES):
        name = request.path.removeprefix(VALUES)
        if name in values:
            return MetadataResponse(HTTPStatus.OK, values[name], "text/plain")
        if listing := _listing(values, name):
            return MetadataResponse(HTTPStatus.OK, listing, "text/plain")
    return NOT_FOUND


def _token(request: MetadataRequest, tokens: Tokens, now: float) -> MetadataResponse:
    if request.method != "PUT":
        return MetadataResponse(
            HTTPStatus.METHOD_NOT_ALLOWED, "405 - Method Not Allowed", "text/html"
        )
    if "x-forwarded-for" in request.headers:
        return MetadataResponse(HTTPStatus.FORBIDDEN, "403 - Forbidden", "text/html")
    ttl = request.headers.get(TTL_HEADER, "")
    if not ttl.isdigit() or not 1 <= int(ttl) <= MAX_TTL_SECONDS:
        return MetadataResponse(HTTPStatus.BAD_REQUEST, "400 - Bad Request", "text/html")
    return MetadataResponse(
        HTTPStatus.OK, tokens.new(int(ttl), now), "text/plain", {TTL_HEADER: ttl}
    )


def _values(facts: Mapping[str, Any], notice: Notice | None) -> dict[str, str]:
    values = {
        "ami-id": "ami-0123456789abcdef0",
        "hostname": str(facts["name"]),
        "instance-id": str(facts["instance_id"]),
        "instance-life-cycle": "spot" if facts["spot"] else "on-demand",
        "instance-type": str(facts["instance_type"]),
        "local-hostname": str(facts["name"]),
        "local-ipv4": str(facts["address"]),
        "placement/availability-zone": str(facts["zone"]),
        "placement/region": str(facts["region"]),
        "services/domain": "amazonaws.com",
        "services/partition": "aws",
    }
    if notice and facts["spot"]:
        end = _time(notice.not_before)
        values["events/recommendations/rebalance"] = json.dumps(
            {"noticeTime": _time(notice.announced_at)}
        )
        values["spot/instance-action"] = json.dumps({"action": "terminate", "time": end})
        values["spot/termination-time"] = end
    return values


def _listing(values: Mapping[str, str], folder: str) -> str:
    """Return the entries of a folder, one per line, folders with a trailing slash."""
    prefix = f"{folder.rstrip('/')}/" if folder else ""
    relative_names = {name.removeprefix(prefix) for name in values if name.startswith(prefix)}
    return "\n".join(
        sorted({head + slash for head, slash, _ in (n.partition("/") for n in relative_names)})
    )


def _document(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "accountId": AWS_ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": facts["zone"],
        "instanceId": facts["instance_id"],
        "instanceType": facts["instance_type"],
        "privateIp": facts["address"],
        "region": facts["region"],
        "version": "2017-09-30",
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
