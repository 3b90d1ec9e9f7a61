"""The instance metadata service of AWS, version 2: a token first, then one value to a path.

Pure: what is answered depends on the request, the machine, its notice and the clock. Source: the EC2 user guide,
chapters "Instance metadata" and "Spot Instance interruptions".
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from twin.nodes.instance import AWS_ACCOUNT
from twin.nodes.metadata_answer import Answer, Request
from twin.nodes.notices import Notice

TOKEN_PATH = "/latest/api/token"  # noqa: S105 - where tokens are had, no token
TOKEN_HEADER = "x-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
TTL_HEADER = "x-aws-ec2-metadata-token-ttl-seconds"
MAX_TTL_SECONDS = 21600
VALUES = "/latest/meta-data/"
DOCUMENT = "/latest/dynamic/instance-identity/document"
NOT_FOUND = Answer(HTTPStatus.NOT_FOUND, "404 - Not Found", "text/html")


@dataclass
class Tokens:
    """The tokens given out, with the moment each ends."""

    ends: dict[str, float] = field(default_factory=dict)

    def new(self, seconds: int, now: float) -> str:
        """Give out a token."""
        self.ends = {token: end for token, end in self.ends.items() if end > now}
        token = secrets.token_urlsafe(42)
        self.ends[token] = now + seconds
        return token

    def valid(self, token: str, now: float) -> bool:
        """Whether a token was given out and has not ended."""
        return self.ends.get(token, 0.0) > now


def answer(
    request: Request, facts: Mapping[str, Any], notice: Notice | None, tokens: Tokens, now: float
) -> Answer:
    """Answer one request."""
    if request.path == TOKEN_PATH:
        return _token(request, tokens, now)
    if not tokens.valid(request.headers.get(TOKEN_HEADER, ""), now):
        return Answer(HTTPStatus.UNAUTHORIZED, "401 - Unauthorized", "text/html")
    if request.method != "GET":
        return Answer(HTTPStatus.METHOD_NOT_ALLOWED, "405 - Method Not Allowed", "text/html")
    if request.path == DOCUMENT:
        return Answer(HTTPStatus.OK, json.dumps(_document(facts)), "text/plain")
    values = _values(facts, notice)
    if request.path.startswith(VALUES):
        name = request.path.removeprefix(VALUES)
        if name in values:
            return Answer(HTTPStatus.OK, values[name], "text/plain")
        if listing := _listing(values, name):
            return Answer(HTTPStatus.OK, listing, "text/plain")
    return NOT_FOUND


def _token(request: Request, tokens: Tokens, now: float) -> Answer:
    if request.method != "PUT":
        return Answer(HTTPStatus.METHOD_NOT_ALLOWED, "405 - Method Not Allowed", "text/html")
    if "x-forwarded-for" in request.headers:
        return Answer(HTTPStatus.FORBIDDEN, "403 - Forbidden", "text/html")
    wanted = request.headers.get(TTL_HEADER, "")
    if not wanted.isdigit() or not 1 <= int(wanted) <= MAX_TTL_SECONDS:
        return Answer(HTTPStatus.BAD_REQUEST, "400 - Bad Request", "text/html")
    return Answer(HTTPStatus.OK, tokens.new(int(wanted), now), "text/plain", {TTL_HEADER: wanted})


def _values(facts: Mapping[str, Any], notice: Notice | None) -> dict[str, str]:
    values = {
        "ami-id": "ami-0everstep0000000",
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
        goes = _time(notice.not_before)
        values["events/recommendations/rebalance"] = json.dumps({"noticeTime": _time(notice.at)})
        values["spot/instance-action"] = json.dumps({"action": "terminate", "time": goes})
        values["spot/termination-time"] = goes
    return values


def _listing(values: Mapping[str, str], folder: str) -> str:
    """Return what lies in a folder of values, a line each, folders with a slash at the end."""
    prefix = f"{folder.rstrip('/')}/" if folder else ""
    inside = {name.removeprefix(prefix) for name in values if name.startswith(prefix)}
    return "\n".join(
        sorted({head + slash for head, slash, _ in (n.partition("/") for n in inside)})
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
